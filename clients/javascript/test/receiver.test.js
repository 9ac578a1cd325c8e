// A receiver takes Hifi's new events, and answers for each event.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { DeliveryError, Receiver, RefusedError, SeenInMemory, SetupError } from "../src/index.js";

const KEYS = ["a", "b"].map((each) => Buffer.alloc(24, each));
const [SECRET, OTHER] = KEYS.map((key) => `whsec_${key.toString("base64")}`);
const EVENTS = [{ id: "a", n: 1 }, { id: "b", n: 2 }, { id: "c", n: 3 }];
const BODY = Buffer.from(JSON.stringify(EVENTS));

function signed(body = BODY, { key = KEYS[0], ageS = 0 } = {}) {
  const at = String(Math.floor(Date.now() / 1000 - ageS));
  const signature = createHmac("sha256", key).update(`msg_1.${at}.`).update(body).digest("base64");
  return {
    "content-type": "application/json",
    "webhook-id": "msg_1",
    "webhook-timestamp": at,
    "webhook-signature": `v1,${signature}`,
    "hifi-stream": "orders",
  };
}

test("a request signed with one of our secrets is taken, also during a rotation", async () => {
  assert.deepEqual((await new Receiver(SECRET).open(signed(), BODY)).events, EVENTS);
  for (const key of KEYS) {
    const delivery = await new Receiver([OTHER, SECRET]).open(signed(BODY, { key }), BODY);
    assert.equal(delivery.stream, "orders");
  }
  const both = signed();
  both["webhook-signature"] += ` ${signed(BODY, { key: KEYS[1] })["webhook-signature"]}`;
  assert.deepEqual((await new Receiver(OTHER).open(both, BODY)).events, EVENTS);
});

test("a request without a recent signature by our secret is 401", async () => {
  const wrong = [
    [{}, BODY],
    [signed(BODY, { key: KEYS[1] }), BODY],
    [signed(), Buffer.concat([BODY, Buffer.from(" ")])],
    [signed(BODY, { ageS: 301 }), BODY],
    [signed(BODY, { ageS: -301 }), BODY],
    [{ ...signed(), "webhook-timestamp": "now" }, BODY],
    [{ ...signed(), "webhook-signature": "v1,??? v1a,abc" }, BODY],
    [{ ...signed(), "webhook-id": "msg_2" }, BODY],
  ];
  for (const [headers, body] of wrong) {
    const taken = [];
    const answer = await new Receiver(SECRET).answer(headers, body, (event) => taken.push(event));
    assert.equal(answer.status, 401);
    assert.deepEqual(taken, []);
  }
  assert.ok(await new Receiver(SECRET, { toleranceS: 600 }).open(signed(BODY, { ageS: 301 }), BODY));
});

test("a receiver has no secret only if null is passed", async () => {
  for (const secrets of ["", "whsec_", "whsec_?", []]) assert.throws(() => new Receiver(secrets), SetupError);
  assert.deepEqual((await new Receiver(null).open({}, BODY)).events, EVENTS);
});

test("a duplicate is answered and not taken again", async () => {
  const receiver = new Receiver(null);
  const taken = [];
  for (let nth = 0; nth < 2; nth += 1) {
    assert.equal((await receiver.answer({}, BODY, (event) => taken.push(event))).status, 200);
  }
  const mixed = Buffer.from('[{"id":"a"},{"id":"d"},{"id":"d"},{"n":1},{"n":1}]');
  await receiver.answer({}, mixed, (event) => taken.push(event));
  assert.deepEqual(taken, [...EVENTS, { id: "d" }, { n: 1 }, { n: 1 }]);
  const cloud = ["/x", "/y", "/x"].map((source) => ({ specversion: "1.0", id: "e", source }));
  assert.equal((await receiver.open({}, Buffer.from(JSON.stringify(cloud)))).events.length, 2);
});

test("memory is bounded and forgets the oldest", () => {
  const seen = new SeenInMemory(2);
  for (const ids of [["a", "b"], ["a"], ["c"]]) seen.add(ids);
  assert.deepEqual(seen.known(["a", "b", "c"]), new Set(["a", "c"]));
});

test("each event has its own answer, and a failed event is taken the next time", async () => {
  const receiver = new Receiver(null);
  const taken = [];
  const take = async ({ id }) => {
    if (id === "b") throw new RefusedError("no such customer");
    if (id === "c" && taken.length < 2) throw new Error(`the database is away ${taken.push("c failed")}`);
    taken.push(id);
  };
  const answer = await receiver.answer({}, BODY, take);
  assert.equal(answer.status, 207);
  assert.deepEqual(JSON.parse(answer.body), { failed: [{ index: 1, status: 422 }, { index: 2, status: 503 }] });
  await receiver.answer({}, Buffer.from(JSON.stringify([EVENTS[0], EVENTS[2]])), take);
  assert.deepEqual(taken, ["a", "c failed", "c"]);
});

test("if no event could be taken, the answer asks Hifi to slow down", async () => {
  const answer = await new Receiver(null).answer({}, BODY, () => { throw new Error("away"); });
  assert.equal(answer.status, 503);
});

test("every format of a destination is read, and the signature covers the decompressed body", async () => {
  const lines = Buffer.from(EVENTS.map((event) => JSON.stringify(event)).join("\n"));
  assert.deepEqual((await new Receiver(null).open({ "content-type": "application/x-ndjson" }, lines)).events, EVENTS);
  assert.equal((await new Receiver(null).open({}, Buffer.from('{"id":"a"}'))).events.length, 1);
  const packed = { ...signed(), "content-encoding": "gzip" };
  assert.deepEqual((await new Receiver(SECRET).open(packed, gzipSync(BODY))).events, EVENTS);
  assert.deepEqual((await new Receiver(SECRET).open(packed, BODY)).events, EVENTS);
});

test("a body that cannot be read is refused", async () => {
  const wrong = [
    [{}, Buffer.from("no json"), 400],
    [{}, Buffer.from("[1]"), 400],
    [{ "content-encoding": "gzip" }, Buffer.from([0x1f, 0x8b, 1, 2]), 400],
    [{ "content-encoding": "gzip" }, gzipSync(Buffer.alloc(64_000_001)), 413],
    [{ "content-encoding": "zstd" }, Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), 503],
  ];
  for (const [headers, body, status] of wrong) {
    await assert.rejects(new Receiver(null).open(headers, body), (error) => {
      assert.ok(error instanceof DeliveryError);
      assert.equal(error.status, status);
      return true;
    });
  }
});

test("a handler serves node:http", async () => {
  const taken = [];
  const server = createServer(new Receiver(SECRET).handler((event) => taken.push(event)));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}/`;
  try {
    assert.equal((await fetch(url, { method: "POST", headers: signed(), body: BODY })).status, 200);
    assert.equal((await fetch(url, { method: "POST", body: BODY })).status, 401);
    assert.equal((await fetch(url)).status, 405);
  } finally {
    server.close();
  }
  assert.deepEqual(taken, EVENTS);
});
