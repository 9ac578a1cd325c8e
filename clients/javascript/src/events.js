// Turns an event into a line of JSON with an id, which stays the same for every retry.

import { NotAnEventError } from "./errors.js";

// The gateway's default limit for one event (HIFI_GATEWAY_EVENT_BYTES_MAX).
export const EVENT_BYTES_MAX = 1_000_000;
const encoder = new TextEncoder();
// An id has one random part and a count, so no other process or page makes the same ids.
const begin = randomHex(12);
let count = 0;

/** Return this many random bytes in hexadecimal. They are not secret, so a weak source is good enough. */
export function randomHex(bytes) {
  const random = new Uint8Array(bytes);
  // Node 18 has no global crypto.
  if (globalThis.crypto) crypto.getRandomValues(random);
  else random.forEach((_, nth) => (random[nth] = Math.floor(Math.random() * 256)));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the event's id and line, as bytes; an event given as text keeps its bytes except line breaks. */
export function lineOf(event, { id, key } = {}) {
  const members = typeof event === "string" ? parsed(event) : event;
  if (members === null || typeof members !== "object" || Array.isArray(members)) {
    throw new NotAnEventError(`An event must be an object: ${String(event).slice(0, 100)}`);
  }
  const added = {};
  if (id !== undefined) added.id = id;
  else if (members.id === undefined || members.id === null) added.id = `${begin}-${(count += 1).toString(16)}`;
  const name = added.id ?? members.id;
  if (typeof name !== "string") {
    throw new NotAnEventError(`The id of an event must be a text, not ${JSON.stringify(name)}.`);
  }
  if (key !== undefined) added.partitionkey = key;
  const isKept = typeof event === "string" && Object.keys(added).length === 0;
  // JSON has line breaks only between its tokens.
  const text = isKept ? event.replace(/[\r\n]/g, " ") : written({ ...members, ...added });
  const line = encoder.encode(text);
  if (line.length > EVENT_BYTES_MAX) {
    throw new NotAnEventError(
      `The event has ${line.length} bytes, but may have only ${EVENT_BYTES_MAX}: send less, or a link to the rest.`,
    );
  }
  return { id: name, line };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new NotAnEventError(`This is not JSON (${error.message}): ${text.slice(0, 100)}`);
  }
}

function written(members) {
  try {
    return JSON.stringify(members);
  } catch (error) {
    throw new NotAnEventError(`This cannot be written as JSON (${error.message}).`);
  }
}
