// Reads each kind of answer of the gateway, with the cases that all clients share.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { readAnswer } from "../src/answers.js";

const cases = JSON.parse(readFileSync(new URL("../../contract/answers.json", import.meta.url)));

for (const { what, status, headers, body, count, want } of cases) {
  test(`${status}: ${what}`, () => {
    const read = readAnswer(status, (name) => headers[name] ?? null, body, count);
    assert.ok(read.problem.includes(want.says), read.problem);
    assert.equal(read.problem === "", want.says === "");
    assert.deepEqual([...read.final.keys()].sort(), want.final);
    assert.deepEqual(read.again, want.again);
    assert.equal(read.mayBeStored, want.may_be_stored);
    assert.equal(read.isSetup, want.is_setup);
    assert.equal(read.isToBeHalved, want.is_to_be_halved);
    assert.equal(read.waitS, want.wait_s);
  });
}
