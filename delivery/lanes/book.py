"""Knows where every strand is, and plans what is sent next. Pure: no clock, no Kafka, no Spark.

A strand that has events and nothing under way gets a part of a unit, with others that fare alike
and are near it. It is free again when it is done itself, whatever its job still waits for.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.units import Job, Kind, Span, Strand, Unit
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Position

# Whoever has more to send of one Kafka partition has jobs of its own: in a shared one it would read
# what nobody else wants, for longer than the others take.
_NEAR = 2_000
# A task is worth so many deliveries; they are single events mostly, of a millisecond each.
_TASK_DELIVERIES = 400
# More tasks than cores do not make a small machine quicker.
_TASKS_MAX = 4


@dataclass(frozen=True, slots=True)
class Lane:
    """How a destination is to be sent to now."""

    destination: Destination
    kind: Kind
    # The most events of all Kafka partitions together that it can take in a unit's time.
    events_max: int
    # It only parks: once in such a while is enough.
    rest_s: float = 0.0


@dataclass(slots=True)
class _Way:
    """How far a strand is."""

    at: int
    # Offsets below may have been sent by a unit of which nobody knows what became.
    maybe_sent: int
    # Where the unit under way began, and where it is to end (OPEN if it follows the log).
    under_way: tuple[int, int] | None = None
    # Since when there is something to send.
    behind_since_s: float | None = None
    not_before_s: float = 0.0


@dataclass(slots=True)
class Book:
    """The strands of one process."""

    _ways: dict[Strand, _Way] = field(default_factory=dict)
    _ends: dict[KafkaPartition, int] = field(default_factory=dict)
    _names: dict[KafkaPartition, set[str]] = field(default_factory=dict)
    _strands: dict[str, set[Strand]] = field(default_factory=dict)
    # What has something to send: of thousands of strands, few at a time.
    _behind: set[Strand] = field(default_factory=set)
    # What follows its log has always.
    _following: set[Strand] = field(default_factory=set)

    def __contains__(self, strand: Strand) -> bool:
        return strand in self._ways

    def enter(self, strand: Strand, mark: Mark) -> None:
        """Go on with a strand where its mark says; the end of its log must be known."""
        end = self._ends[strand.where]
        # Of what was to be followed, anything may have been sent that there is by now.
        self._ways[strand] = _Way(mark.at, end if mark.until >= OPEN else mark.until)
        self._names.setdefault(strand.where, set()).add(strand.destination)
        self._strands.setdefault(strand.destination, set()).add(strand)
        if end > mark.at:
            self._behind.add(strand)

    def leave(self, destination: str) -> None:
        """Forget it; what is under way goes on, and nobody asks for it any more."""
        for strand in self._strands.pop(destination, set()):
            del self._ways[strand]
            self._names[strand.where].discard(destination)
            self._behind.discard(strand)
            self._following.discard(strand)

    def all(self) -> list[Strand]:
        return list(self._ways)

    def strands(self, destination: str) -> list[Strand]:
        return list(self._strands.get(destination, ()))

    def is_under_way(self, destination: str) -> bool:
        return any(self._ways[strand].under_way for strand in self.strands(destination))

    def is_behind(self, destination: str) -> bool:
        return not self._behind.isdisjoint(self.strands(destination))

    def knows_end(self, where: KafkaPartition) -> bool:
        return where in self._ends

    def see_ends(self, ends: Position) -> None:
        for where, end in ends.items():
            if end > self._ends.get(where, -1):
                self._ends[where] = end
                strands = (Strand(name, where) for name in self._names.get(where, ()))
                self._behind |= {each for each in strands if self._ways[each].at < end}

    def position(self, destination: str, places: Iterable[KafkaPartition]) -> Position:
        ways = {where: self._ways.get(Strand(destination, where)) for where in places}
        return {where: way.at for where, way in ways.items() if way is not None}

    def went(self, strand: Strand, mark: Mark) -> bool:
        """A mark was written: True if a strand has gone on by it."""
        way = self._ways.get(strand)
        if way is None or way.under_way is None or mark.at <= way.at:
            return False
        way.at, way.behind_since_s = mark.at, None
        _, end = way.under_way
        if mark.at >= min(end, mark.until):
            self._is_free(strand, way)
        return True

    def mark(self, strand: Strand) -> Mark:
        way = self._ways[strand]
        _, end = way.under_way or (0, 0)
        return Mark(way.at, max(way.at, way.maybe_sent, end))

    def ended(self, strand: Strand, at: int) -> None:
        """A task says that its part is done, up to there."""
        way = self._ways.get(strand)
        if way is not None and way.under_way is not None:
            way.at = max(at, way.at)
            self._is_free(strand, way)

    def cut(self, strand: Strand, at: int, *, not_before_s: float) -> None:
        """Nobody can say what became of it beyond there: what was to be sent may have been."""
        way = self._ways.get(strand)
        if way is None or way.under_way is None:
            return
        _, end = way.under_way
        way.at = max(way.at, at)
        way.maybe_sent = max(way.maybe_sent, self._ends[strand.where] if end >= OPEN else end)
        way.under_way, way.not_before_s = None, not_before_s
        if way.at < self._ends[strand.where]:
            self._behind.add(strand)

    def _is_free(self, strand: Strand, way: _Way) -> None:
        way.under_way = None
        if self._ends[strand.where] <= way.at:
            self._behind.discard(strand)
            way.behind_since_s = None

    def follow(self, destination: str, *, is_following: bool) -> None:
        """Whether a destination's strands are to follow their logs."""
        change = self._following.update if is_following else self._following.difference_update
        change(self.strands(destination))

    def plan(
        self,
        lane_of: Callable[[str], Lane | None],
        *,
        now_s: float,
        may_start: Callable[[Kind], bool],
    ) -> list[Job]:
        """The next jobs; what they send is under way from here on. None: do not send to it."""
        lanes: dict[str, Lane | None] = {}
        ready: dict[str, list[Strand]] = {}
        for strand in self._behind | self._following:
            way = self._ways[strand]
            if way.behind_since_s is None and self._ends[strand.where] > way.at:
                way.behind_since_s = now_s
            if way.under_way or way.not_before_s > now_s:
                continue
            name = strand.destination
            lane = lanes[name] if name in lanes else lanes.setdefault(name, lane_of(name))
            if lane is not None and self._is_due(way, strand, lane, now_s):
                ready.setdefault(name, []).append(strand)
        spans: dict[Kind, dict[Strand, Span]] = {}
        alone: list[dict[Strand, Span]] = []
        for name, strands in ready.items():
            lane = lanes[name]
            assert lane is not None, "it was asked for above"
            share = max(1, ceil(lane.events_max / len(strands)))
            mine = {strand: self._span(strand, lane, share) for strand in strands}
            if lane.kind is not Kind.APART and any(map(self._is_far, strands)):
                alone.append(
                    {strand: self._span(strand, lane, share, is_far=True) for strand in mine}
                )
            else:
                spans.setdefault(lane.kind, {}).update(mine)
        jobs = [Job(Kind.ALONE, [[unit] for unit in _units(each)]) for each in alone]
        jobs += [Job(kind, _packed(_units(each))) for kind, each in spans.items()]
        started = [job for job in jobs if may_start(job.kind)]
        for job in started:
            for unit in job.units:
                self._begin(unit, lanes, now_s)
        return started

    def _is_far(self, strand: Strand) -> bool:
        return self._ends[strand.where] - self._ways[strand].at > _NEAR

    def _is_due(self, way: _Way, strand: Strand, lane: Lane, now_s: float) -> bool:
        """Whether there is something to send, and no reason to hold it back for a fuller batch."""
        count = self._ends[strand.where] - way.at
        if lane.kind is Kind.FOLLOWING:
            return True
        waited_s = 0.0 if way.behind_since_s is None else now_s - way.behind_since_s
        to = lane.destination
        return count >= to.batch_count_max or (count > 0 and waited_s >= to.linger_s)

    def _span(self, strand: Strand, lane: Lane, share: int, *, is_far: bool = False) -> Span:
        at, maybe_sent = (way := self._ways[strand]).at, way.maybe_sent
        if maybe_sent > at:
            # What may have been sent goes by itself: the same batches, all of them labelled.
            return Span(at, min(maybe_sent, at + share), maybe_sent)
        if lane.kind is Kind.FOLLOWING and not is_far:
            return Span(at, None)
        return Span(at, min(self._ends[strand.where], at + share))

    def _begin(self, unit: Unit, lanes: Mapping[str, Lane | None], now_s: float) -> None:
        for name, span in unit.spans.items():
            way, lane = self._ways[Strand(name, unit.where)], lanes[name]
            way.under_way = span.begin, OPEN if span.end is None else span.end
            way.not_before_s = now_s + (lane.rest_s if lane else 0.0)


def _units(spans: Mapping[Strand, Span]) -> list[Unit]:
    units: dict[KafkaPartition, dict[str, Span]] = {}
    for strand, span in spans.items():
        units.setdefault(strand.where, {})[strand.destination] = span
    return [Unit(where, each) for where, each in units.items()]


def _packed(units: Collection[Unit]) -> list[list[Unit]]:
    """Units by task: about as many deliveries in each."""
    sizes = {unit.where: _size(unit) for unit in units}
    count = min(_TASKS_MAX, len(units), ceil(sum(sizes.values()) / _TASK_DELIVERIES))
    tasks: list[list[Unit]] = [[] for _ in range(max(1, count))]
    loads: Counter[int] = Counter()
    for unit in sorted(units, key=lambda each: -sizes[each.where]):
        lightest = min(range(len(tasks)), key=lambda task: loads[task])
        tasks[lightest].append(unit)
        loads[lightest] += sizes[unit.where]
    return tasks


def _size(unit: Unit) -> int:
    """Deliveries, as if each event were one; what follows its log is worth much of a task."""
    return sum(
        _TASK_DELIVERIES // 8 if span.end is None else span.end - span.begin
        for span in unit.spans.values()
    )
