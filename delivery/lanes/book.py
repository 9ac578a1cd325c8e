"""Tracks the position of every strand, and plans the next jobs. Pure: no clock, no Kafka, no Spark.

Idle strands that have events are packed into units with strands of similar health and nearby
offsets. A strand is free again when it is done itself, even if its job still waits for others.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from math import ceil, inf

from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.packing import NEAR, crews, end_of, packed, units_of
from delivery.lanes.strands.way import Laggard, Way
from delivery.lanes.turns import Turn, Turns
from delivery.lanes.units import Job, JobKind, Lane, Span, Strand
from delivery.settling import Block
from shared.event.record import KafkaPartition, Position


@dataclass(slots=True)
class Book:
    """The strands of one process."""

    # The last number given to a span; the first numbers of any two books are far apart.
    number: int = 0
    _ways: dict[Strand, Way] = field(default_factory=dict)
    _ends: dict[KafkaPartition, int] = field(default_factory=dict)
    _names: dict[KafkaPartition, set[str]] = field(default_factory=dict)
    _strands: dict[str, set[Strand]] = field(default_factory=dict)
    # Strands with something to send: of thousands, sometimes a few, sometimes all. Each has its Way
    # here too, as a lookup takes four times as long as a step of an iteration.
    _behind: dict[Strand, Way] = field(default_factory=dict)
    # Strands that follow their logs, which always have something to send.
    _following: set[Strand] = field(default_factory=set)
    # Strands cut while they followed their logs: they may have sent events beyond the known end.
    _unsure: set[Strand] = field(default_factory=set)

    def __contains__(self, strand: Strand) -> bool:
        return strand in self._ways

    def enter(self, strand: Strand, mark: Mark, *, not_before_s: float = 0.0) -> None:
        """Resume a strand at its mark; the end of its log must be known."""
        end = self._ends[strand.where]
        way = self._ways[strand] = Way.of(mark, end=end, again_s=not_before_s)
        self._names.setdefault(strand.where, set()).add(strand.destination)
        self._strands.setdefault(strand.destination, set()).add(strand)
        self._place(strand, way, is_beyond=mark.at > end)

    def leave(self, destination: str) -> None:
        """Forget a destination; its running work continues, but its results no longer count."""
        for strand in self.strands(destination):
            self.let_go_of(strand)
        self._strands.pop(destination, None)

    def let_go_of(self, strand: Strand) -> None:
        """Forget one strand of a destination."""
        del self._ways[strand]
        self._strands[strand.destination].discard(strand)
        self._names[strand.where].discard(strand.destination)
        self._behind.pop(strand, None)
        self._following.discard(strand)
        self._unsure.discard(strand)

    def strands(self, destination: str) -> list[Strand]:
        return list(self._strands.get(destination, ()))

    def of_deleted_topics(self, lives: Mapping[str, str]) -> list[Strand]:
        """Return the strands whose topic was deleted and recreated under the same name."""
        known = ((key, way.life) for key, way in self._ways.items())
        return [key for key, life in known if life and lives.get(key.where.topic, life) != life]

    def hold_back(self, strand: Strand) -> None:
        """Start nothing more for a strand; its running work continues."""
        self._ways[strand].not_before_s = inf

    def is_free(self, strand: Strand) -> bool:
        return self._ways[strand].under_way is None

    def is_under_way(self, strand: Strand) -> bool:
        return strand in self and not self.is_free(strand)

    def behind(self) -> set[str]:
        """The destinations that have something to send."""
        return {strand.destination for strand in self._behind}

    def laggard(self, destination: str) -> Laggard | None:
        ways = [(each, self._ways[each]) for each in self.strands(destination)]
        laggards = [
            Laggard(strand, way.behind_since_s, is_sending=way.under_way is not None)
            for strand, way in ways
            if way.behind_since_s is not None and way.waiting is None
        ]
        return min(laggards, key=lambda each: each.since_s, default=None)

    def see_ends(self, ends: Position, *, as_of_s: float = 0.0) -> bool:
        """Record ends of logs, fetched no earlier than `as_of_s`; True if a log is shorter now."""
        has_shrunk = False
        for where, end in ends.items():
            before = self._ends.get(where, end)
            self._ends[where] = end
            if end == before:
                continue
            has_shrunk |= end < before
            for strand in [Strand(name, where) for name in self._names.get(where, ())]:
                way = self._ways[strand]
                was_beyond = strand in self._behind and way.at > before
                self._place(strand, way, is_beyond=end < before or was_beyond)
                if end < before:
                    way.maybe_sent = min(way.maybe_sent, end)
        for strand in [each for each in self._unsure if each.where in ends]:
            # Before `not_before_s`, the strand's worker may still follow the log.
            if (way := self._ways[strand]).not_before_s <= as_of_s:
                self._unsure.discard(strand)
                way.maybe_sent = self._ends[strand.where]
        return has_shrunk

    def position(self, destination: str, places: Iterable[KafkaPartition]) -> Position:
        ways = {where: self._ways.get(Strand(destination, where)) for where in places}
        return {where: way.at for where, way in ways.items() if way is not None}

    def went(self, strand: Strand, mark: Mark, again_s: float = 0.0) -> bool:
        """Record a written mark; True if it has moved a strand on, or freed it."""
        way = self._ways.get(strand)
        if way is None or way.under_way is None or not mark.is_in(way.life):
            return False
        is_done = mark.done is not None and mark.done == way.under_way.number
        has_moved = is_done or mark.at > way.at
        if has_moved:
            if is_done or mark.at >= min(end_of(way.under_way), mark.until):
                self._free(strand, way)
            self._go_on(strand, way, mark.at)
        if mark.at == way.at:
            way.hear(mark, again_s)
        return has_moved

    def mark(self, strand: Strand) -> Mark:
        way = self._ways[strand]
        end = 0 if way.under_way is None else end_of(way.under_way)
        return way.mark(until=max(way.at, way.maybe_sent, end))

    def mark_of(self, strand: Strand) -> Mark | None:
        """Return a strand's mark; None if the strand is not in this book."""
        return self.mark(strand) if strand in self else None

    def ended(
        self, strand: Strand, span: Span, at: int, block: Block | None = None, again_s: float = 0.0
    ) -> bool:
        """Record a report that a task has done a span up to `at`; True if the span was under way.

        Events behind a `block` are not sent before `again_s`.
        """
        if not self.is_with(strand, span):
            return False
        way = self._ways[strand]
        self._free(strand, way)
        self._go_on(strand, way, at)
        if block is not None:
            way.wait(block, again_s)
        return True

    def blocked(self) -> list[Strand]:
        """Return the strands that wait for one event."""
        return [strand for strand, way in self._ways.items() if way.waiting]

    def try_now(self, strand: Strand) -> None:
        self._ways[strand].wait_until(0.0)

    def _free(self, strand: Strand, way: Way) -> None:
        if way.turn is not None:
            way.turn.done(strand)
        way.under_way = way.turn = None

    def is_with(self, strand: Strand, span: Span) -> bool:
        """Say whether exactly this span is under way; a mark may have ended it earlier."""
        way = self._ways.get(strand)
        return way is not None and way.under_way is span

    def cut(
        self,
        strand: Strand,
        span: Span,
        at: int,
        *,
        not_before_s: float,
        is_suspect: bool = False,
    ) -> None:
        """Treat the rest of a lost span, beyond `at`, as possibly sent: its outcome is unknown."""
        if not self.is_with(strand, span):
            return
        way, known = self._ways[strand], self._ends[strand.where]
        way.maybe_sent = max(way.maybe_sent, OPEN if span.end is None else min(span.end, known))
        if way.maybe_sent >= OPEN:
            self._unsure.add(strand)
        way.under_way, way.not_before_s = None, max(not_before_s, way.again_s)
        way.is_suspect = is_suspect
        if not self._is_beyond(strand):
            self._go_on(strand, way, at)

    def skip(self, strand: Strand, start: int) -> bool:
        """Skip the events that a strand's log has lost; False if it has lost none."""
        way, end = self._ways[strand], self._ends[strand.where]
        if start <= way.at <= end:
            return False
        if way.at > end:
            # The log may still hold sent events, if a broker has lost only its end.
            way.maybe_sent = end
        way.at, way.under_way, way.behind_since_s, way.not_before_s = start, None, None, 0.0
        self._place(strand, way)
        return True

    def _go_on(self, strand: Strand, way: Way, at: int) -> None:
        if at > way.at:
            way.go_on(at)
        self._place(strand, way)

    def _place(self, strand: Strand, way: Way, *, is_beyond: bool = False) -> None:
        end = self._ends[strand.where]
        if way.at < end or (is_beyond and way.at > end):
            self._behind[strand] = way
        else:
            self._behind.pop(strand, None)
            way.behind_since_s = None

    def follow(self, destination: str, *, is_following: bool) -> None:
        """Set whether a destination's strands are to follow their logs."""
        change = self._following.update if is_following else self._following.difference_update
        change(self.strands(destination))

    def plan(
        self, lane_of: Callable[[str], Lane | None], turns: Turns, *, now_s: float
    ) -> list[Job]:
        """Plan the next jobs, whose spans are then under way; without a lane, send nothing."""
        lanes: dict[str, Lane] = {}
        ready: dict[str, list[Strand]] = {}
        alone: list[dict[Strand, Span]] = []
        hanging = turns.hanging(now_s=now_s)
        for strand, lane in self._ready(partial(self._lane_now, lane_of, hanging), now_s):
            lanes[strand.destination] = lane
            if self._is_beyond(strand):
                # Other strands still read from that log, so this one gets a job of its own.
                way = self._ways[strand]
                alone.append({strand: Span(way.at, way.at + 1, life=way.life)})
            else:
                ready.setdefault(strand.destination, []).append(strand)
        shared: dict[JobKind, dict[Strand, Span]] = {}
        may_start = cache(partial(turns.may_start, now_s=now_s))
        for name, waiting in ready.items():
            lane, is_alone = lanes[name], self._is_alone(lanes[name], waiting)
            # When hundreds wait for their turn, looking further would cost more than anything else.
            if not (is_alone or may_start(lane.kind, lane.tenant)):
                continue
            sent_count = self._sent_count(name)
            if not (strands := self._in_turn(lane, waiting, sent_count)):
                continue
            share = max(1, ceil(lane.events_max / (len(strands) + sent_count)))
            spans = {each: self._span(each, lane, share, is_alone=is_alone) for each in strands}
            if is_alone:
                # Some Kafka partitions that it also follows may have no events.
                alone.append({it: span for it, span in spans.items() if span.begin < end_of(span)})
            else:
                shared.setdefault(lane.kind, {}).update(spans)
        # If not all can start, prefer tenants with fewer places, then strands that waited longer.
        lent_to = turns.lent_to(now_s=now_s) if alone else Counter()
        alone.sort(
            key=lambda spans: min(
                (lent_to[lanes[each.destination].tenant], self._ways[each].behind_since_s or 0)
                for each in spans
            )
        )
        jobs: list[Job] = []
        for spans in alone:
            if not (started := list(self._started(JobKind.ALONE, spans, lanes, turns, now_s))):
                # The next time, another tenant may be first, even one with more places.
                break
            jobs += started
        for kind, spans in shared.items():
            jobs += self._started(kind, spans, lanes, turns, now_s)
        return jobs

    def _lane_now(
        self, lane_of: Callable[[str], Lane | None], hanging: Collection[Turn], name: str
    ) -> Lane | None:
        """Return a destination's lane; of kind APART while a job has waited too long for it."""
        lane = lane_of(name)
        if lane is None or not hanging:
            return lane
        ways = (self._ways[each] for each in self._strands[name])
        is_hanging = any(way.under_way and way.turn in hanging for way in ways)
        return replace(lane, kind=JobKind.APART) if is_hanging else lane

    def _started(
        self,
        kind: JobKind,
        spans: Mapping[Strand, Span],
        lanes: Mapping[str, Lane],
        turns: Turns,
        now_s: float,
    ) -> Iterator[Job]:
        """Start jobs for as many strands as can have task places."""
        tenants = {each.destination: lanes[each.destination].tenant for each in spans}
        turns.pause(kind, Counter(tenants[each.destination] for each in spans), now_s=now_s)
        follow_s = turns.follows_s(now_s=now_s) if kind is JobKind.FOLLOWING else 0.0
        for worker, crew in crews(kind, spans, turns.workers(kind)).items():
            if follow_s and turns.is_joined_soon(worker, now_s=now_s):
                continue
            wanted = {tenants[each.destination] for each in crew}
            for grant in turns.grants(kind, worker, wanted, now_s=now_s):
                mine = {key: crew[key] for key in crew if tenants[key.destination] in grant.tenants}
                tasks = packed(units_of(mine), kind, grant.task_count_max)
                job = Job(kind, tasks, worker, grant.is_hurried, follow_s)
                self._begin(mine, lanes, turns.start(job, tenants, now_s=now_s))
                yield job

    def _ready(
        self, lane_of: Callable[[str], Lane | None], now_s: float
    ) -> Iterator[tuple[Strand, Lane]]:
        """Yield the strands that may be sent now, with their lanes."""
        lanes: dict[str, Lane] = {}
        others = ((each, self._ways[each]) for each in self._following - self._behind.keys())
        for strand, way in chain(self._behind.items(), others):
            name = strand.destination
            if way.behind_since_s is None and strand in self._behind:
                way.behind_since_s = now_s
            if way.under_way or way.not_before_s > now_s or strand in self._unsure:
                continue
            if name not in lanes and (lane := lane_of(name)):
                lanes[name] = lane
            if name in lanes and self._is_due(way, strand, lanes[name], now_s):
                yield strand, lanes[name]

    def _is_beyond(self, strand: Strand) -> bool:
        """Say whether a strand is beyond the end of its log, as happens if its topic is recreated.

        The log is read nevertheless: Kafka's answer then shows that the lane has lost events.
        """
        return strand in self._behind and self._ways[strand].at > self._ends[strand.where]

    def _is_alone(self, lane: Lane, strands: Sequence[Strand]) -> bool:
        """Say whether a destination would harm others in a job: far behind, or may crash it."""
        is_far = lane.kind is not JobKind.APART and any(map(self._is_far, strands))
        suspects = (each for each in strands if self._ways[each].is_suspect)
        return is_far or any(each in self._behind for each in suspects)

    def _is_far(self, strand: Strand) -> bool:
        return self._ends[strand.where] - self._ways[strand].at > NEAR

    def _is_due(self, way: Way, strand: Strand, lane: Lane, now_s: float) -> bool:
        """Say whether there is something to send, and no reason to wait for a fuller batch."""
        count = self._ends[strand.where] - way.at
        if lane.kind is JobKind.FOLLOWING or self._is_beyond(strand):
            return True
        waited_s = 0.0 if way.behind_since_s is None else now_s - way.behind_since_s
        to = lane.destination
        return count >= to.batch_count_max or (count > 0 and waited_s >= to.linger_s)

    def _sent_count(self, destination: str) -> int:
        """Count a destination's strands that are sending now, without those that follow logs."""
        spans = [self._ways[each].under_way for each in self._strands[destination]]
        return sum(span is not None and span.end is not None for span in spans)

    def _in_turn(self, lane: Lane, ready: Sequence[Strand], sent_count: int) -> Sequence[Strand]:
        """Return the strands of a destination that may be sent now, longest wait first.

        If the destination is in trouble, all of them may, as its events are soon parked.
        """
        room = max(0, lane.strands_max - sent_count)
        if len(ready) <= room or lane.kind is not JobKind.SHARED:
            return ready
        return sorted(ready, key=lambda each: self._ways[each].behind_since_s or 0.0)[:room]

    def _span(self, strand: Strand, lane: Lane, share: int, *, is_alone: bool = False) -> Span:
        at, maybe_sent = (way := self._ways[strand]).at, way.maybe_sent
        if maybe_sent > at:
            # Possibly sent events go separately, in the same whole batches as before, labelled.
            batch_count = lane.destination.request_count_max
            count = max(1, share // batch_count) * batch_count
            return Span(at, min(maybe_sent, at + count), maybe_sent, way.waiting, life=way.life)
        if lane.kind is JobKind.FOLLOWING and not is_alone:
            self.number += 1
            return Span(at, None, number=self.number, life=way.life)
        end = max(at, min(self._ends[strand.where], at + share))
        return Span(at, end, waiting=way.waiting, life=way.life)

    def _begin(self, spans: Mapping[Strand, Span], lanes: Mapping[str, Lane], turn: Turn) -> None:
        for strand, span in spans.items():
            self._ways[strand].under_way, self._ways[strand].turn = span, turn
        for name in {strand.destination for strand in spans}:
            if rest_s := lanes[name].rest_s:
                # A turn is for the whole lane: events in other Kafka partitions wait for the next
                # one. Unsure strands have a wait of their own.
                for strand in self._strands[name] - self._unsure:
                    way = self._ways[strand]
                    way.not_before_s = max(way.not_before_s, turn.since_s + rest_s)
