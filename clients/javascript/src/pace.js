// Holds back all requests of a sender while the gateway is away or has asked for a pause.

const FIRST_MS = 100;
const LONGEST_MS = 5_000;

export class Pace {
  /** A sentence about what is wrong just now. */
  problem = "";
  #notBeforeMs = 0;
  // The gateway's requested pause holds even if another request succeeds meanwhile.
  #askedUntilMs = 0;
  #failures = 0;
  #isEnded = false;
  #sleeping = new Set();

  /** Wait for the turn; false if the sender ends, or `untilMs` has come. */
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

  /** Wait longer each time, or as long as was asked for; whether this problem is news. */
  failed(problem, waitS) {
    // So that many senders do not come back in the same moment.
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
