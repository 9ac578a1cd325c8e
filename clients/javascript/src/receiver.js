// Receives deliveries of Hifi: checks them, skips duplicates, and answers for each event.

import { gunzip } from "node:zlib";
import { promisify } from "node:util";

import { DeliveryError, RefusedError } from "./errors.js";
import { Verifier } from "./signatures.js";

// A request has at most the destination's `batch_bytes_max`, which may be up to 64 MB.
const BODY_BYTES_MAX = 64_000_000;
// The status for an event that Hifi should send again, and for one that it should not.
const LATER = 503;
const NEVER = 422;
const unpack = promisify(gunzip);
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Remembers the newest ids, for this process only. Your own memory needs the same two methods. */
export class SeenInMemory {
  #ids = new Set();
  #countMax;

  constructor(countMax = 100_000) {
    this.#countMax = countMax;
  }

  /** Return the ids that were added before. */
  known(ids) {
    return new Set(ids.filter((id) => this.#ids.has(id)));
  }

  /** Add the ids of taken events. */
  add(ids) {
    for (const id of ids) {
      this.#ids.delete(id);
      this.#ids.add(id);
    }
    for (const oldest of this.#ids) {
      if (this.#ids.size <= this.#countMax) return;
      this.#ids.delete(oldest);
    }
  }
}

/** One request of Hifi. Events that were taken before are not in `events`. */
class Delivery {
  #places;
  #names;
  #count;
  #seen;

  constructor(headers, found, places, names, count, seen) {
    this.events = found;
    this.id = headers["webhook-id"] ?? "";
    this.stream = headers["hifi-stream"] ?? "";
    this.attempt = Number(headers["hifi-attempt"] ?? 1);
    // Whether Hifi says that an earlier copy may have arrived.
    this.isMaybeDuplicate = "hifi-maybe-duplicate" in headers;
    this.#places = places;
    this.#names = names;
    this.#count = count;
    this.#seen = seen;
  }

  /**
   * Return the answer. `failed` maps positions in `events` to statuses of failed events: with 422 an
   * event becomes a dead letter; with 503 Hifi sends it again.
   */
  async reply(failed = new Map()) {
    await this.#seen.add(this.#names.filter((name, nth) => name !== null && !failed.has(nth)));
    if (failed.size === 0) return reply(200, { taken: this.events.length });
    const statuses = [...failed.values()];
    if (failed.size === this.#count && statuses.every((status) => status === LATER)) {
      // Everything failed, so answer for the whole request: Hifi then slows down.
      return reply(LATER, { detail: "No event could be taken now." });
    }
    return reply(207, { failed: [...failed].map(([nth, status]) => ({ index: this.#places[nth], status })) });
  }
}

/** Receives for one destination, with its `secrets`; null accepts unsigned requests, from anybody. */
export class Receiver {
  #verifier;
  #seen;

  constructor(secrets, { seen = new SeenInMemory(), toleranceS = 300 } = {}) {
    this.#verifier = secrets === null ? null : new Verifier([secrets].flat(), toleranceS);
    this.#seen = seen;
  }

  /** Return a request's new events; throw DeliveryError if it is not a valid delivery. Header names are in lower case. */
  async open(headers, packed) {
    const body = await unpacked(headers["content-encoding"] ?? "", packed);
    this.#verifier?.verify(headers, body, Date.now() / 1000);
    const events = eventsIn(headers["content-type"] ?? "", decoder.decode(body));
    const names = events.map(nameOf);
    const known = await this.#seen.known(names.filter((name) => name !== null));
    const places = [];
    const met = new Set();
    for (const [nth, name] of names.entries()) {
      if (name === null || !(known.has(name) || met.has(name))) places.push(nth);
      met.add(name);
    }
    const [found, called] = [places.map((nth) => events[nth]), places.map((nth) => names[nth])];
    return new Delivery(headers, found, places, called, events.length, this.#seen);
  }

  /**
   * Pass each new event to `take`, one after the other, and return the answer. If `take` throws, Hifi
   * sends the event again; after RefusedError it is a dead letter.
   */
  async answer(headers, body, take) {
    let delivery;
    try {
      delivery = await this.open(headers, body);
    } catch (error) {
      if (!(error instanceof DeliveryError)) throw error;
      console.warn(`hifi: a delivery was refused: ${error.message}`);
      return reply(error.status, { detail: error.message });
    }
    const failed = new Map();
    for (const [nth, event] of delivery.events.entries()) {
      try {
        await take(event);
      } catch (error) {
        const isRefused = error instanceof RefusedError;
        failed.set(nth, isRefused ? NEVER : LATER);
        if (!isRefused) console.error("hifi: an event was not taken; it will be sent again:", error);
      }
    }
    return delivery.reply(failed);
  }

  /** A handler for Express, and for node:http: `app.post("/hifi", receiver.handler(take))`. */
  handler(take) {
    return async (request, response) => {
      let answer;
      try {
        answer = await this.answer(request.headers, await bodyOf(request), take);
      } catch (error) {
        const status = error instanceof DeliveryError ? error.status : LATER;
        console.error("hifi: a delivery was not answered:", error);
        answer = reply(status, { detail: error.message });
      }
      response.writeHead(answer.status, answer.headers).end(answer.body);
    };
  }
}

function reply(status, said) {
  const body = JSON.stringify(said);
  return { status, headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) }, body };
}

async function bodyOf(request) {
  if (request.method !== "POST") throw new DeliveryError(405, "Deliveries are POST requests.");
  // express.raw() has read the body.
  if (Buffer.isBuffer(request.body)) return request.body;
  if (request.readableEnded) {
    throw new Error("Other code has read the body already: put the receiver before express.json().");
  }
  const parts = [];
  let bytes = 0;
  for await (const part of request) {
    bytes += part.length;
    if (bytes > BODY_BYTES_MAX) throw new DeliveryError(413, `The body has more than ${BODY_BYTES_MAX} bytes.`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function eventsIn(contentType, text) {
  let found;
  try {
    if (contentType.split(";")[0].trim().toLowerCase() === "application/x-ndjson") {
      found = text.split("\n").filter((line) => line.trim() !== "").map((line) => JSON.parse(line));
    } else {
      found = [JSON.parse(text)].flat();
    }
  } catch (error) {
    throw new DeliveryError(400, `The body contains no events (${error.message}).`);
  }
  if (found.some((event) => event === null || typeof event !== "object" || Array.isArray(event))) {
    throw new DeliveryError(400, "An event must be a JSON object.");
  }
  return found;
}

/** Return an event's identity; for CloudEvents it includes the source. */
function nameOf(event) {
  if (typeof event.id !== "string") return null;
  return "specversion" in event ? `${event.source} ${event.id}` : event.id;
}

/** Return the signed body. Some frameworks decompress it already, and keep the header. */
async function unpacked(encoding, body) {
  const begins = (...bytes) => bytes.every((byte, nth) => body[nth] === byte);
  if (encoding === "gzip" && begins(0x1f, 0x8b)) {
    try {
      return await unpack(body, { maxOutputLength: BODY_BYTES_MAX });
    } catch (error) {
      const status = error.code === "ERR_BUFFER_TOO_LARGE" ? 413 : 400;
      throw new DeliveryError(status, `The body is not valid gzip, or is too large (${error.message}).`);
    }
  }
  if (encoding === "zstd" && begins(0x28, 0xb5, 0x2f, 0xfd)) {
    // Not 4xx, which would make the events dead letters before somebody corrects the setting.
    throw new DeliveryError(LATER, "This receiver supports only gzip: set the destination to that.");
  }
  return body;
}
