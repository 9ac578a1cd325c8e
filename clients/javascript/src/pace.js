// Holds back all requests of a sender while the gateway is down or has asked for a pause.

const FIRST_MS = 100;
const LONGEST_MS = 5_000;

export class Pace {
  /** The current problem in a sentence; empty if there is none. */
  problem = "";
  #notBeforeMs = 0;
  // A pause that the gateway asked for lasts even if another request succeeds.
  #askedUntilMs = 0;
  #failures = 0;
  #isEnded = false;
  #sleeping = new Set();

  /** Wait until a request may be sent; return false at the sender's end, or at `untilMs`. */
  async turn(untilMs) {
    while (!this.#isEnded) {
      const nowMs = performance.now();
      if (nowMs >= untilMs) return false;
      const leftMs = Math.min(this.#notBeforeMs, untilMs) - nowMs;
      if (leftMs <= 0) return true;
      await this.#sleep(leftMs);
    }
    return false;
  }

  wentWell() {
    if (this.problem === "") return;
    this.problem = "";
    this.#failures = 0;
    this.#notBeforeMs = this.#askedUntilMs;
    this.#wake();
  }

  /** Pause longer each time, or as the gateway asks; return whether the problem is new. */
  failed(problem, waitS) {
    // Random, so that many senders do not retry at the same moment.
    let pauseMs = Math.min(FIRST_MS * 2 ** Math.min(this.#failures, 10), LONGEST_MS) * (0.5 + Math.random() / 2);
    const nowMs = performance.now();
    if (waitS !== null) {
      pauseMs = Math.max(waitS * 1000, this.#failures > 0 ? pauseMs : 0);
      this.#askedUntilMs = Math.max(this.#askedUntilMs, nowMs + waitS * 1000);
    }
    this.#failures += 1;
    this.#notBeforeMs = Math.max(this.#notBeforeMs, nowMs + pauseMs);
    const isNews = problem !== this.problem;
    this.problem = problem;
    return isNews;
  }

  end() {
    this.#isEnded = true;
    this.#wake();
  }

  #sleep(ms) {
    return new Promise((resolve) => {
      const sleeper = { resolve, timer: setTimeout(() => { this.#sleeping.delete(sleeper); resolve(); }, ms) };
      this.#sleeping.add(sleeper);
    });
  }

  #wake() {
    for (const { resolve, timer } of this.#sleeping) {
      clearTimeout(timer);
      resolve();
    }
    this.#sleeping.clear();
  }
}
