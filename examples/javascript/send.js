// Sends a few events, and reports each one's outcome: `node send.js http://127.0.0.1:8080 orders`.

import { Sender } from "hifi-streams-client";

const [url, stream] = process.argv.slice(2);
const hifi = new Sender(url, stream);
const sent = [5, 6, 7].map((price) => hifi.send({ type: "sale", price }));
for (const one of sent) {
  const { id, fate, reason } = await one.outcome();
  console.log(id, fate, reason);
}
await hifi.close();
