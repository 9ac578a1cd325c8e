"""Decides what a receipt says: one row per HTTP batch, enough to prove what became of each event.

A receipt names its events by the intervals of their log coordinates, so that the union of all
receipts, laid over the stream topic, shows what is delivered, waiting, dead, or unaccounted.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from shared.envelope import Envelope

MINUTE_MS = 60_000


class ReceiptOutcome(Enum):
    DELIVERED = "delivered"
    WAITING = "waiting"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Covered:
    """Consecutive offsets [first, end) of one Kafka partition of a stream topic."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of the events of one HTTP batch."""

    destination_id: str
    outcome: ReceiptOutcome
    reason: str
    batch_id: str
    event_count: int
    covered: tuple[Covered, ...]
    # Events per minute of their own time: {minute start in ms: count}.
    minutes: Mapping[int, int]
    # The earliest times among the events, from which lag follows.
    event_time_ms_min: int
    accepted_at_ms_min: int
    attempt: int
    started_at_ms: int
    ended_at_ms: int

    def to_json(self) -> bytes:
        fields = asdict(self)
        fields["outcome"] = self.outcome.value
        fields["covered"] = [[c.topic, c.partition, c.first, c.end] for c in self.covered]
        fields["minutes"] = {str(minute): count for minute, count in self.minutes.items()}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> "Receipt":
        fields = json.loads(value)
        fields["outcome"] = ReceiptOutcome(fields["outcome"])
        fields["covered"] = tuple(Covered(*covered) for covered in fields["covered"])
        fields["minutes"] = {int(minute): count for minute, count in fields["minutes"].items()}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a receipt tells of its events: where they are in the log, and when they were."""

    covered: tuple[Covered, ...]
    event_times_ms: Sequence[int]
    accepted_ats_ms: Sequence[int]


def facts_of(envelopes: Sequence[Envelope]) -> Facts:
    """The facts of events that were opened one by one."""
    origins = [(e.origin.topic, e.origin.partition, e.origin.offset) for e in envelopes]
    return Facts(
        covered=cover(origins),
        event_times_ms=[envelope.event_time_ms for envelope in envelopes],
        accepted_ats_ms=[envelope.accepted_at_ms for envelope in envelopes],
    )


def make_receipt(
    facts: Facts,
    *,
    destination_id: str,
    outcome: ReceiptOutcome,
    reason: str,
    batch_id: str,
    attempt: int,
    started_at_ms: int,
    ended_at_ms: int,
) -> Receipt:
    """Write down what became of these events; there is at least one."""
    return Receipt(
        destination_id=destination_id,
        outcome=outcome,
        reason=reason,
        batch_id=batch_id,
        event_count=len(facts.event_times_ms),
        covered=facts.covered,
        minutes=_minutes(facts.event_times_ms),
        event_time_ms_min=min(facts.event_times_ms),
        accepted_at_ms_min=min(facts.accepted_ats_ms),
        attempt=attempt,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
    )


def minute_of(time_ms: int) -> int:
    """The start of the minute that a time falls into."""
    return time_ms - time_ms % MINUTE_MS


def cover(origins: Iterable[tuple[str, int, int]]) -> tuple[Covered, ...]:
    """Fold coordinates (topic, partition, offset) into as few intervals as they make."""
    covered: list[Covered] = []
    topic, partition, first, end = "", 0, 0, 0
    for origin in sorted(origins):
        if origin[:2] != (topic, partition) or origin[2] > end:
            if end > first:
                covered.append(Covered(topic, partition, first, end))
            topic, partition, first = origin
        end = origin[2] + 1
    if end > first:
        covered.append(Covered(topic, partition, first, end))
    return tuple(covered)


def _minutes(times_ms: Sequence[int]) -> dict[int, int]:
    """Events per minute; mostly they are all of one, and then nothing is counted."""
    first = minute_of(min(times_ms))
    if first == minute_of(max(times_ms)):
        return {first: len(times_ms)}
    return dict(Counter(minute_of(time_ms) for time_ms in times_ms))
