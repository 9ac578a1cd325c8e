// Reports the outcome of each event; one object has those of all events of a batch.

/** The fates of one batch's events. */
export class Fates {
  #isAccepted = false;
  // Outcomes of single events, by their place in the batch.
  #told = new Map();
  #waiting = [];

  /** Return the final outcome, or null while there is none. */
  outcome(nth, id) {
    const told = this.#told.get(nth);
    if (told !== undefined) return told;
    return this.#isAccepted ? { id, fate: "accepted", code: "", reason: "", pointer: "" } : null;
  }

  /** Mark all events without an outcome as accepted. */
  allAccepted() {
    this.#isAccepted = true;
    this.#say();
  }

  tell(outcomes) {
    for (const [nth, outcome] of outcomes) this.#told.set(nth, outcome);
    this.#say();
  }

  wait(nth, id) {
    const found = this.outcome(nth, id);
    if (found !== null) return Promise.resolve(found);
    return new Promise((resolve) => this.#waiting.push({ nth, id, resolve }));
  }

  #say() {
    this.#waiting = this.#waiting.filter(({ nth, id, resolve }) => {
      const found = this.outcome(nth, id);
      if (found !== null) resolve(found);
      return found === null;
    });
  }
}

/** One event that a sender has taken: `await sent.outcome()`. */
export class Sent {
  #fates;
  #nth;

  constructor(id, fates, nth) {
    this.id = id;
    this.#fates = fates;
    this.#nth = nth;
  }

  /**
   * Wait for the outcome: `fate` is "accepted" (Kafka has it), "rejected" (Hifi refuses it),
   * "not_stored" (time was up, and it is not in the log) or "unknown" (time was up, and it may be in the log).
   */
  outcome() {
    return this.#fates.wait(this.#nth, this.id);
  }

  /** The outcome if it is known already; null otherwise. */
  get known() {
    return this.#fates.outcome(this.#nth, this.id);
  }
}
