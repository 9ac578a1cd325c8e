// Sends events to a stream, in Node and browsers, and makes each event's fate available.

import { readAnswer, reading } from "./answers.js";
import { ClosedError, FullError, GatewayError, SetupError } from "./errors.js";
import { lineOf, randomHex } from "./events.js";
import { Fates, Sent } from "./fates.js";
import { Pace } from "./pace.js";

const STREAM = /^[a-z0-9][a-z0-9_-]{0,99}$/;
// The memory that an event takes besides its bytes.
const OVERHEAD_BYTES = 64;
// The gateway refuses a ratio above 100 as a bomb (HIFI_GATEWAY_RATIO_MAX); from 90 on, a body is sent uncompressed.
const RATIO_MAX = 90;
const PACKED_BYTES_MIN = 1_000;
const LINE_BREAK = 10;
// Node's codes for a connection that could not be made; browsers hide them.
const NEVER_SENT = new Set(
  ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"],
);
const decoder = new TextDecoder();

const DEFAULTS = Object.freeze({
  // The API key. Default in Node: the environment's HIFI_API_KEY.
  key: globalThis.process?.env?.HIFI_API_KEY ?? "",
  // "gzip" or null.
  compression: null,
  // A batch is sent when it reaches this many events or bytes, or this age.
  batchCountMax: 500,
  batchBytesMax: 1_000_000,
  lingerMs: 50,
  // Requests in flight at once; 1 keeps the order of events.
  parallelMax: 4,
  // The memory limit for events. When memory is full, `send` throws FullError.
  memoryBytesMax: 32_000_000,
  // How long an event is tried before its fate is "not_stored" or "unknown".
  giveUpMs: 120_000,
  // How long a request may take.
  timeoutMs: 30_000,
  // Whether the gateway remembers each request for a day, to store a repeated request only once.
  isIdempotent: false,
  // Called with each event's outcome.
  onOutcome: null,
  // Called with a sentence when there is a new problem.
  onProblem: (problem) => console.warn(`hifi: ${problem}`),
});

export class Sender {
  #url;
  #path;
  #options;
  #pace = new Pace();
  #open = null;
  #sealed = [];
  #lingering = null;
  #underWay = new Set();
  #bytes = 0;
  #isClosed = false;
  #waiting = [];

  constructor(url, stream, options = {}) {
    for (const name of Object.keys(options)) {
      if (!(name in DEFAULTS)) {
        throw new SetupError(`A sender has no option ${name}; known options: ${Object.keys(DEFAULTS).join(", ")}.`);
      }
    }
    this.#options = { ...DEFAULTS, ...options };
    this.#url = addressOf(url);
    if (!STREAM.test(stream)) {
      throw new SetupError(`'${stream}' is not a stream name: use up to 100 of a to z, 0 to 9, - and _.`);
    }
    if (![null, "gzip"].includes(this.#options.compression)) {
      throw new SetupError(`compression must be "gzip" or null, not ${JSON.stringify(this.#options.compression)}.`);
    }
    this.#path = `/v1/streams/${stream}`;
  }

  /** The current problem in a sentence; empty if there is none. */
  get problem() {
    return this.#pace.problem;
  }

  get options() {
    return this.#options;
  }

  /** The address for this stream's requests. */
  get address() {
    return this.#url + this.#path;
  }

  /**
   * Take an event; get its outcome later with `await sent.outcome()`. Throw FullError while memory is
   * full. Events with the same `key` go to one Kafka partition, in order.
   */
  send(event, { id, key } = {}) {
    if (this.#isClosed) throw new ClosedError("The sender is closed: make another one.");
    const { id: name, line } = lineOf(event, { id, key });
    const cost = line.length + OVERHEAD_BYTES;
    if (this.#bytes > 0 && this.#bytes + cost > this.#options.memoryBytesMax) {
      throw new FullError(
        `Memory is full: ${this.#bytes} bytes of events are waiting, and` +
          ` ${this.#options.memoryBytesMax} are allowed. Wait with \`await sender.room()\`.`,
      );
    }
    if (this.#open !== null && this.#open.lineBytes + line.length > this.#options.batchBytesMax) this.#seal();
    if (this.#open === null) {
      this.#open = { lines: [], ids: [], places: null, fates: new Fates(), lineBytes: 0, bornMs: performance.now() };
      this.#lingering = setTimeout(() => this.#seal(), this.#options.lingerMs);
    }
    const batch = this.#open;
    const nth = batch.lines.length;
    batch.lines.push(line);
    batch.ids.push(name);
    batch.lineBytes += line.length + 1;
    this.#bytes += cost;
    if (nth + 1 >= this.#options.batchCountMax || batch.lineBytes >= this.#options.batchBytesMax) this.#seal();
    return new Sent(name, batch.fates, nth);
  }

  /** Wait until memory is at most half full. */
  room() {
    return this.#until(() => this.#bytes * 2 <= this.#options.memoryBytesMax);
  }

  /** Send all waiting events, and wait until each has its fate. */
  flush() {
    this.#seal();
    return this.#until(() => this.#bytes === 0);
  }

  /** Send the remaining events for up to `withinMs`; then the rest gets its final fate, too. */
  async close({ withinMs = 10_000 } = {}) {
    this.#isClosed = true;
    let timer;
    const timeIsUp = new Promise((resolve) => (timer = setTimeout(resolve, withinMs)));
    await Promise.race([this.flush(), timeIsUp]);
    clearTimeout(timer);
    this.#pace.end();
    for (const { abort } of this.#underWay) abort.abort();
    await this.flush();
  }

  /** Ask the gateway whether it would accept an event; throw GatewayError if not. */
  async check() {
    const read = await this.#exchange(new TextEncoder().encode('{"id":"rehearsal"}'), 1, "?dry_run=true");
    if (read.isRehearsed) return;
    throw new GatewayError(this.#about(read));
  }

  /**
   * Return all events without a fate as lines, and stop sending them: for a closing page. Each then
   * has the fate "unknown".
   */
  handOver(reason) {
    this.#seal();
    const batches = [...this.#underWay, ...this.#sealed];
    this.#sealed = [];
    const lines = [];
    for (const batch of batches) {
      batch.isHandedOver = true;
      for (const [nth, line] of batch.lines.entries()) {
        const place = batch.places === null ? nth : batch.places[nth];
        if (batch.fates.outcome(place, batch.ids[nth]) === null) lines.push(decoder.decode(line));
      }
      batch.abort?.abort();
      if (!this.#underWay.has(batch)) this.#release(batch);
      this.#tellAll(batch, { fate: "unknown", code: "", reason, pointer: "" });
    }
    return lines;
  }

  #seal() {
    clearTimeout(this.#lingering);
    if (this.#open !== null) this.#sealed.push(this.#open);
    this.#open = null;
    this.#post();
  }

  #post() {
    while (this.#sealed.length > 0 && this.#underWay.size < this.#options.parallelMax) {
      const batch = this.#sealed.shift();
      this.#underWay.add(batch);
      this.#settle(batch)
        .catch((error) => {
          // After a bug here or in the caller's callback, the other batches continue.
          this.#options.onProblem(`A batch was not sent: ${error.stack}`);
          this.#tellAll(batch, { fate: "unknown", code: "", reason: String(error), pointer: "" });
        })
        .finally(() => {
          this.#underWay.delete(batch);
          this.#release(batch);
          this.#post();
        });
    }
  }

  #release(batch) {
    for (const line of batch.lines) this.#bytes -= line.length + OVERHEAD_BYTES;
    this.#waiting = this.#waiting.filter(({ holds, resolve }) => {
      const isSo = holds();
      if (isSo) resolve();
      return !isSo;
    });
  }

  #until(holds) {
    if (holds()) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ holds, resolve }));
  }

  /** Try until every event of a batch has its fate. */
  async #settle(batch) {
    batch.abort = new AbortController();
    const untilMs = batch.bornMs + this.#options.giveUpMs;
    const waiting = [{ part: batch, key: this.#newKey(), mayBeStored: false }];
    while (waiting.length > 0) {
      let { part, key, mayBeStored } = waiting.pop();
      let last = null;
      let isDone = false;
      while (!isDone && (await this.#pace.turn(untilMs)) && !batch.isHandedOver) {
        const read = await this.#attempt(part, key, batch.abort.signal);
        last = read;
        mayBeStored ||= read.mayBeStored;
        if (read.isToBeHalved && part.lines.length > 1) {
          const middle = Math.ceil(part.lines.length / 2);
          const every = part.lines.map((_, nth) => nth);
          for (const half of [every.slice(middle), every.slice(0, middle)]) {
            waiting.push({ part: partOf(part, half), key: this.#newKey(), mayBeStored });
          }
          isDone = true;
        } else if (read.isSetup) {
          this.#giveUp(part, read, mayBeStored);
          isDone = true;
        } else if (read.again.length === 0) {
          this.#tell(part, read);
          isDone = true;
        } else if (read.again.length < part.lines.length && key === null) {
          // An Idempotency-Key is for one request, so with a key the batch must stay whole.
          this.#tell(part, read);
          part = partOf(part, read.again);
        }
      }
      if (!isDone && !batch.isHandedOver) this.#giveUp(part, last, mayBeStored);
    }
  }

  async #attempt(part, key, signal) {
    const read = await this.#exchange(joined(part.lines), part.lines.length, "", key, signal);
    if (read.again.length === 0) {
      // Any answer proves that the gateway works, whatever the fate of these events.
      this.#pace.wentWell();
    } else {
      const about = this.#about(read);
      if (this.#pace.failed(about, read.waitS)) this.#options.onProblem(about);
    }
    return read;
  }

  async #exchange(body, count, query, key = null, signal = undefined) {
    const headers = { "content-type": "application/x-ndjson", accept: "application/json" };
    if (this.#options.key) headers.authorization = `Bearer ${this.#options.key}`;
    if (key !== null) headers["idempotency-key"] = `"${key}"`;
    const every = Array.from({ length: count }, (_, nth) => nth);
    const timeout = new AbortController();
    const timer = setTimeout(() => timeout.abort(new Error("no answer in time")), this.#options.timeoutMs);
    signal?.addEventListener("abort", () => timeout.abort(), { once: true });
    let isSent = false;
    try {
      const packed = await this.#packed(body);
      if (packed !== body) headers["content-encoding"] = "gzip";
      const { signal: ends } = timeout;
      // A page's cookies are not for the gateway.
      const request = { method: "POST", headers, body: packed, redirect: "manual", credentials: "omit", signal: ends };
      isSent = true;
      const answer = await fetch(`${this.address}/events${query}`, request);
      const text = await answer.text();
      // Browsers hide everything about a redirect except that there is one.
      const status = answer.type === "opaqueredirect" ? 308 : answer.status;
      const read = readAnswer(status, (name) => answer.headers.get(name), text, count);
      return query === "" ? read : { ...read, isRehearsed: status === 200 && text.includes('"dry_run":true') };
    } catch (error) {
      const why = error.cause?.message || error.cause?.code || error.message;
      const isRefused = NEVER_SENT.has(error.cause?.code);
      const problem = isRefused
        ? `Cannot connect to ${this.#url} (${why}): is the gateway running?`
        : `${this.#url} did not answer (${why}).`;
      return reading({ again: every, mayBeStored: isSent && !isRefused, problem });
    } finally {
      clearTimeout(timer);
    }
  }

  async #packed(body) {
    if (this.#options.compression === null || body.length < PACKED_BYTES_MIN) return body;
    const stream = new Blob([body]).stream().pipeThrough(new CompressionStream("gzip"));
    const small = new Uint8Array(await new Response(stream).arrayBuffer());
    return small.length < body.length && small.length * RATIO_MAX > body.length ? small : body;
  }

  #newKey() {
    return this.#options.isIdempotent ? randomHex(16) : null;
  }

  #about(read) {
    return read.problem.includes(this.#url) ? read.problem : `${this.#url}: ${read.problem}`;
  }

  #tell(part, read) {
    const final = new Map(read.final);
    if (read.isToBeHalved) {
      final.set(0, { fate: "rejected", code: read.code, reason: this.#about(read), pointer: "" });
    }
    const again = new Set(read.again);
    const accepted = { fate: "accepted", code: "", reason: "", pointer: "" };
    if (final.size === 0 && again.size === 0 && part.places === null) {
      part.fates.allAccepted();
      if (this.#options.onOutcome !== null) for (const id of part.ids) this.#options.onOutcome({ id, ...accepted });
      return;
    }
    this.#say(part, (nth) => (again.has(nth) ? null : (final.get(nth) ?? accepted)));
  }

  #giveUp(part, last, mayBeStored) {
    if (last !== null && !last.isSetup && last.again.length < part.lines.length) {
      this.#tell(part, last);
      part = partOf(part, last.again);
    }
    let fate = mayBeStored ? "unknown" : "not_stored";
    if (last?.isSetup && !mayBeStored) fate = "rejected";
    const reason = last === null ? this.#pace.problem || "The sender was closed." : this.#about(last);
    this.#tellAll(part, { fate, code: last?.code ?? "", reason, pointer: "" });
  }

  #tellAll(part, verdict) {
    this.#say(part, () => verdict);
  }

  #say(part, verdictOf) {
    const outcomes = new Map();
    for (const [nth, id] of part.ids.entries()) {
      const verdict = verdictOf(nth);
      const place = part.places === null ? nth : part.places[nth];
      if (verdict !== null && part.fates.outcome(place, id) === null) outcomes.set(place, { id, ...verdict });
    }
    part.fates.tell(outcomes);
    if (this.#options.onOutcome !== null) for (const outcome of outcomes.values()) this.#options.onOutcome(outcome);
  }
}

function partOf(part, chosen) {
  return {
    lines: chosen.map((nth) => part.lines[nth]),
    ids: chosen.map((nth) => part.ids[nth]),
    places: chosen.map((nth) => (part.places === null ? nth : part.places[nth])),
    fates: part.fates,
  };
}

function joined(lines) {
  const body = new Uint8Array(lines.reduce((bytes, line) => bytes + line.length + 1, -1));
  let offset = 0;
  for (const line of lines) {
    if (offset > 0) body[offset - 1] = LINE_BREAK;
    body.set(line, offset);
    offset += line.length + 1;
  }
  return body;
}

function addressOf(url) {
  let parts;
  try {
    parts = new URL(url);
  } catch {
    parts = null;
  }
  if (parts === null || !["http:", "https:"].includes(parts.protocol)) {
    const examples = "http://127.0.0.1:8080 or https://hifi.example";
    throw new SetupError(`'${url}' is not an address of a gateway: write it as ${examples}.`);
  }
  if (parts.username || parts.search || parts.hash) {
    throw new SetupError(`'${url}' is more than an address: pass the key as an option.`);
  }
  return (parts.origin + parts.pathname).replace(/\/+$/, "").replace(/\/v1$/, "");
}
