// A token service from a third party, for programs to log in to Kafka with.
// node tokens.js SECONDS AUDIENCE: standard input has the clients' secrets, as JSON; it says on which port it listens.
import http from "node:http";
import { text } from "node:stream/consumers";
import Provider from "oidc-provider";

const [seconds, audience] = [Number(process.argv[2]), process.argv[3]];
const secrets = JSON.parse(await text(process.stdin));
const server = http.createServer();
server.listen(0, "localhost", () => {
  const { port } = server.address();
  const resource = `http://localhost:${port}/kafka`;
  const about = {
    scope: "kafka",
    audience,
    accessTokenTTL: seconds,
    accessTokenFormat: "jwt",
    jwt: { sign: { alg: "RS256" } },
  };
  const provider = new Provider(`http://localhost:${port}`, {
    clients: Object.entries(secrets).map(([name, secret]) => ({
      client_id: name,
      client_secret: secret,
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
      scope: "kafka",
    })),
    scopes: ["kafka"],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => resource,
        getResourceServerInfo: () => about,
        useGrantedResource: () => true,
      },
    },
    ttl: { ClientCredentials: seconds },
    cookies: { keys: ["for tests alone"] },
  });
  server.on("request", provider.callback());
  console.log(port);
});
