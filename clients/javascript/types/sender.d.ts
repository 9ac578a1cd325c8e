/** Whether Kafka has the event ("accepted"), Hifi refuses it ("rejected"), or time was up. */
export type Fate = "accepted" | "rejected" | "not_stored" | "unknown";

/** The outcome of one event. */
export interface Outcome {
  id: string;
  fate: Fate;
  /** The gateway's error code; empty if there is none. */
  code: string;
  reason: string;
  /** The member of the event that is wrong, as a JSON Pointer; empty if there is none. */
  pointer: string;
}

export interface SenderOptions {
  /** The API key. Default in Node: the environment's HIFI_API_KEY. */
  key?: string;
  compression?: "gzip" | null;
  /** A batch is sent when it reaches this many events or bytes, or this age. */
  batchCountMax?: number;
  batchBytesMax?: number;
  lingerMs?: number;
  /** Requests in flight at once; 1 keeps the order of events. */
  parallelMax?: number;
  /** The memory limit for events. When memory is full, `send` throws FullError. */
  memoryBytesMax?: number;
  /** How long an event is tried before its fate is "not_stored" or "unknown". */
  giveUpMs?: number;
  /** How long a request may take. */
  timeoutMs?: number;
  /** Whether the gateway remembers each request for a day, to store a repeated request only once. */
  isIdempotent?: boolean;
  /** Called with each event's outcome. */
  onOutcome?: ((outcome: Outcome) => void) | null;
  /** Called with a sentence when there is a new problem. */
  onProblem?: (problem: string) => void;
}

/** One event that a sender has taken. */
export interface Sent {
  readonly id: string;
  /** The outcome if it is known already; null otherwise. */
  readonly known: Outcome | null;
  /** Wait for the outcome. */
  outcome(): Promise<Outcome>;
}

/** Sends events to a stream, and makes each event's fate available. */
export class Sender {
  constructor(url: string, stream: string, options?: SenderOptions);
  /** The current problem in a sentence; empty if there is none. */
  readonly problem: string;
  readonly options: Readonly<Required<SenderOptions>>;
  /** The address for this stream's requests. */
  readonly address: string;
  /** Take an event, as an object or as the text of one. Throw FullError while memory is full. */
  send(event: object | string, identity?: { id?: string; key?: string }): Sent;
  /** Wait until memory is at most half full. */
  room(): Promise<void>;
  /** Send all waiting events, and wait until each has its fate. */
  flush(): Promise<void>;
  /** Send the remaining events for up to `withinMs`; then the rest gets its final fate, too. */
  close(limits?: { withinMs?: number }): Promise<void>;
  /** Ask the gateway whether it would accept an event; throw GatewayError if not. */
  check(): Promise<void>;
  /** Return all events without a fate as lines, and stop sending them: for a closing page. */
  handOver(reason: string): string[];
}
