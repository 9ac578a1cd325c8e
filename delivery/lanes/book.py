"""Knows where every strand is, and plans what is sent next. Pure: no clock, no Kafka, no Spark.

A strand that has events and nothing under way gets a part of a unit, with others that fare alike
and are near it. It is free again when it is done itself, whatever its job still waits for.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.turns import Turns
from delivery.lanes.units import Job, JobKind, Span, Strand, Unit
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
    kind: JobKind
    # The most events of all Kafka partitions together that it can take in a unit's time.
    events_max: int
    # It only parks: once in such a while is enough.
    rest_s: float = 0.0


class Laggard(NamedTuple):
    """The strand of a lane that has had something to send for longest without going on."""

    strand: Strand
    since_s: float
    is_sending: bool


@dataclass(slots=True)
class _Way:
    """How far a strand is."""

    at: int
    # Offsets below may have been sent by a unit of which nobody knows what became; OPEN until the
    # end of the log has been seen once more, if that unit followed it.
    maybe_sent: int
    # Who reports of another span reports of what was over before: its strand was free by its mark.
    under_way: Span | None = None
    # Since when there is something to send.
    behind_since_s: float | None = None
    not_before_s: float = 0.0


@dataclass(slots=True)
class Book:
    """The strands of one process."""

    # How many worker processes share those who are well.
    worker_count: int = 2
    _ways: dict[Strand, _Way] = field(default_factory=dict)
    _ends: dict[KafkaPartition, int] = field(default_factory=dict)
    _names: dict[KafkaPartition, set[str]] = field(default_factory=dict)
    _strands: dict[str, set[Strand]] = field(default_factory=dict)
    # What has something to send: of thousands of strands, few at a time.
    _behind: set[Strand] = field(default_factory=set)
    # What follows its log has always.
    _following: set[Strand] = field(default_factory=set)
    # Cut while it followed its log: what was sent may lie beyond the end that is known.
    _unsure: set[Strand] = field(default_factory=set)

    def __contains__(self, strand: Strand) -> bool:
        return strand in self._ways

    def enter(self, strand: Strand, mark: Mark) -> None:
        """Go on with a strand where its mark says; the end of its log must be known."""
        end = self._ends[strand.where]
        # Of what was to be followed, anything may have been sent that there is by now.
        self._ways[strand] = way = _Way(mark.at, min(mark.until, end))
        self._names.setdefault(strand.where, set()).add(strand.destination)
        self._strands.setdefault(strand.destination, set()).add(strand)
        self._place(strand, way, is_beyond=mark.at > end)

    def leave(self, destination: str) -> None:
        """Forget it; what is under way goes on, and nobody asks for it any more."""
        for strand in self._strands.pop(destination, set()):
            del self._ways[strand]
            self._names[strand.where].discard(destination)
            self._behind.discard(strand)
            self._following.discard(strand)
            self._unsure.discard(strand)

    def strands(self, destination: str) -> list[Strand]:
        return list(self._strands.get(destination, ()))

    def is_free(self, strand: Strand) -> bool:
        return self._ways[strand].under_way is None

    def is_under_way(self, destination: str) -> bool:
        return any(self._ways[strand].under_way is not None for strand in self.strands(destination))

    def laggard(self, destination: str) -> Laggard | None:
        ways = [(each, self._ways[each]) for each in self.strands(destination)]
        found = [
            Laggard(strand, way.behind_since_s, is_sending=way.under_way is not None)
            for strand, way in ways
            if way.behind_since_s is not None
        ]
        return min(found, key=lambda each: each.since_s, default=None)

    def see_ends(self, ends: Position) -> None:
        for where, end in ends.items():
            before = self._ends.get(where, end)
            self._ends[where] = end
            if end == before:
                continue
            for strand in [Strand(name, where) for name in self._names.get(where, ())]:
                way = self._ways[strand]
                was_beyond = strand in self._behind and way.at > before
                self._place(strand, way, is_beyond=end < before or was_beyond)
                if end < before:
                    way.maybe_sent = min(way.maybe_sent, end)
        for strand in [each for each in self._unsure if each.where in ends]:
            self._unsure.discard(strand)
            self._ways[strand].maybe_sent = self._ends[strand.where]

    def position(self, destination: str, places: Iterable[KafkaPartition]) -> Position:
        ways = {where: self._ways.get(Strand(destination, where)) for where in places}
        return {where: way.at for where, way in ways.items() if way is not None}

    def went(self, strand: Strand, mark: Mark) -> bool:
        """A mark was written: True if a strand has gone on by it."""
        way = self._ways.get(strand)
        if way is None or way.under_way is None or mark.at <= way.at:
            return False
        if mark.at >= min(_end_of(way.under_way), mark.until):
            way.under_way = None
        self._go_on(strand, way, mark.at)
        return True

    def mark(self, strand: Strand) -> Mark:
        way = self._ways[strand]
        end = 0 if way.under_way is None else _end_of(way.under_way)
        return Mark(way.at, max(way.at, way.maybe_sent, end))

    def ended(self, strand: Strand, span: Span, at: int) -> bool:
        """A task says that its part is done, up to there: True if that was under way."""
        if not self.is_with(strand, span):
            return False
        way = self._ways[strand]
        way.under_way = None
        self._go_on(strand, way, at)
        return True

    def is_with(self, strand: Strand, span: Span) -> bool:
        """Whether just this is under way; it may have been done before, as its mark has said."""
        way = self._ways.get(strand)
        return way is not None and way.under_way is span

    def cut(self, strand: Strand, span: Span, at: int, *, not_before_s: float) -> None:
        """Nobody can say what became of it beyond there: what was to be sent may have been."""
        if not self.is_with(strand, span):
            return
        way, known = self._ways[strand], self._ends[strand.where]
        way.maybe_sent = max(way.maybe_sent, OPEN if span.end is None else min(span.end, known))
        if way.maybe_sent >= OPEN:
            self._unsure.add(strand)
        way.under_way, way.not_before_s = None, not_before_s
        if not self._is_beyond(strand):
            self._go_on(strand, way, at)

    def skip(self, strand: Strand, start: int) -> bool:
        """Go on without what its log has no more; False if there is nothing of that kind."""
        way, end = self._ways[strand], self._ends[strand.where]
        if start <= way.at <= end:
            return False
        if way.at > end:
            # What it has sent may be in there, if a broker has lost only the end of the log.
            way.maybe_sent = end
        way.at, way.under_way, way.behind_since_s, way.not_before_s = start, None, None, 0.0
        self._place(strand, way)
        return True

    def _go_on(self, strand: Strand, way: _Way, at: int) -> None:
        if at > way.at:
            way.at, way.behind_since_s = at, None
        self._place(strand, way)

    def _place(self, strand: Strand, way: _Way, *, is_beyond: bool = False) -> None:
        end = self._ends[strand.where]
        if way.at < end or (is_beyond and way.at > end):
            self._behind.add(strand)
        else:
            self._behind.discard(strand)
            way.behind_since_s = None

    def follow(self, destination: str, *, is_following: bool) -> None:
        """Whether a destination's strands are to follow their logs."""
        change = self._following.update if is_following else self._following.difference_update
        change(self.strands(destination))

    def plan(
        self, lane_of: Callable[[str], Lane | None], turns: Turns, *, now_s: float
    ) -> list[Job]:
        """The next jobs; what they send is under way from here on. No lane: do not send to it."""
        lanes: dict[str, Lane] = {}
        ready: dict[str, list[Strand]] = {}
        alone: list[dict[Strand, Span]] = []
        for strand, lane in self._ready(lane_of, now_s):
            lanes[strand.destination] = lane
            if self._is_beyond(strand):
                # Others have something to read in that log.
                alone.append({strand: Span(at := self._ways[strand].at, at + 1)})
            else:
                ready.setdefault(strand.destination, []).append(strand)
        shared: dict[JobKind, dict[Strand, Span]] = {}
        for name, strands in ready.items():
            lane, share = lanes[name], max(1, ceil(lanes[name].events_max / len(strands)))
            is_far = lane.kind is not JobKind.APART and any(map(self._is_far, strands))
            spans = {each: self._span(each, lane, share, is_far=is_far) for each in strands}
            if is_far:
                # Of what it follows besides, some Kafka partitions may have nothing.
                alone.append({it: span for it, span in spans.items() if span.begin < _end_of(span)})
            else:
                shared.setdefault(lane.kind, {}).update(spans)
        # Who has waited longest is first, where not all have their turn.
        alone.sort(key=lambda spans: min(self._ways[each].behind_since_s or 0 for each in spans))
        jobs = []
        for kind, spans in [*((JobKind.ALONE, spans) for spans in alone), *shared.items()]:
            if turns.may_start(kind, now_s=now_s):
                jobs += (found := _jobs(kind, spans, self.worker_count))
                turns.start(kind, len(found), strand_count=len(spans), now_s=now_s)
                self._begin(spans, lanes, now_s)
        return jobs

    def _ready(
        self, lane_of: Callable[[str], Lane | None], now_s: float
    ) -> Iterator[tuple[Strand, Lane]]:
        """What may be sent now, and how."""
        lanes: dict[str, Lane] = {}
        for strand in self._behind | self._following:
            way, name = self._ways[strand], strand.destination
            if way.behind_since_s is None and strand in self._behind:
                way.behind_since_s = now_s
            if way.under_way or way.not_before_s > now_s or strand in self._unsure:
                continue
            if name not in lanes and (lane := lane_of(name)):
                lanes[name] = lane
            if name in lanes and self._is_due(way, strand, lanes[name], now_s):
                yield strand, lanes[name]

    def _is_beyond(self, strand: Strand) -> bool:
        """Whether its log is shorter than it has been, as that of a topic that was made anew.

        It is read nevertheless: by what Kafka says of that, the lane has lost events.
        """
        return strand in self._behind and self._ways[strand].at > self._ends[strand.where]

    def _is_far(self, strand: Strand) -> bool:
        return self._ends[strand.where] - self._ways[strand].at > _NEAR

    def _is_due(self, way: _Way, strand: Strand, lane: Lane, now_s: float) -> bool:
        """Whether there is something to send, and no reason to hold it back for a fuller batch."""
        count = self._ends[strand.where] - way.at
        if lane.kind is JobKind.FOLLOWING or self._is_beyond(strand):
            return True
        waited_s = 0.0 if way.behind_since_s is None else now_s - way.behind_since_s
        to = lane.destination
        return count >= to.batch_count_max or (count > 0 and waited_s >= to.linger_s)

    def _span(self, strand: Strand, lane: Lane, share: int, *, is_far: bool = False) -> Span:
        at, maybe_sent = (way := self._ways[strand]).at, way.maybe_sent
        if maybe_sent > at:
            # What may have been sent goes by itself: the same batches, all of them labelled.
            return Span(at, min(maybe_sent, at + share), maybe_sent)
        if lane.kind is JobKind.FOLLOWING and not is_far:
            return Span(at, None)
        return Span(at, max(at, min(self._ends[strand.where], at + share)))

    def _begin(self, spans: Mapping[Strand, Span], lanes: Mapping[str, Lane], now_s: float) -> None:
        for strand, span in spans.items():
            self._ways[strand].under_way = span
        for name in {strand.destination for strand in spans}:
            if rest_s := lanes[name].rest_s:
                # A turn is the lane's: what comes in another Kafka partition waits for the next.
                for strand in self.strands(name):
                    self._ways[strand].not_before_s = now_s + rest_s


def _jobs(kind: JobKind, spans: Mapping[Strand, Span], worker_count: int) -> list[Job]:
    if kind not in {JobKind.SHARED, JobKind.FOLLOWING}:
        return [Job(kind, _packed(_units(spans), kind))]
    # A destination always has the same worker: its connections are open, and its flow is known.
    by_worker: dict[int, dict[Strand, Span]] = {}
    for strand, span in spans.items():
        worker = zlib.crc32(strand.destination.encode()) % worker_count
        by_worker.setdefault(worker, {})[strand] = span
    return [Job(kind, [_units(each)], worker) for worker, each in by_worker.items()]


def _units(spans: Mapping[Strand, Span]) -> list[Unit]:
    units: dict[KafkaPartition, dict[str, Span]] = {}
    for strand, span in spans.items():
        units.setdefault(strand.where, {})[strand.destination] = span
    return [Unit(where, each) for where, each in units.items()]


def _packed(units: Collection[Unit], kind: JobKind) -> list[list[Unit]]:
    """Units by task: about as many deliveries in each."""
    sizes = {unit.where: _size(unit) for unit in units}
    # Who is alone sends crowds, which are worth a task for each Kafka partition.
    worth = len(units) if kind is JobKind.ALONE else ceil(sum(sizes.values()) / _TASK_DELIVERIES)
    count = max(1, min(_TASKS_MAX, len(units), worth))
    tasks: list[list[Unit]] = [[] for _ in range(count)]
    loads: Counter[int] = Counter()
    for unit in sorted(units, key=lambda each: -sizes[each.where]):
        lightest = min(range(count), key=lambda task: loads[task])
        tasks[lightest].append(unit)
        loads[lightest] += sizes[unit.where]
    return tasks


def _size(unit: Unit) -> int:
    """Deliveries, as if each event were one."""
    return sum((span.end or span.begin) - span.begin for span in unit.spans.values())


def _end_of(span: Span) -> int:
    return OPEN if span.end is None else span.end
