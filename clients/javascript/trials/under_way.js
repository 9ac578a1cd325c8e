// Sends without a pause until its input ends, and writes each event's fate and id to its output.
//
// `node under_way.js URL STREAM`; it ends with "done" when every event has its fate.

import { FullError, Sender } from "../src/index.js";

const [url, stream] = process.argv.slice(2);
const onOutcome = ({ id, fate }) => process.stdout.write(`${fate} ${id}\n`);
const hifi = new Sender(url, stream, { batchCountMax: 50, memoryBytesMax: 200_000, timeoutMs: 2_000, onOutcome });
let isOver = false;
process.stdin.on("end", () => (isOver = true)).resume();

while (!isOver) {
  try {
    hifi.send({ text: "x".repeat(100) });
  } catch (error) {
    if (!(error instanceof FullError)) throw error;
    await hifi.room();
  }
}
await hifi.flush();
process.stdout.write("done\n");
await hifi.close();
