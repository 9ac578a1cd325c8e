"""Reads the units of a task, and gives each destination its part as it arrives."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from operator import attrgetter

from delivery.event_columns import FetchedRecords
from delivery.lanes.units import Strand, Unit
from shared.event.record import KafkaPartition
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import ANSWER_BYTES_MAX, FetchAnswer, LogClient
from shared.runtime.setup_error import KafkaUnavailableError

# How long a broker may hold a fetch that finds nothing.
_WAIT_MS = 500
# A broker that returns no records to read for this long is down.
_SILENCE_S_MAX = 30.0
_AGAIN_S = 0.2
# In a task, events without an outcome take at most this many bytes. These are three answers of a
# broker: so the task reads while it sends, and 32 tasks at once fit into a small machine's memory.
_BYTES_MAX = 24 * 1_048_576
# An event's overhead besides its bytes: objects for itself, its numbers and its headers.
_EVENT_BYTES = 700
# A strand that hangs may fill that memory, but delays no other: a strand whose events all have an
# outcome gets one more record batch. A task holds at most 24 MiB, plus one answer, plus this amount
# for each strand.
_LEAST_BYTES = 1_048_576
# Strands that share a unit with one that hangs wait for it this long, once. Then the unit reads no
# more for that one, which continues in another job when it can.
_SETTLE_S_MAX = 1.0
# While memory is full, others may settle their events before an answer arrives.
_FULL_WAIT_MS = 50

_offset_of = attrgetter("offset")


class DataLostError(Exception):
    """The events to read are gone from the log."""


@dataclass(slots=True)
class Portion:
    """Events that arrived for one strand, and the offset behind them."""

    rows: FetchedRecords
    reached: int
    # Frees the chunk; None while later events of the same chunk are still to be settled.
    let_go: Callable[[], None] | None

    def split_at(self, count: int) -> "tuple[Portion, Portion]":
        where, records = self.rows.where, self.rows.records
        return (
            Portion(FetchedRecords(where, records[:count]), records[count - 1].offset + 1, None),
            Portion(FetchedRecords(where, records[count:]), self.reached, self.let_go),
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
    """Tells a strand that it gets no more events until it has settled some of those it has."""


# The queue of a strand; None is its last item.
Came = asyncio.Queue[Portion | NoRoom | Exception | None]


@dataclass(slots=True, eq=False)
class _ReadPlace:
    """The progress of reading a unit."""

    unit: Unit
    at: int
    # When a broker last returned records of the unit.
    heard_s: float


@dataclass(slots=True)
class Reading:
    """Reads the units of one task from their leaders into the strands' queues."""

    units: Sequence[Unit]
    leaders: Mapping[KafkaPartition, int]
    log: LogClient
    # When followers have to end, in the loop's time.
    until_s: float
    queues: Mapping[Strand, Came]
    # Strands whose queues already have their last item.
    _over: set[Strand] = field(default_factory=set)
    _bytes: int = 0
    # The number of chunks that each strand has not settled yet, and when it last settled one.
    _unsettled: Counter[Strand] = field(default_factory=Counter)
    _since_s: dict[Strand, float] = field(default_factory=dict)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)

    async def run(self) -> None:
        """Return once every queue has its last item. Never raises: others share the task."""
        now_s = asyncio.get_running_loop().time()
        async with self._group:
            # A fetch asks for one offset of each Kafka partition: distant units need a fetch each.
            by_node: dict[tuple[int, int], list[_ReadPlace]] = {}
            seen: Counter[KafkaPartition] = Counter()
            for unit in self.units:
                seen[unit.where] += 1
                place, node = _ReadPlace(unit, unit.begin, now_s), self.leaders.get(unit.where)
                if node is None:
                    self._look_for(place, f"{unit.where.topic} has no leader just now")
                else:
                    by_node.setdefault((node, seen[unit.where]), []).append(place)
            for (node, _), places in by_node.items():
                self._group.create_task(self._read(node, places))

    async def _read(self, node: int, places: list[_ReadPlace]) -> None:
        """Read from one broker, until everything is read or another broker leads."""
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
                    # A follower's broker may stay silent, as there may be no events.
                    elif await self._take(place, answer) or place.unit.end is None:
                        place.heard_s = now_s
                except Exception as error:  # noqa: BLE001 - told to the strands concerned
                    self._end(place.unit, error)

    async def _fetch(
        self, node: int, places: Sequence[_ReadPlace], wait_ms: int
    ) -> dict[KafkaPartition, FetchAnswer]:
        try:
            position = {each.unit.where: each.at for each in places}
            bytes_max = _LEAST_BYTES if self._is_full else ANSWER_BYTES_MAX
            return await self.log.fetch(node, position, wait_ms=wait_ms, bytes_max=bytes_max)
        except AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - told to the strands concerned
            if len(places) == 1:
                self._end(places[0].unit, error)
                return {}
        # Fetch each separately, which shows the one that fails.
        answers: dict[KafkaPartition, FetchAnswer] = {}
        for place in places:
            answers |= await self._fetch(node, [place], 0)
        return answers

    def _look_for(self, place: _ReadPlace, why: str) -> None:
        """Look for a new leader, as the broker is away or no longer leads."""
        self._group.create_task(self._find(place, why))

    async def _find(self, place: _ReadPlace, why: str) -> None:
        where = place.unit.where
        while not self._is_over(place, why):
            await asyncio.sleep(_AGAIN_S)
            try:
                await self.log.ask_leaders({unit.where.topic for unit in self.units})
            except AWAY as error:
                why = repr(error)
                continue
            except Exception as error:  # noqa: BLE001 - told to the strands concerned
                self._end(place.unit, error)
                return
            node = self.log.leaders([where]).get(where)
            if node is not None:
                self._group.create_task(self._read(node, [place]))
                return

    def _wait_ms(self) -> int:
        most_ms = _FULL_WAIT_MS if self._is_full else _WAIT_MS
        # Round up: a remaining fraction of a millisecond must not become the longest wait.
        left_ms = ceil(1000 * (self.until_s - asyncio.get_running_loop().time()))
        return min(most_ms, left_ms) if left_ms > 0 else most_ms

    @property
    def _is_full(self) -> bool:
        return self._bytes >= _BYTES_MAX

    def _with_room(self, places: Sequence[_ReadPlace]) -> list[_ReadPlace]:
        """Return the places that may be read now, the longest unread first."""
        if not self._is_full:
            return list(places)
        now_s, ready = asyncio.get_running_loop().time(), []
        for place in places:
            if self._has_settled(place, now_s):
                ready.append(place)
            else:
                # Nothing is asked of the broker here, so its silence is no fault.
                place.heard_s = now_s
        return sorted(ready, key=lambda each: each.heard_s)

    def _has_settled(self, place: _ReadPlace, now_s: float) -> bool:
        """Say whether to read on although memory is full.

        Some strand must have settled all its events, and all others must hang: they get no more.
        """
        strands = [each for each in place.unit.strands if each not in self._over]
        unsettled = [each for each in strands if self._unsettled[each]]
        hanging = [each for each in unsettled if now_s - self._since_s[each] > _SETTLE_S_MAX]
        if len(unsettled) < len(strands) and len(hanging) == len(unsettled):
            for strand in hanging:
                self._tell_last(strand, None)
            return True
        for strand in unsettled:
            if self.queues[strand].empty():
                # The strand may be waiting for more events before it settles those that it has.
                self.queues[strand].put_nowait(NoRoom())
        return False

    def _is_over(self, place: _ReadPlace, why: str) -> bool:
        """Say whether everything is read, or no broker has answered for too long."""
        unit, now_s = place.unit, asyncio.get_running_loop().time()
        if unit.end is None and now_s >= self.until_s:
            self._end(unit)
        elif now_s - place.heard_s > _SILENCE_S_MAX:
            self._end(unit, KafkaUnavailableError(f"{why}, for {_SILENCE_S_MAX:g} s"))
        return self._over.issuperset(unit.strands)

    async def _take(self, place: _ReadPlace, answer: FetchAnswer) -> bool:
        """Process an answer; True if it had something new."""
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
            self.queues[strand].put_nowait(
                Portion(FetchedRecords(unit.where, mine), reached, let_go)
            )
            if reached == unit.spans[strand.destination].end:
                self._tell_last(strand, None)
        if self._is_full:
            strands = {strand for strand, _, _ in parts} if was_full else self.queues.keys()
            for strand in strands - self._over:
                self.queues[strand].put_nowait(NoRoom())

    async def _skip_to_start(self, place: _ReadPlace) -> None:
        """Continue for strands whose events all exist; end the others with an error."""
        unit = place.unit
        starts = await self.log.starts([unit.where])
        if (start := starts.get(unit.where)) is None:
            # Without a leader we cannot know that events are lost.
            await asyncio.sleep(_AGAIN_S)
            return
        is_lost = {
            name: span.begin < start or place.at > start for name, span in unit.spans.items()
        }
        for name, lost in is_lost.items():
            if lost:
                error = DataLostError(
                    f"{unit.where.topic}, Kafka partition {unit.where.partition}, no longer has"
                    f" the event at {place.at}; it begins at {start}"
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
        if not self._unsettled[strand]:
            self._since_s[strand] = asyncio.get_running_loop().time()
        self._unsettled[strand] += 1

    def _let_go(self, chunk: Chunk, strand: Strand) -> None:
        self._unsettled[strand] -= 1
        self._since_s[strand] = asyncio.get_running_loop().time()
        chunk.strands_left -= 1
        if not chunk.strands_left:
            self._bytes -= chunk.byte_count
        self._freed.set()
