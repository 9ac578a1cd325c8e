"""The errors of this side; each message says what to do."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hifi_client.sending.fates import Sent


class HifiError(Exception):
    """The base of all errors of this client, so that one `except` catches them."""


class SetupError(HifiError):
    """The sender or receiver cannot be made with these options."""


class GatewayError(HifiError):
    """The gateway is not there, is not one, or does not accept these events."""


class NotAnEventError(HifiError):
    """The event to send is no JSON object, or is too large."""


class FullError(HifiError):
    """There is no room for one more event, and the caller did not want to wait (any longer).

    `sent` are those of `send_many` that were taken before.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sent: Sequence[Sent] = ()


class ClosedError(HifiError):
    """The sender was closed; make another one."""


class SpoolError(HifiError):
    """The folder of the spool belongs to somebody else, or to another stream."""


class SpoolFullError(HifiError):
    """The spool holds as much as it may."""


class NoAnswerError(HifiError):
    """No answer came; `is_unsent` if nothing can have reached the other side."""

    def __init__(self, sentence: str, *, is_unsent: bool) -> None:
        super().__init__(sentence)
        self.is_unsent = is_unsent


class DeliveryError(HifiError):
    """A request that is no delivery of Hifi's, with the status to answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RefusedError(HifiError):
    """Raised by a receiver for an event that it will never take: it becomes a dead letter."""
