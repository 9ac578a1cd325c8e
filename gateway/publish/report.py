"""The outcome of published events: stored, not stored, or not known.

A report covers many events of one request, so that a batch of a thousand costs one value.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec


class Fate(Enum):
    """The outcome of an event; the value is the word that its sender gets."""

    STORED = "accepted"
    # Kafka certainly does not have the event: sending it again cannot make two of it.
    NOT_STORED = "retry"
    # Kafka may have the event or may still get it.
    UNKNOWN = "unknown"


class Report(msgspec.Struct, frozen=True):
    """The outcome of the events at `positions` of those that were published."""

    fate: Fate
    positions: Sequence[int]
    # Where the first of them rests; the others follow it one by one. Known for stored events only.
    partition: int | None = None
    first_offset: int | None = None
    reason: str = ""
    # An earlier request with the same Idempotency-Key has stored them.
    is_earlier: bool = False
