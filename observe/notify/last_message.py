"""The outcome of the last message to a channel, for the page that lists channels."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastMessage:
    """When it was sent, and the channel's answer."""

    at_ms: int
    is_taken: bool
    says: str
