"""Distinguishes a storm of rejections, as after a wrong key or a new schema, from bad events."""

from msgspec import Struct

from shared.event.times import MINUTE_MS, minute_of

# Answers that mean that the address or the key is wrong. Bad events do not cause this many of them
# in a row.
REJECTED = frozenset({401, 403, 404})
REJECTS_IN_ROW = 50
# Or nearly all requests of the last five minutes, of a destination that had taken events before.
REJECTED_FRACTION = 0.95
REJECTED_REQUESTS_MIN = 20
MINUTES = 5
# Or this many events of halved batches, each refused by itself, and nothing taken in between: the
# destination will refuse the others as well. If it refuses half of them, the chance of twenty in a
# row is one in a million.
HALVES_IN_ROW = 20


class MinuteOfRequests(Struct, frozen=True):
    """The requests of one minute."""

    started_at_ms: int
    request_count: int
    rejected_count: int


def is_storm(minutes: tuple[MinuteOfRequests, ...], *, in_row: int, was_well: bool) -> bool:
    """Whether requests are rejected as they would be with a wrong key or address."""
    requests = sum(minute.request_count for minute in minutes)
    rejected = sum(minute.rejected_count for minute in minutes)
    is_much = requests >= REJECTED_REQUESTS_MIN and rejected >= REJECTED_FRACTION * requests
    return in_row >= REJECTS_IN_ROW or (was_well and is_much)


def counted(
    minutes: tuple[MinuteOfRequests, ...], *, is_rejected: bool, now_ms: int
) -> tuple[MinuteOfRequests, ...]:
    """The last minutes, with one more request."""
    begun_ms = minute_of(now_ms)
    kept = tuple(m for m in minutes if begun_ms - MINUTES * MINUTE_MS < m.started_at_ms < begun_ms)
    same = [m for m in minutes if m.started_at_ms == begun_ms]
    last = same[0] if same else MinuteOfRequests(begun_ms, 0, 0)
    grown = MinuteOfRequests(begun_ms, last.request_count + 1, last.rejected_count + is_rejected)
    return (*kept, grown)
