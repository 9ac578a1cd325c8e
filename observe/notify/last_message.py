"""What became of the last message to a channel, for the page that lists them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastMessage:
    """When it went, and what came back."""

    at_ms: int
    is_taken: bool
    says: str
