"""The client's errors; each message says what to do."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hifi_client.sending.fates import Sent


class HifiError(Exception):
    """The base class of all errors of this client."""


class SetupError(HifiError):
    """The sender or receiver cannot be made with these options."""


class GatewayError(HifiError):
    """No gateway answers at this address, or it does not accept these events."""


class NotAnEventError(HifiError):
    """The event to send is not a JSON object, or is too large."""


class FullError(HifiError):
    """There is no room for another event, and the caller does not wait (any longer).

    `sent` has the events of `send_many` that were taken before.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sent: Sequence[Sent] = ()


class ClosedError(HifiError):
    """The sender is closed; make another one."""


class SpoolError(HifiError):
    """The spool's folder belongs to another process or another stream."""


class SpoolFullError(HifiError):
    """The spool is full."""


class NoAnswerError(HifiError):
    """No answer came; `is_unsent` if nothing can have reached the server."""

    def __init__(self, sentence: str, *, is_unsent: bool) -> None:
        super().__init__(sentence)
        self.is_unsent = is_unsent


class DeliveryError(HifiError):
    """The request is not a valid delivery of Hifi; `status` is the status to answer with."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RefusedError(HifiError):
    """Raise this in `take` for an event that you will never accept; it becomes a dead letter."""
