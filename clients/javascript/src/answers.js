// Reads the meaning of a gateway's answer for each event of a request.
//
// Pure. It follows the gateway's contract (docs/api.md), and believes a yes only where it is one: a
// proxy's 200 is none.

// Longer than any gateway asks for; a date far ahead must not stop a sender.
export const RETRY_AFTER_S_MAX = 300;
// Nothing of the request was stored; any other status without a verdict leaves that open.
const NOTHING_STORED = new Set([408, 409, 425, 429, 503]);
// May be the fault of one event, or of how many there are.
const OF_THE_BATCH = new Set([400, 413, 422]);
// The same for every request until somebody changes something.
const OF_THE_SETUP = new Set([401, 403, 404, 405, 410, 421]);

/**
 * The answer about `count` events: `final` has a verdict by place, `again` the places to send again,
 * and all others were accepted. `header(name)` returns a header or null.
 */
export function readAnswer(status, header, body, count) {
  const said = membersOf(body);
  if (status === 204 && body === "") return reading();
  if (status === 200 && said.accepted === count && !said.rejected) return reading();
  const code = typeof said.code === "string" ? said.code : "";
  const waitS = retryAfterS(header);
  const problem = sentence(status, header, said);
  const listed = listedIn(said, count, { waitS, problem, code });
  if (listed !== null) return listed;
  const every = Array.from({ length: count }, (_, nth) => nth);
  const named = code || `status_${status}`;
  if (OF_THE_SETUP.has(status) || (status >= 300 && status < 400)) {
    return reading({ again: every, isSetup: true, problem, code: named });
  }
  if (OF_THE_BATCH.has(status) && code !== "idempotency_key_reused") {
    return reading({ isToBeHalved: true, problem, code: named });
  }
  if (status >= 400 && status < 500 && !NOTHING_STORED.has(status)) {
    const final = new Map(every.map((nth) => [nth, { fate: "rejected", code: named, reason: problem, pointer: "" }]));
    return reading({ final, problem, code: named });
  }
  // So may a yes that is not the gateway's: what stands before it says so while it is away.
  return reading({ again: every, mayBeStored: !NOTHING_STORED.has(status), waitS, problem, code: named });
}

export function reading(known = {}) {
  return {
    final: new Map(),
    again: [],
    mayBeStored: false,
    isToBeHalved: false,
    isSetup: false,
    waitS: null,
    problem: "",
    code: "",
    ...known,
  };
}

/** From the entry of each event that was not accepted; null unless they fit the request. */
function listedIn(said, count, { waitS, problem, code }) {
  if (!Array.isArray(said.results) || !Number.isInteger(said.accepted)) return null;
  const final = new Map();
  const again = [];
  let mayBeStored = false;
  let taken = 0;
  for (const entry of said.results) {
    const index = entry?.index;
    if (!Number.isInteger(index) || index < 0 || index >= count) return null;
    if (entry.status === "accepted") taken += 1;
    else if (entry.status === "rejected") {
      const text = (name) => String(entry[name] ?? "");
      final.set(index, { fate: "rejected", code: text("code"), reason: text("detail"), pointer: text("pointer") });
    } else {
      again.push(index);
      mayBeStored ||= entry.status !== "retry";
    }
  }
  if (final.size + again.length !== said.results.length - taken) return null;
  if (said.accepted + final.size + again.length !== count) return null;
  return reading({ final, again, mayBeStored, waitS, problem: again.length ? problem : "", code });
}

/** One clear sentence for a person. */
function sentence(status, header, said) {
  const where = said.code ? `${status} ${said.code}` : String(status);
  const detail = String(said.detail ?? said.title ?? "").replace(/\.$/, "");
  if (status === 401) return `The gateway does not know this key (${where}): ${detail || "give another"}.`;
  if (status === 403) return `The key may not do this (${where}): ${detail || "use another key"}.`;
  if (said.code === "unknown_stream") {
    return `The stream is not there (${where}): ${detail}; \`hifi streams put\` makes it.`;
  }
  if (status >= 300 && status < 400) {
    return `The address leads elsewhere (${where}): give the one of ${header("location") ?? "somewhere else"}.`;
  }
  if (said.code) return `The gateway says ${where}: ${detail}.`;
  if ("request_id" in said) return `Not all events were taken (${where}).`;
  if (status >= 500 || NOTHING_STORED.has(status)) {
    return `What answers in front of the gateway says ${where}: it may be away.`;
  }
  return `What answers there is no Hifi gateway (${where}): look at the address.`;
}

function membersOf(body) {
  try {
    const said = JSON.parse(body);
    return said !== null && typeof said === "object" && !Array.isArray(said) ? said : {};
  } catch {
    return {};
  }
}

/** `Retry-After` in seconds; a date counts from the answer's own, as clocks differ. */
function retryAfterS(header) {
  const text = (header("retry-after") ?? "").trim();
  if (text === "") return null;
  const waitS = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.parse(header("date") ?? "")) / 1000;
  return Number.isNaN(waitS) ? null : Math.min(Math.max(waitS, 0), RETRY_AFTER_S_MAX);
}
