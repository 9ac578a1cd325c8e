"""Reads the units of a task, and hands each destination its part as it comes."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from operator import attrgetter

from delivery.event_columns import Fetched
from delivery.lanes.units import Strand, Unit
from shared.event.record import KafkaPartition
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import ANSWER_BYTES_MAX, FetchAnswer, LogClient
from shared.runtime.setup_error import KafkaUnavailableError

# How long a broker may hold a fetch that finds nothing.
_WAIT_MS = 500
# A broker that answers nothing of what there is to read, for so long, is down.
_SILENCE_S_MAX = 30.0
_AGAIN_S = 0.2
# What a task holds of events that are not settled yet: three answers, so that it reads while it
# sends, and 32 tasks at once fit into the memory of a small machine.
_BYTES_MAX = 24 * 1_048_576
# What an event is besides its bytes: objects for itself, its numbers and its headers.
_EVENT_BYTES = 700
# One that hangs may fill that, and holds up nobody: who has settled all that came has so much more,
# as one record batch can have. A task holds 24 MiB, an answer, and this for each strand at most.
_LEAST_BYTES = 1_048_576
# Who shares a unit with one that hangs waits for it so long, once; then that one is read no more
# for, and goes on in another job when it can.
_HELD_S_MAX = 1.0
# While memory is full, others may settle what they have before anything comes.
_FULL_WAIT_MS = 50

_offset_of = attrgetter("offset")


class DataLostError(Exception):
    """What is to be read is gone from the log."""


@dataclass(slots=True)
class Share:
    """Events that came, for one strand, and the offset behind them."""

    rows: Fetched
    reached: int
    # None: what comes behind these events in the same chunk is still to be settled.
    let_go: Callable[[], None] | None

    def split_at(self, count: int) -> "tuple[Share, Share]":
        where, records = self.rows.where, self.rows.records
        return (
            Share(Fetched(where, records[:count]), records[count - 1].offset + 1, None),
            Share(Fetched(where, records[count:]), self.reached, self.let_go),
        )

    def done(self) -> None:
        if self.let_go is not None:
            self.let_go()


@dataclass(slots=True, eq=False)
class Chunk:
    """Events that are held for as long as a strand needs them."""

    byte_count: int
    strands_left: int


class NoRoom:
    """Nothing more comes before some of what has come is settled."""


# What comes for a strand; None once there is no more.
Came = asyncio.Queue[Share | NoRoom | Exception | None]


@dataclass(slots=True, eq=False)
class _Place:
    """How far the reading of a unit is."""

    unit: Unit
    at: int
    # When a broker has last said something of it.
    heard_s: float


@dataclass(slots=True)
class Reading:
    """The units of one task, from their leaders to the strands' queues."""

    units: Sequence[Unit]
    leaders: Mapping[KafkaPartition, int]
    log: LogClient
    # When what follows its log has to end, of the loop's time.
    until_s: float
    queues: Mapping[Strand, Came]
    # Whoever has been told already that there is no more.
    _over: set[Strand] = field(default_factory=set)
    _bytes: int = 0
    # How much each strand has not settled yet, in chunks, and since when it has not gone on.
    _held: Counter[Strand] = field(default_factory=Counter)
    _held_since_s: dict[Strand, float] = field(default_factory=dict)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)

    async def run(self) -> None:
        """Returns when every queue has had its last. Never raises: others share the task."""
        now_s = asyncio.get_running_loop().time()
        async with self._group:
            # A fetch asks for one place of each Kafka partition; units far apart have one each.
            by_node: dict[tuple[int, int], list[_Place]] = {}
            seen: Counter[KafkaPartition] = Counter()
            for unit in self.units:
                seen[unit.where] += 1
                place, node = _Place(unit, unit.begin, now_s), self.leaders.get(unit.where)
                if node is None:
                    self._look_for(place, f"{unit.where.topic} has no leader just now")
                else:
                    by_node.setdefault((node, seen[unit.where]), []).append(place)
            for (node, _), places in by_node.items():
                self._group.create_task(self._read(node, places))

    async def _read(self, node: int, places: list[_Place]) -> None:
        """Read from one broker, until all is read or somebody else has it."""
        while True:
            places = [each for each in places if not self._is_over(each, "nothing came")]
            if not places:
                return
            ready = self._with_room(places)
            if not ready:
                self._freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_S):
                        await self._freed.wait()
                continue
            try:
                answers = await self._fetch(node, ready, self._wait_ms())
            except AWAY as error:
                for place in places:
                    self._look_for(place, repr(error))
                return
            now_s = asyncio.get_running_loop().time()
            for place in ready:
                try:
                    answer = answers[place.unit.where]
                    if answer.is_moved:
                        self._look_for(place, repr(answer.error))
                        places.remove(place)
                    # Of what follows its log nothing is owed.
                    elif await self._take(place, answer) or place.unit.end is None:
                        place.heard_s = now_s
                except Exception as error:  # noqa: BLE001 - told to whom it concerns
                    self._end(place.unit, error)

    async def _fetch(
        self, node: int, places: Sequence[_Place], wait_ms: int
    ) -> dict[KafkaPartition, FetchAnswer]:
        try:
            position = {each.unit.where: each.at for each in places}
            bytes_max = _LEAST_BYTES if self._is_full else ANSWER_BYTES_MAX
            return await self.log.fetch(node, position, wait_ms=wait_ms, bytes_max=bytes_max)
        except AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - told to whom it concerns
            if len(places) == 1:
                self._end(places[0].unit, error)
                return {}
        # With which of them it is shows when each is asked for by itself.
        found: dict[KafkaPartition, FetchAnswer] = {}
        for place in places:
            found |= await self._fetch(node, [place], 0)
        return found

    def _look_for(self, place: _Place, why: str) -> None:
        """Its broker is away, or leads it no more."""
        self._group.create_task(self._find(place, why))

    async def _find(self, place: _Place, why: str) -> None:
        where = place.unit.where
        while not self._is_over(place, why):
            await asyncio.sleep(_AGAIN_S)
            try:
                await self.log.ask_leaders({unit.where.topic for unit in self.units})
            except AWAY as error:
                why = repr(error)
                continue
            except Exception as error:  # noqa: BLE001 - told to whom it concerns
                self._end(place.unit, error)
                return
            node = self.log.leaders([where]).get(where)
            if node is not None:
                self._group.create_task(self._read(node, [place]))
                return

    def _wait_ms(self) -> int:
        most_ms = _FULL_WAIT_MS if self._is_full else _WAIT_MS
        # Rounded up: what is left of a millisecond is no reason to wait as if nothing ended.
        left_ms = ceil(1000 * (self.until_s - asyncio.get_running_loop().time()))
        return min(most_ms, left_ms) if left_ms > 0 else most_ms

    @property
    def _is_full(self) -> bool:
        return self._bytes >= _BYTES_MAX

    def _with_room(self, places: Sequence[_Place]) -> list[_Place]:
        """Those that may be read now; who was not for longest is the first."""
        if not self._is_full:
            return list(places)
        now_s, ready = asyncio.get_running_loop().time(), []
        for place in places:
            if self._has_settled(place, now_s):
                ready.append(place)
            else:
                # It is not its broker's silence.
                place.heard_s = now_s
        return sorted(ready, key=lambda each: each.heard_s)

    def _has_settled(self, place: _Place, now_s: float) -> bool:
        """Whether nobody would have more of it than it must, were it read on."""
        strands = [each for each in place.unit.strands if each not in self._over]
        held = [each for each in strands if self._held[each]]
        hanging = [each for each in held if now_s - self._held_since_s[each] > _HELD_S_MAX]
        if len(held) < len(strands) and len(hanging) == len(held):
            for strand in hanging:
                self._tell_last(strand, None)
            return True
        for strand in held:
            if self.queues[strand].empty():
                # It may wait for more, with what it has.
                self.queues[strand].put_nowait(NoRoom())
        return False

    def _is_over(self, place: _Place, why: str) -> bool:
        """Whether there is nothing more to read, or nobody to read it from for too long."""
        unit, now_s = place.unit, asyncio.get_running_loop().time()
        if unit.end is None and now_s >= self.until_s:
            self._end(unit)
        elif now_s - place.heard_s > _SILENCE_S_MAX:
            self._end(unit, KafkaUnavailableError(f"{why}, for {_SILENCE_S_MAX:g} s"))
        return self._over.issuperset(unit.strands)

    async def _take(self, place: _Place, answer: FetchAnswer) -> bool:
        """Whether that was something new."""
        unit = place.unit
        if answer.is_gone:
            await self._skip_to_start(place)
        elif answer.error is not None:
            self._end(unit, answer.error)
        elif answer.reached != place.at:
            place.at = answer.reached
            self._hand_on(unit, answer)
            if unit.end is not None and answer.reached >= unit.end:
                self._end(unit)
            return True
        return False

    def _hand_on(self, unit: Unit, answer: FetchAnswer) -> None:
        parts = []
        for name, span in unit.spans.items():
            first = bisect_left(answer.records, span.begin, key=_offset_of)
            last = len(answer.records)
            if span.end is not None and span.end < answer.reached:
                last = bisect_left(answer.records, span.end, key=_offset_of)
            reached = answer.reached if span.end is None else min(answer.reached, span.end)
            if reached > span.begin and Strand(name, unit.where) not in self._over:
                is_all = first == 0 and last == len(answer.records)
                mine = answer.records if is_all else answer.records[first:last]
                parts.append((Strand(name, unit.where), mine, reached))
        size = sum(
            _EVENT_BYTES + len(record.value or b"") + len(record.key or b"")
            for record in answer.records
        )
        if not parts:
            return
        chunk, was_full = Chunk(size, len(parts)), self._is_full
        self._bytes += size
        for strand, mine, reached in parts:
            self._hold(strand)
            let_go = partial(self._let_go, chunk, strand)
            self.queues[strand].put_nowait(Share(Fetched(unit.where, mine), reached, let_go))
            if reached == unit.spans[strand.destination].end:
                self._tell_last(strand, None)
        if self._is_full:
            told = {strand for strand, _, _ in parts} if was_full else self.queues.keys()
            for strand in told - self._over:
                self.queues[strand].put_nowait(NoRoom())

    async def _skip_to_start(self, place: _Place) -> None:
        """Go on for those whose events are all there; the others are told."""
        unit = place.unit
        starts = await self.log.starts([unit.where])
        if (start := starts.get(unit.where)) is None:
            # It has no leader just now, so nobody can say that it is lost.
            await asyncio.sleep(_AGAIN_S)
            return
        is_lost = {
            name: span.begin < start or place.at > start for name, span in unit.spans.items()
        }
        for name, lost in is_lost.items():
            if lost:
                error = DataLostError(
                    f"{unit.where.topic}, Kafka partition {unit.where.partition}, has nothing at"
                    f" {place.at} any more; it begins at {start}"
                )
                self._tell_last(Strand(name, unit.where), error)
        place.at = start

    def _end(self, unit: Unit, why: Exception | None = None) -> None:
        for strand in unit.strands:
            self._tell_last(strand, why)

    def _tell_last(self, strand: Strand, why: Exception | None) -> None:
        if strand not in self._over:
            self._over.add(strand)
            self.queues[strand].put_nowait(why)

    def _hold(self, strand: Strand) -> None:
        if not self._held[strand]:
            self._held_since_s[strand] = asyncio.get_running_loop().time()
        self._held[strand] += 1

    def _let_go(self, chunk: Chunk, strand: Strand) -> None:
        self._held[strand] -= 1
        self._held_since_s[strand] = asyncio.get_running_loop().time()
        chunk.strands_left -= 1
        if not chunk.strands_left:
            self._bytes -= chunk.byte_count
        self._freed.set()
