"""Sums up the events that a restore has put back so far, for its record in each transaction."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from shared.event.record import Position
from shared.proof.archived import ArchiveId
from shared.proof.restored import RestoredEvents


def nothing_yet(
    restore_id: str, archive: ArchiveId, to_stream: str, *, at_ms: int, ends: Position
) -> RestoredEvents:
    """Return a restore's first record; `ends`: the present ends of its stream's partitions."""
    return RestoredEvents(
        id=restore_id,
        tenant=archive.tenant,
        stream=archive.stream,
        life=archive.life,
        to_stream=to_stream,
        count=0,
        began_ms=at_ms,
        last_ms=at_ms,
        begins={where.partition: end for where, end in ends.items()},
        from_ms=sys.maxsize,
        to_ms=0,
    )


@dataclass(slots=True)
class PutBack:
    """The events that all runs of a restore have put back so far."""

    before: RestoredEvents
    _count: int = 0
    _times_ms: tuple[int, int] = field(init=False)
    # Offsets by Kafka partition; the last span of each grows.
    _spans: dict[int, list[tuple[int, int]]] = field(init=False)
    # Kafka partitions where an event was left out after the newest event that was put back.
    _cut: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._times_ms = (self.before.from_ms, self.before.to_ms)
        self._spans = {partition: list(spans) for partition, spans in self.before.spans.items()}

    def add(self, partition: int, event: Mapping[str, Any], *, is_of_whole: bool) -> None:
        self._count += 1
        offset, time_ms = event["offset"], event["time_ms"]
        earliest_ms, latest_ms = self._times_ms
        self._times_ms = (min(earliest_ms, time_ms), max(latest_ms, time_ms))
        if not is_of_whole:
            self._cut.add(partition)
            return
        spans = self._spans.setdefault(partition, [])
        # Only Kafka's own markers lie between this record and the one before.
        first = spans.pop()[0] if spans and partition not in self._cut else offset
        spans.append((first, offset + 1))
        self._cut.discard(partition)

    def leave_out(self, partition: int) -> None:
        self._cut.add(partition)

    def said(self, now_ms: int) -> RestoredEvents:
        """Return the record of everything put back so far."""
        from_ms, to_ms = self._times_ms
        return replace(
            self.before,
            count=self.before.count + self._count,
            last_ms=now_ms,
            from_ms=from_ms,
            to_ms=to_ms,
            spans=self._spans,
        )
