"""Decides what the gateway's ledger says: which offsets were acknowledged, when, and their ids.

A row is written for what one Kafka partition stored within a second. Its first line is JSON; the
ids follow, a line each, so that whoever only counts never touches them. Rows are written after the
answer, so a gateway that dies may leave events without one: the audit then reads the log itself.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from shared.log_buckets import LogBuckets

MINUTE_MS = 60_000
# Events whose own time is so far off belong to no minute that anybody watches: a day back is as
# long as minutes stay open to late events, 5 min ahead is what clocks of healthy machines differ.
LATE_MS_MAX = 24 * 3_600_000
EARLY_MS_MAX = 5 * 60_000
# The bucket of such events; no minute starts there, as minutes are multiples of 60,000.
WILD = -1
# With its longest ids (256 characters of 4 bytes) a row of so many stays under a record's 1 MB.
ROW_EVENTS_MAX = 900


def audited_minute(event_time_ms: int, accepted_at_ms: int) -> int:
    """The minute an event is counted in, or WILD."""
    if not -LATE_MS_MAX <= event_time_ms - accepted_at_ms <= EARLY_MS_MAX:
        return WILD
    return event_time_ms - event_time_ms % MINUTE_MS


def runs_of(minutes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(count, minute) of each stretch of equal minutes."""
    return tuple((len(list(group)), minute) for minute, group in groupby(minutes))


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive offsets that one request's events were given."""

    first: int
    runs: tuple[tuple[int, int], ...]
    accepted_at_ms: int

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.runs)


@dataclass(frozen=True, slots=True)
class AckedRow:
    """What one Kafka partition of a stream acknowledged within about a second."""

    topic: str
    partition: int
    slices: tuple[Slice, ...]
    # In the order of the slices; no id holds a line break.
    ids: tuple[str, ...]
    value_bytes: int = 0
    # How old the events were when they came, and how long Kafka took to store them.
    ingest: LogBuckets = field(default_factory=LogBuckets)
    process: LogBuckets = field(default_factory=LogBuckets)

    def to_bytes(self) -> bytes:
        head = {
            "topic": self.topic,
            "partition": self.partition,
            "slices": [[s.first, s.accepted_at_ms, *_flat(s.runs)] for s in self.slices],
            "value_bytes": self.value_bytes,
            "ingest": self.ingest.to_list(),
            "process": self.process.to_list(),
        }
        line = json.dumps(head, separators=(",", ":"))
        return "\n".join((line, *self.ids)).encode()

    @classmethod
    def from_bytes(cls, value: bytes, *, with_ids: bool = True) -> "AckedRow":
        line, _, rest = value.partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        return cls(
            topic=head["topic"],
            partition=head["partition"],
            slices=tuple(
                Slice(first, tuple(zip(flat[::2], flat[1::2], strict=True)), accepted_at_ms)
                for first, accepted_at_ms, *flat in head["slices"]
            ),
            ids=tuple(rest.decode().split("\n")) if with_ids and rest else (),
            value_bytes=head["value_bytes"],
            ingest=LogBuckets.from_list(head["ingest"]),
            process=LogBuckets.from_list(head["process"]),
        )

    @property
    def count(self) -> int:
        return sum(one.count for one in self.slices)

    def claims(self) -> Iterator[tuple[int, int, int]]:
        """(minute, first, end) of each stretch of offsets."""
        for one in self.slices:
            at = one.first
            for count, minute in one.runs:
                yield minute, at, at + count
                at += count

    def named(self) -> Iterator[tuple[int, int, str]]:
        """(minute, offset, id) of each event."""
        ids = iter(self.ids)
        for minute, first, end in self.claims():
            for offset in range(first, end):
                yield minute, offset, next(ids)


def _flat(runs: tuple[tuple[int, int], ...]) -> list[int]:
    return [number for run in runs for number in run]
