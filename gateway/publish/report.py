"""The outcome of published events: stored, not stored, or unknown.

A report covers many events of one request, so that a batch of a thousand takes one object.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec


class Fate(Enum):
    """The outcome of an event; the value is its name in answers."""

    STORED = "accepted"
    # Kafka certainly does not have the event, so sending it again cannot duplicate it.
    NOT_STORED = "retry"
    # Kafka may have the event, or may still store it.
    UNKNOWN = "unknown"


class Report(msgspec.Struct, frozen=True):
    """The outcome of the published events at `positions`."""

    fate: Fate
    positions: Sequence[int]
    # Place of the first of them; the others follow it. Known for stored events only.
    partition: int | None = None
    first_offset: int | None = None
    reason: str = ""
    # An earlier request with the same Idempotency-Key has stored them.
    is_earlier: bool = False
