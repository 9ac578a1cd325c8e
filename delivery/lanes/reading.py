"""Reads the units of a task, and hands each destination its part as it comes."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from delivery.event_columns import Fetched
from delivery.lanes.units import Strand, Unit
from shared.event.record import KafkaPartition
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import FetchAnswer, LogClient
from shared.runtime.setup_error import KafkaUnavailableError

# How long a broker may hold a fetch that finds nothing.
_WAIT_MS = 500
# A broker that answers nothing of what there is to read, for so long, is down.
_SILENCE_S_MAX = 30.0
_AGAIN_S = 0.2
# What a task holds of events that are not settled yet: three answers, so that it reads while it
# sends, and 32 tasks at once fit into the memory of a small machine.
_BYTES_MAX = 24 * 1_048_576

_offset_of = attrgetter("offset")


class DataLostError(Exception):
    """What is to be read is gone from the log."""


@dataclass(slots=True)
class Share:
    """Events that came, for one strand, and the offset behind them."""

    rows: Fetched
    reached: int
    # None: what comes behind these events in the same chunk is still to be settled.
    chunk: "Chunk | None"

    def split_at(self, count: int) -> "tuple[Share, Share]":
        where, records = self.rows.where, self.rows.records
        return (
            Share(Fetched(where, records[:count]), records[count - 1].offset + 1, None),
            Share(Fetched(where, records[count:]), self.reached, self.chunk),
        )

    def done(self) -> None:
        if self.chunk is not None:
            self.chunk.done()


@dataclass(slots=True, eq=False)
class Chunk:
    """Events that are held for as long as a strand needs them."""

    byte_count: int
    strands_left: int
    release: Callable[[int], None]

    def done(self) -> None:
        self.strands_left -= 1
        if not self.strands_left:
            self.release(self.byte_count)


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
    _has_room: asyncio.Event = field(default_factory=asyncio.Event)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)

    async def run(self) -> None:
        """Returns when every queue has had its last. Never raises: others share the task."""
        self._has_room.set()
        now_s = asyncio.get_running_loop().time()
        async with self._group:
            by_node: dict[int, list[_Place]] = {}
            for unit in self.units:
                place, node = _Place(unit, unit.begin, now_s), self.leaders.get(unit.where)
                if node is None:
                    self._look_for(place, f"{unit.where.topic} has no leader just now")
                else:
                    by_node.setdefault(node, []).append(place)
            for node, places in by_node.items():
                self._group.create_task(self._read(node, places))

    async def _read(self, node: int, places: list[_Place]) -> None:
        """Read from one broker, until all is read or somebody else has it."""
        while True:
            places = [each for each in places if not self._is_over(each, "nothing came")]
            if not places:
                return
            await self._has_room.wait()
            try:
                answers = await self._fetch(node, places, self._wait_ms())
            except AWAY as error:
                for place in places:
                    self._look_for(place, repr(error))
                return
            now_s = asyncio.get_running_loop().time()
            for place in list(places):
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
            return await self.log.fetch(node, position, wait_ms=wait_ms)
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
        left_ms = int(1000 * (self.until_s - asyncio.get_running_loop().time()))
        return min(_WAIT_MS, left_ms) if left_ms > 0 else _WAIT_MS

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
        size = sum(len(record.value or b"") for record in answer.records)
        chunk = Chunk(size, len(parts), self._release)
        if not parts:
            return
        self._hold(size)
        for strand, mine, reached in parts:
            self.queues[strand].put_nowait(Share(Fetched(unit.where, mine), reached, chunk))
            if reached == unit.spans[strand.destination].end:
                self._tell_last(strand, None)
        if not self._has_room.is_set():
            for strand in self.queues.keys() - self._over:
                self.queues[strand].put_nowait(NoRoom())

    async def _skip_to_start(self, place: _Place) -> None:
        """Go on for those whose events are all there; the others are told."""
        unit = place.unit
        starts = await self.log.starts([unit.where])
        start = starts.get(unit.where)
        is_lost = {
            name: start is None or span.begin < start or place.at > start
            for name, span in unit.spans.items()
        }
        for name, lost in is_lost.items():
            if lost:
                error = DataLostError(
                    f"{unit.where.topic}, Kafka partition {unit.where.partition}, has nothing at"
                    f" {place.at} any more; it begins at {start}"
                )
                self._tell_last(Strand(name, unit.where), error)
        if start is not None:
            place.at = start

    def _end(self, unit: Unit, why: Exception | None = None) -> None:
        for strand in unit.strands:
            self._tell_last(strand, why)

    def _tell_last(self, strand: Strand, why: Exception | None) -> None:
        if strand not in self._over:
            self._over.add(strand)
            self.queues[strand].put_nowait(why)

    def _hold(self, byte_count: int) -> None:
        self._bytes += byte_count
        if self._bytes >= _BYTES_MAX:
            self._has_room.clear()

    def _release(self, byte_count: int) -> None:
        self._bytes -= byte_count
        if self._bytes < _BYTES_MAX:
            self._has_room.set()
