// The errors of this side; each message says what to do.

export class HifiError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The sender or receiver cannot be made as it is asked for. */
export class SetupError extends HifiError {}
/** The gateway is not there, is not one, or does not take what would be sent. */
export class GatewayError extends HifiError {}
/** The event is no JSON object, or is too large. */
export class NotAnEventError extends HifiError {}
/** There is no room for one more event; `await sender.room()` waits for some. */
export class FullError extends HifiError {}
/** The sender was closed; make another one. */
export class ClosedError extends HifiError {}
/** Thrown by a receiver for an event that it will never take: it becomes a dead letter. */
export class RefusedError extends HifiError {}

/** A request that is no delivery of Hifi's, with the status to answer. */
export class DeliveryError extends HifiError {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}
