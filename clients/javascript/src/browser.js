// Sends events from a page as in Node; when the page closes, it sends the events without a fate in a beacon.

import { Sender as AnySender } from "./sender.js";

export * from "./errors.js";

// Below the gateway's limit for a beacon, and browsers' limit for all of a page's beacons (64 KiB).
const BEACON_BYTES_MAX = 65_000;
const REASON = "The page was closed. The event was sent as a beacon if there was room, and beacons get no answer.";
const encoder = new TextEncoder();

/** A sender for pages. Its `key` must be of kind `browser`, which a page may show. */
export class Sender extends AnySender {
  #isListening = true;
  #leave = () => this.#sendBeacons();
  #hide = () => {
    if (document.visibilityState === "hidden") this.flush();
  };

  constructor(url, stream, options = {}) {
    super(url, stream, options);
    addEventListener("pagehide", this.#leave);
    document.addEventListener("visibilitychange", this.#hide);
  }

  async close(options) {
    await super.close(options);
    if (!this.#isListening) return;
    this.#isListening = false;
    removeEventListener("pagehide", this.#leave);
    document.removeEventListener("visibilitychange", this.#hide);
  }

  #sendBeacons() {
    const lines = [];
    let bytes = 2;
    for (const line of this.handOver(REASON)) {
      bytes += encoder.encode(line).length + 1;
      if (bytes > BEACON_BYTES_MAX) break;
      lines.push(line);
    }
    if (lines.length === 0) return;
    const address = `${this.address}/beacon?key=${encodeURIComponent(this.options.key)}`;
    // As text, which a browser sends without a preflight.
    navigator.sendBeacon(address, `[${lines.join(",")}]`);
  }
}
