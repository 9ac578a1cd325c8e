export class HifiError extends Error {}
/** The sender or receiver cannot be made with these options. */
export class SetupError extends HifiError {}
/** No gateway answers at this address, or it does not accept these events. */
export class GatewayError extends HifiError {}
/** The event is not a JSON object, or is too large. */
export class NotAnEventError extends HifiError {}
/** There is no room for another event; wait with `await sender.room()`. */
export class FullError extends HifiError {}
/** The sender is closed; make another one. */
export class ClosedError extends HifiError {}
/** Throw this in `take` for an event that you will never accept; it becomes a dead letter. */
export class RefusedError extends HifiError {}
/** The request is not a valid delivery of Hifi. */
export class DeliveryError extends HifiError {
  constructor(status: number, message: string);
  /** The status to answer with. */
  status: number;
}
