// Reads a gateway's answer for each event of a request.
//
// Pure. It follows the gateway's contract (docs/api.md), and accepts a success only from a gateway: a
// proxy's 200 does not count.

// Longer than any gateway asks for, so that a date in the far future does not stop a sender.
export const RETRY_AFTER_S_MAX = 300;
// Nothing of the request was stored. With any other status, events may have been stored, unless the answer says otherwise.
const NOTHING_STORED = new Set([408, 409, 425, 429, 503]);
// One event may be at fault, or the size of the batch.
const OF_THE_BATCH = new Set([400, 413, 422]);
// Every request gets the same answer until somebody changes a setting.
const OF_THE_SETUP = new Set([401, 403, 404, 405, 410, 421]);

/**
 * Read the answer about `count` events: `final` has verdicts by place, `again` the places to send
 * again, and all other events were accepted. `header(name)` returns a header or null.
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
  // This includes a success from another server, such as a proxy while the gateway is down.
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

/** Read the entries of events that were not accepted; null unless they match the request. */
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

/** Return a sentence about the answer for people. */
function sentence(status, header, said) {
  const where = said.code ? `${status} ${said.code}` : String(status);
  const detail = String(said.detail ?? said.title ?? "").replace(/\.$/, "");
  if (status === 401) return `The gateway does not know this key (${where}): ${detail || "use another key"}.`;
  if (status === 403) return `The key may not do this (${where}): ${detail || "use another key"}.`;
  if (said.code === "unknown_stream") {
    return `The stream does not exist (${where}): ${detail}; \`hifi streams put\` makes it.`;
  }
  if (status >= 300 && status < 400) {
    return `The address redirects (${where}): use the address of ${header("location") ?? "somewhere else"}.`;
  }
  if (said.code) return `The gateway says ${where}: ${detail}.`;
  if ("request_id" in said) return `Not all events were accepted (${where}).`;
  if (status >= 500 || NOTHING_STORED.has(status)) {
    return `The server before the gateway answers ${where}: the gateway may be down.`;
  }
  return `The server is not a Hifi gateway (${where}): check the address.`;
}

function membersOf(body) {
  try {
    const said = JSON.parse(body);
    return said !== null && typeof said === "object" && !Array.isArray(said) ? said : {};
  } catch {
    return {};
  }
}

/** Return `Retry-After` in seconds; a date is compared with the answer's own `Date`, as clocks differ. */
function retryAfterS(header) {
  const text = (header("retry-after") ?? "").trim();
  if (text === "") return null;
  const waitS = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.parse(header("date") ?? "")) / 1000;
  return Number.isNaN(waitS) ? null : Math.min(Math.max(waitS, 0), RETRY_AFTER_S_MAX);
}
