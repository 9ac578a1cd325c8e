// A sender against a real gateway: each event has its true fate.
//
// HIFI_GATEWAY has a stream `orders` whose events may have a numeric `price`; the accepted ids are
// written to the file HIFI_ACCEPTED. tests/component/clients/test_own_tests.py sets both.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, test } from "node:test";

import { ClosedError, FullError, GatewayError, NotAnEventError, Sender, SetupError } from "../src/index.js";

const URL = process.env.HIFI_GATEWAY;
const QUIET = { onProblem: () => {} };
const accepted = [];

after(() => writeFileSync(process.env.HIFI_ACCEPTED, JSON.stringify(accepted)));

function hifiSender(options = {}) {
  const onOutcome = ({ id, fate }) => fate === "accepted" && accepted.push(id);
  return new Sender(URL, "orders", { ...QUIET, onOutcome, ...options });
}

/** Serve each of the answers in turn, and the last one from then on. */
async function scripted(answers, use) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const answer = answers[Math.min(requests.length, answers.length - 1)];
    requests.push({ headers: request.headers, body: Buffer.concat(parts).toString() });
    if (answer.breaksOff) request.socket.destroy();
    else response.writeHead(answer.status ?? 200, answer.headers).end(answer.body ?? "");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`http://127.0.0.1:${server.address().port}`, requests);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Return an address where nobody listens any more. */
async function nobody() {
  let url;
  await scripted([{}], (found) => (url = found));
  return url;
}

const taken = (count) => ({ body: `{"request_id":"r","accepted":${count},"rejected":0}` });

for (const compression of [null, "gzip"]) {
  test(`batches are sent by count, and each event is accepted, with compression ${compression}`, async () => {
    const hifi = hifiSender({ batchCountMax: 100, compression });
    await hifi.check();
    const sent = Array.from({ length: 1_050 }, (_, n) => hifi.send({ n, text: `${n} `.repeat(20) }));
    const fates = await Promise.all(sent.map((one) => one.outcome()));
    assert.deepEqual(new Set(fates.map(({ fate }) => fate)), new Set(["accepted"]));
    assert.equal(new Set(sent.map(({ id }) => id)).size, 1_050);
    assert.equal(sent[0].known.fate, "accepted");
    await hifi.close();
  });
}

test("one invalid event does not affect the others", async () => {
  const hifi = hifiSender();
  const sent = [hifi.send({ id: "js-a", price: 1 }), hifi.send({ id: "js-b", price: "x" })];
  const [right, wrong] = await Promise.all(sent.map((one) => one.outcome()));
  assert.equal(right.fate, "accepted");
  assert.deepEqual([wrong.fate, wrong.code, wrong.pointer], ["rejected", "schema_violation", "/1/price"]);
  await hifi.close();
});

test("the caller's id and key are kept, and text keeps its bytes", async () => {
  const hifi = hifiSender();
  assert.equal(hifi.send({ n: 1 }, { id: "js-own", key: "k" }).id, "js-own");
  assert.equal(hifi.send('{"id":"js-text",\n"n":1.0}').id, "js-text");
  await hifi.close();
});

test("a batch that may be stored is sent again with the same ids, key and body", async () => {
  const partly = '{"request_id":"r","accepted":1,"results":[{"index":1,"status":"retry"}]}';
  const answers = [{ breaksOff: true }, { status: 504 }, { status: 207, body: partly }, taken(2)];
  await scripted(answers, async (url, requests) => {
    const hifi = new Sender(url, "orders", { ...QUIET, isIdempotent: true });
    const sent = ["a", "b"].map((id) => hifi.send({ id }));
    for (const one of sent) assert.equal((await one.outcome()).fate, "accepted");
    assert.equal(hifi.problem, "");
    assert.deepEqual(new Set(requests.map(({ body }) => body)), new Set(['{"id":"a"}\n{"id":"b"}']));
    assert.equal(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
    await hifi.close();
  });
});

test("only the part of a batch that was not stored is sent again", async () => {
  const partly = '{"request_id":"r","accepted":1,"results":[{"index":1,"status":"retry"}]}';
  await scripted([{ status: 207, body: partly }, taken(1)], async (url, requests) => {
    const hifi = new Sender(url, "orders", QUIET);
    const sent = ["a", "b"].map((id) => hifi.send({ id }));
    for (const one of sent) assert.equal((await one.outcome()).fate, "accepted");
    assert.equal(requests[1].body, '{"id":"b"}');
    await hifi.close();
  });
});

test("a body that is too large is halved", async () => {
  const tooLarge = { status: 413, body: '{"code":"body_too_large","request_id":"r","detail":"d"}' };
  await scripted([tooLarge, taken(2), tooLarge, tooLarge], async (url, requests) => {
    const hifi = new Sender(url, "orders", QUIET);
    const sent = ["a", "b", "c"].map((id) => hifi.send({ id }));
    const fates = await Promise.all(sent.map((one) => one.outcome()));
    assert.deepEqual(fates.map(({ fate }) => fate), ["accepted", "accepted", "rejected"]);
    assert.equal(requests.length, 3);
    await hifi.close();
  });
});

test("a pause that the gateway asks for applies to all requests", async () => {
  await scripted([{ status: 429, headers: { "retry-after": "1" } }, taken(1)], async (url) => {
    const begunMs = performance.now();
    const hifi = new Sender(url, "orders", { ...QUIET, batchCountMax: 1 });
    const sent = ["a", "b"].map((id) => hifi.send({ id }));
    for (const one of sent) assert.equal((await one.outcome()).fate, "accepted");
    assert.ok(performance.now() - begunMs >= 1_000);
    await hifi.close();
  });
});

test("full memory stops the sender and loses nothing", async () => {
  const hifi = hifiSender({ memoryBytesMax: 10_000 });
  let count = 0;
  assert.throws(() => {
    for (; ; count += 1) hifi.send({ text: "x".repeat(100) });
  }, FullError);
  assert.ok(count > 20);
  await hifi.room();
  await hifi.send({ n: 1 }).outcome();
  await hifi.close();
});

test("a problem that a person has to fix is one sentence and decides the event's fate", async () => {
  const wrong = [
    [URL, "nowhere", /The stream does not exist \(404 unknown_stream\)/, "rejected"],
    [await nobody(), "orders", /^Cannot connect to http:\/\/127.0.0.1:\d+ .*running\?$/, "not_stored"],
  ];
  for (const [url, stream, says, fate] of wrong) {
    const hifi = new Sender(url, stream, { ...QUIET, giveUpMs: 200 });
    await assert.rejects(hifi.check(), (error) => error instanceof GatewayError && says.test(error.message));
    const outcome = await hifi.send({ n: 1 }).outcome();
    assert.equal(outcome.fate, fate);
    assert.match(outcome.reason, says);
    await hifi.close();
  }
  await scripted([{ status: 308, headers: { location: "https://hifi.example/" } }], async (url) => {
    const hifi = new Sender(url, "orders", QUIET);
    assert.match((await hifi.send({ n: 1 }).outcome()).reason, /use the address of https:\/\/hifi.example\//);
    await hifi.close();
  });
});

test("after a success from another server, sending is retried until time is up", async () => {
  const page = { body: "<html>hello</html>" };
  await scripted([page, page, taken(1)], async (url) => {
    const hifi = new Sender(url, "orders", QUIET);
    assert.equal((await hifi.send({ n: 1 }).outcome()).fate, "accepted");
    await hifi.close();
  });
  await scripted([page], async (url) => {
    const hifi = new Sender(url, "orders", { ...QUIET, giveUpMs: 500 });
    const outcome = await hifi.send({ n: 1 }).outcome();
    assert.equal(outcome.fate, "unknown");
    assert.match(outcome.reason, /not a Hifi gateway/);
    await hifi.close();
  });
});

test("invalid options and events are refused in a sentence", async () => {
  const senders = [
    ["127.0.0.1:8080", "orders"],
    ["http://", "orders"],
    ["http://user:word@127.0.0.1", "orders"],
    ["http://127.0.0.1", "Orders!"],
    ["http://127.0.0.1", "orders", { batch: 5 }],
    ["http://127.0.0.1", "orders", { compression: "br" }],
  ];
  for (const args of senders) assert.throws(() => new Sender(...args), SetupError);
  const hifi = hifiSender();
  const cyclic = {};
  cyclic.itself = cyclic;
  for (const event of [null, 5, [1], "[1]", "nonsense", { id: 7 }, cyclic, { text: "x".repeat(1_000_000) }]) {
    assert.throws(() => hifi.send(event), NotAnEventError);
  }
  await hifi.close();
  assert.throws(() => hifi.send({}), ClosedError);
});

test("closing a sender gives every event a fate", async () => {
  const hifi = new Sender(await nobody(), "orders", QUIET);
  const sent = Array.from({ length: 3_000 }, (_, n) => hifi.send({ n }));
  await hifi.close({ withinMs: 300 });
  const fates = await Promise.all(sent.map((one) => one.outcome()));
  assert.deepEqual(new Set(fates.map(({ fate }) => fate)), new Set(["not_stored"]));
});
