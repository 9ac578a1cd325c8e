// Receives events with Express: `PORT=9003 node receive_express.js`.

import express from "express";
import { Receiver } from "hifi-streams-client";

const receiver = new Receiver(process.env.HIFI_SIGNING_SECRET);
const app = express();

// Process an event here; if this throws, Hifi sends the event again.
app.post("/hifi", receiver.handler(async (event) => console.log(event.id)));
app.listen(Number(process.env.PORT ?? 9003), "127.0.0.1");
