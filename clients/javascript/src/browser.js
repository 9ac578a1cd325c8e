// Sends events from a page as in Node; events without a fate leave a closing page as a beacon.

import { Sender as AnySender } from "./sender.js";

export * from "./errors.js";

// The limit of a gateway for a beacon, and of browsers for all beacons of a closing page (64 KiB).
const BEACON_BYTES_MAX = 65_000;
const REASON = "The page went. The event left as a beacon, if there was room: nobody answers those.";
const encoder = new TextEncoder();

/** `key` is one of kind `browser`, which may stand in a page. */
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
    // As a text, for which a browser asks nobody before it sends it.
    navigator.sendBeacon(address, `[${lines.join(",")}]`);
  }
}
