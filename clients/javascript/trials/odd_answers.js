// Sends a batch to each address of a gateway with odd answers, and writes all fates.
//
// `node odd_answers.js URL ADDRESSES EVENTS TIMEOUT_MS`; tests/support/gateway/odd_answers.py
// describes the addresses.

import { Sender } from "../src/index.js";

const [url, ...numbers] = process.argv.slice(2);
const [addresses, events, timeoutMs] = numbers.map(Number);

async function fatesAt(nth) {
  const whole = { batchCountMax: events, lingerMs: 40_000 };
  const quiet = { onProblem: () => {} };
  const hifi = new Sender(`${url}/case/${nth}`, "orders", { timeoutMs, giveUpMs: 40_000, ...whole, ...quiet });
  const sent = Array.from({ length: events }, (_, each) => hifi.send({ id: `${nth}-${each}` }));
  const outcomes = await Promise.all(sent.map((one) => one.outcome()));
  await hifi.close();
  return outcomes.map(({ fate }) => fate);
}

// As many addresses at once as a busy machine can answer in time.
const atOnce = 40;
const fates = [];
let next = 0;
async function work() {
  while (next < addresses) {
    const nth = next++;
    fates[nth] = await fatesAt(nth);
  }
}
await Promise.all(Array.from({ length: atOnce }, work));
process.stdout.write(JSON.stringify(fates), () => process.exit(0));
