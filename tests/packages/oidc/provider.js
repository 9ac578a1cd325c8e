// An OpenID provider from a third party, for the console to sign in with.
// node provider.js REDIRECT_URI says on which port it listens. One client; an account is TENANT.ROLE.
import http from "node:http";
import Provider from "oidc-provider";

const accountOf = (_, id) => {
  const [company, role] = id.split(".");
  return { accountId: id, claims: () => ({ sub: id, company, groups: ["everybody", `hifi-${role}`] }) };
};
const server = http.createServer();
server.listen(0, "localhost", () => {
  const { port } = server.address();
  const provider = new Provider(`http://localhost:${port}`, {
    clients: [
      {
        client_id: "console",
        client_secret: "a secret: with % and +",
        redirect_uris: [process.argv[2]],
        response_types: ["code"],
        grant_types: ["authorization_code"],
      },
    ],
    pkce: { required: () => true },
    claims: { openid: ["sub"], hifi: ["company", "groups"] },
    scopes: ["openid", "hifi"],
    conformIdTokenClaims: false,
    findAccount: accountOf,
    cookies: { keys: ["for tests alone"] },
  });
  server.on("request", provider.callback());
  console.log(port);
});
