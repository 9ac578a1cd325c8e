/** An event as it was sent to Hifi. */
export type Event = Record<string, any>;

/** Headers of a request, with names in lower case, as node:http has them. */
export type Headers = Record<string, any>;

/** Remembers the ids of taken events: in memory, or in a store of your own. */
export interface Seen {
  /** Return the ids that were added before. */
  known(ids: string[]): Set<string> | Promise<Set<string>>;
  /** Add the ids of taken events. */
  add(ids: string[]): void | Promise<void>;
}

/** Remembers the newest ids, for this process only. */
export class SeenInMemory implements Seen {
  constructor(countMax?: number);
  known(ids: string[]): Set<string>;
  add(ids: string[]): void;
}

/** What to answer a delivery with. */
export interface Reply {
  status: number;
  headers: Record<string, string | number>;
  body: string;
}

/** One request of Hifi. Events that were taken before are not in `events`. */
export interface Delivery {
  readonly events: Event[];
  readonly id: string;
  readonly stream: string;
  readonly attempt: number;
  /** Whether Hifi says that an earlier copy may have arrived. */
  readonly isMaybeDuplicate: boolean;
  /**
   * Return the answer. `failed` maps positions in `events` to statuses of failed events: with 422 an
   * event becomes a dead letter; with 503 Hifi sends it again.
   */
  reply(failed?: Map<number, number>): Promise<Reply>;
}

/** The part of a request of node:http, Express and similar servers that a handler needs. */
export interface IncomingRequest extends AsyncIterable<any> {
  method?: string;
  headers: Headers;
  readableEnded?: boolean;
  body?: any;
}

export interface OutgoingResponse {
  writeHead(status: number, headers: Record<string, string | number>): { end(body: string): unknown };
}

/** Receives for one destination, with its `secrets`; null accepts unsigned requests, from anybody. */
export class Receiver {
  constructor(secrets: string | string[] | null, options?: { seen?: Seen; toleranceS?: number });
  /** Return a request's new events; throw DeliveryError if it is not a valid delivery. */
  open(headers: Headers, body: Uint8Array): Promise<Delivery>;
  /**
   * Pass each new event to `take`, one after the other, and return the answer. If `take` throws, Hifi
   * sends the event again; after RefusedError it is a dead letter.
   */
  answer(headers: Headers, body: Uint8Array, take: (event: Event) => unknown): Promise<Reply>;
  /** A handler for Express, and for node:http: `app.post("/hifi", receiver.handler(take))`. */
  handler(take: (event: Event) => unknown): (request: IncomingRequest, response: OutgoingResponse) => Promise<void>;
}
