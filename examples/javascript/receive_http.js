// Receives events with Node's own http server: `PORT=9004 node receive_http.js`.

import { createServer } from "node:http";

import { Receiver } from "hifi-streams-client";

const receiver = new Receiver(process.env.HIFI_SIGNING_SECRET);

// Process an event here; if this throws, Hifi sends the event again.
const server = createServer(receiver.handler(async (event) => console.log(event.id)));
server.listen(Number(process.env.PORT ?? 9004), "127.0.0.1");
