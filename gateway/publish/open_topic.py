"""Distributes the events of requests over the batches of a topic's Kafka partitions."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from gateway.intake.events import Event
from gateway.intake.plain_events import PlainEvents
from gateway.publish.accumulator import SHARED_BYTES, Accumulator
from gateway.publish.partitions import partition_of
from gateway.publish.report import Fate, Report

Tell: TypeAlias = Callable[[Sequence[Report]], object]

# Length of a Kafka partition's turn in streams that fill no batches. At most 20 of the hundreds of
# batches in a second are due to these turns.
_TURN_S = 0.05
# For events of a new shard: the gateway sees its Kafka partition within seconds.
_NEW_PARTITION = "the gateway does not know this Kafka partition yet"
# A healthy Kafka reports a batch within 20 ms here (p99 under load).
_MOVING_S = 0.1


class _ReportCollector(msgspec.Struct, eq=False):
    """Collects the reports on the parts of a request until they are complete."""

    tell: Tell
    left: int
    reports: list[Report] = msgspec.field(default_factory=list)

    def __call__(self, report: Report) -> None:
        self.reports.append(report)
        self.left -= len(report.positions)
        if not self.left:
            self.tell(self.reports)


class OpenTopic:
    """The accumulators of one topic; chooses one for each event."""

    def __init__(self, accumulators: list[Accumulator], *, turn_bytes: int) -> None:
        self.accumulators = accumulators
        self._turn_bytes = turn_bytes
        self._sticky = accumulators[0]
        self._sticky_from_bytes = 0
        self._sticky_until_s = 0.0

    def take(self, events: Sequence[Event], tell: Tell, *, now_s: float, now_ms: int) -> None:
        """Put events into batches, in order for each Kafka partition."""
        if not events:
            tell(())
            return
        gathered = _ReportCollector(tell, len(events))
        for partition, positions in self._sort(events).items():
            part: Sequence[Event] = events
            left: Sequence[int] = positions
            if len(positions) < len(events):
                part = [events[position] for position in positions]
            if partition is not None and partition >= len(self.accumulators):
                gathered(Report(Fate.NOT_STORED, positions, reason=_NEW_PARTITION))
                continue
            while part:
                accumulator = (
                    self._spread(now_s) if partition is None else self.accumulators[partition]
                )
                count = accumulator.take(part, left, gathered, now_s=now_s, now_ms=now_ms)
                part, left = part[count:], left[count:]

    def _sort(self, events: Sequence[Event]) -> dict[int | None, Sequence[int]]:
        """Return events' positions by Kafka partition; under None, those that may go to any."""
        count = len(self.accumulators)
        if type(events) is PlainEvents:
            only = None if events.key is None else partition_of(events.key, count)
            return {only: range(len(events))}
        by_partition: dict[int | None, list[int]] = {}
        # A request's events belong to one stream: either all of them have shards, or none has.
        if events[0].partition is not None:
            for position, event in enumerate(events):
                by_partition.setdefault(event.partition, []).append(position)
            return dict(by_partition)
        if not [event for event in events if event.key is not None]:
            return {None: range(len(events))}
        for position, event in enumerate(events):
            partition = None if event.key is None else partition_of(event.key, count)
            by_partition.setdefault(partition, []).append(position)
        return dict(by_partition)

    def _spread(self, now_s: float) -> Accumulator:
        """Choose the accumulator for events without a key.

        They go to one Kafka partition while it keeps storing batches and holds few bytes, so that
        small requests share batches. Otherwise they go to the idlest partition, so that a stuck
        one gets no more events.
        """
        sticky = self._sticky
        since_s = sticky.oldest_s()
        is_moving = since_s is None or now_s - since_s < _MOVING_S
        if sticky.is_filling and is_moving:
            return sticky
        is_small = sticky.used_bytes < SHARED_BYTES
        is_its_turn = (
            now_s < self._sticky_until_s
            and sticky.assigned_bytes - self._sticky_from_bytes < self._turn_bytes
        )
        if not (is_moving and is_small and is_its_turn):
            self._sticky = sticky = min(
                self.accumulators,
                key=lambda accumulator: (accumulator.used_bytes, accumulator.assigned_bytes),
            )
            self._sticky_from_bytes = sticky.assigned_bytes
            self._sticky_until_s = now_s + _TURN_S
        return sticky
