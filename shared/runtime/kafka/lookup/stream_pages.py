"""Reads the events of a stream in pages: the newest ones, or all from some point on."""

import heapq
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from shared.event.places import Places, Stretches, last_part
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.runtime.kafka.lookup.stream_spread import (
    LastHour,
    NewestEvents,
    last_hours,
    newest_of_fullest,
)
from shared.runtime.kafka.reader import KafkaReader, open_reader

# The size limit of a page, whatever the requested number of events; a larger event comes alone.
PAGE_BYTES_MAX = 4_000_000
# When reading back, read this many of each Kafka partition at a time: one or two fetches.
_CHUNK = 2_000
# When reading ahead: 10 ms of work, which other tasks in the process hardly notice.
_AT_A_TIME = 500
# The smallest chunk: one fetch returns this many anyway.
_CHUNK_MIN = 20
# How long people wait patiently for a page.
_SEARCH_S_MAX = 5.0
# The time between two reads of a follow; meanwhile we do not notice that a client has left.
_FOLLOW_S = 1.0
_REQUEST_TIMEOUT_MS = 5_000
# The bytes of a fetch, kept low because many clients read at the same time.
_FETCH_BYTES_MAX, _PARTITION_BYTES_MAX = 2_000_000, 500_000
_CURSOR = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18}){0,9999}", re.ASCII)

Wanted = Callable[[RecordIn], bool]
_Offsets = dict[KafkaPartition, int]


@dataclass(frozen=True, slots=True)
class Cursor:
    """A point in a stream: an offset of each Kafka partition, ordered by partition."""

    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return ".".join(map(str, self.offsets))

    @classmethod
    def of(cls, text: str) -> "Cursor":
        """Parse a cursor; raise ValueError if the text is not one."""
        if not _CURSOR.fullmatch(text):
            raise ValueError("it is not a cursor: use `newer` or `older` of a page")
        return cls(tuple(map(int, text.split("."))))


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Some events, and where to continue."""

    records: tuple[RecordIn, ...]
    # Where events after these begin; for the newest ones, the current end of the stream.
    newer: Cursor
    # Where older events end; None if there are none, or if this was read from some point on.
    older: Cursor | None = None
    # False if time was too short to read everything; the cursors continue from there.
    is_complete: bool = True
    # For a page from some point on: whether it reaches the end.
    is_last: bool = True


class StreamPages:
    """Reads the streams of one Kafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers

    async def newest(
        self,
        topic: str,
        *,
        count: int,
        wanted: Wanted,
        before: Cursor | int | None = None,
        among: Stretches | None = None,
        goes_on: bool = False,
        besides: Places | None = None,
    ) -> StreamPage:
        """Return the newest wanted events, the newest first.

        `before` is a cursor or a time in ms. `among` limits the search to these stretches; if it
        `goes_on`, the next page continues with events older than them. `besides` skips
        stretches that an index knows completely.
        """
        async with self._open() as log:
            spans = await log.spans([topic])
            firsts = {where: first for where, (first, _) in spans.items()}
            ends = {where: end for where, (_, end) in spans.items()}
            if isinstance(before, int):
                begins = {**ends, **await log.offsets_at(dict.fromkeys(ends, before))}
            else:
                begins = _at(before, spans, otherwise=ends)
            if among is None:
                among = (besides or Places()).unknown(spans)
            walk = _WalkBack(count, wanted, firsts, begins, among)
            is_complete = await walk.run(log)
            if is_complete and not goes_on:
                walk.pass_rest()
        older = walk.older()
        return StreamPage(
            walk.newest_first(),
            newer=_cursor(ends),
            older=_cursor(older) if older != firsts else None,
            is_complete=is_complete,
        )

    async def since(
        self, topic: str, start: Cursor | int, *, count: int, wanted: Wanted
    ) -> StreamPage:
        """Return the events from a cursor or a time in ms on."""
        async with self._open() as log:
            spans = await log.spans([topic])
            ends = {where: end for where, (_, end) in spans.items()}
            if isinstance(start, int):
                at = {**ends, **await log.offsets_at(dict.fromkeys(ends, start))}
            else:
                at = _onwards(start, spans)
            page = _PageAhead(count, wanted, at)
            is_complete = await page.read(log, ends, until_s=time.monotonic() + _SEARCH_S_MAX)
        return StreamPage(
            tuple(page.records),
            newer=_cursor(page.at),
            is_complete=is_complete,
            is_last=all(at >= ends[where] for where, at in page.at.items()),
        )

    async def at(self, place: Origin) -> RecordIn | None:
        """Return the event at a place; None if it does not exist, or no longer exists."""
        records: list[RecordIn] = []
        async with self._open() as log:
            first, end = (await log.spans([place.topic])).get(place.log, (0, 0))
            if first <= place.offset < end:
                only = log.range({place.log: (place.offset, place.offset + 1)})
                await only.each(records.append, until_s=time.monotonic() + _SEARCH_S_MAX)
        return records[0] if records else None

    async def coming(
        self, topic: str, start: Cursor, *, count: int, wanted: Wanted, wait_s: float
    ) -> StreamPage:
        """Wait for events from a cursor on; return an empty page after `wait_s`."""
        async with self._open() as log:
            page = _PageAhead(count, wanted, _onwards(start, await log.spans([topic])))
            await page.wait(log, until_s=time.monotonic() + wait_s)
        return StreamPage(tuple(page.records), newer=_cursor(page.at))

    async def spread(self, topic: str) -> tuple[LastHour, NewestEvents] | None:
        """Return a topic's last hour and its fullest partition's newest events; None if missing."""
        async with self._open() as log:
            async for hour in last_hours(log, [topic]):
                return hour, await newest_of_fullest(log, hour)
        return None

    def _open(self) -> AbstractAsyncContextManager[KafkaReader]:
        return open_reader(
            self._servers,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            fetch_max_bytes=_FETCH_BYTES_MAX,
            max_partition_fetch_bytes=_PARTITION_BYTES_MAX,
        )


@dataclass(slots=True)
class _PageAhead:
    """Events of a page, until it is full; `at` is the position after them."""

    count_max: int
    wanted: Wanted
    at: _Offsets
    records: list[RecordIn] = field(default_factory=list)
    _byte_count: int = 0

    def is_full(self) -> bool:
        return len(self.records) >= self.count_max or self._byte_count >= PAGE_BYTES_MAX

    def take(self, record: RecordIn) -> None:
        # Events beyond a full page are for the next one.
        if self.is_full():
            return
        self.at[record.origin.log] = record.origin.offset + 1
        if self.wanted(record):
            self.records.append(record)
            self._byte_count += len(record.value)

    async def read(
        self, log: KafkaReader, ends: Mapping[KafkaPartition, int], *, until_s: float
    ) -> bool:
        """Read up to the ends; return False if time was too short for that."""
        ranges = {where: (begin, ends[where]) for where, begin in self.at.items()}
        reading = log.range(ranges, records_max=min(self.count_max, _AT_A_TIME))
        unread = await reading.each(self.take, until_s=until_s, is_over=self.is_full)
        if not unread and not self.is_full():
            # Skip transaction markers too, which are not records.
            self.at |= ends
        return not unread

    async def wait(self, log: KafkaReader, *, until_s: float) -> None:
        follow = log.follow(self.at)
        while not self.records and (left_s := until_s - time.monotonic()) > 0:
            wait_s = min(left_s, _FOLLOW_S)
            for record in await follow.read(wait_s=wait_s, records_max=self.count_max):
                self.take(record)


@dataclass(slots=True)
class _WalkBack:
    """Reads back from the end until the found events must be the newest ones."""

    count_max: int
    wanted: Wanted
    firsts: _Offsets
    # Everything from these offsets on has been read.
    begins: _Offsets
    # Only these stretches are read.
    among: Stretches
    # A heap with the oldest event on top.
    _found: list[tuple[int, KafkaPartition, int, RecordIn]] = field(default_factory=list)
    _byte_count: int = 0
    # The offset after the newest event without room, which is for the next page.
    _left_out: _Offsets = field(default_factory=dict)
    _oldest_ms: _Offsets = field(default_factory=dict)

    async def run(self, log: KafkaReader) -> bool:
        """Walk back; return False if time was too short."""
        until_s = time.monotonic() + _SEARCH_S_MAX
        chunk = max(_CHUNK_MIN, self.count_max // max(len(self.firsts), 1))
        while still := self._still_to_read():
            ranges = {where: part for where in still if (part := self._next(where, chunk))}
            if not ranges:
                return True
            if unread := await log.range(ranges).each(self._look, until_s=until_s):
                # Only the older part was read: the next page reads all of it.
                self._found = [entry for entry in self._found if not self._is_of(entry, unread)]
                heapq.heapify(self._found)
            self.begins |= {
                where: begin for where, (begin, _) in ranges.items() if where not in unread
            }
            if unread:
                return False
            chunk = _CHUNK
        return True

    def _next(self, where: KafkaPartition, chunk: int) -> tuple[int, int] | None:
        """Return the next range to read of a Kafka partition; None if there is none."""
        part = last_part(self.among.get(where, ()), self.begins[where], chunk)
        if part is None or part[1] <= self.firsts[where]:
            return None
        return max(self.firsts[where], part[0]), part[1]

    def pass_rest(self) -> None:
        """Move to the start in Kafka partitions where nothing is left to read."""
        over = [where for where in self.begins if self._next(where, 1) is None]
        self.begins |= {where: self.firsts[where] for where in over}

    def newest_first(self) -> tuple[RecordIn, ...]:
        return tuple(record for *_, record in sorted(self._found, reverse=True))

    def older(self) -> _Offsets:
        """Return where older events end."""
        return {
            where: max(begin, self._left_out.get(where, 0)) for where, begin in self.begins.items()
        }

    def _still_to_read(self) -> list[KafkaPartition]:
        """Return the Kafka partitions that may still have events for this page."""
        enough_ms = self._found[0][0] if self._left_out else None
        return [
            where
            for where, begin in self.begins.items()
            if begin > self.firsts[where]
            and (enough_ms is None or self._oldest_ms.get(where, enough_ms) >= enough_ms)
        ]

    def _look(self, record: RecordIn) -> None:
        where, at_ms = record.origin.log, record.timestamp_ms
        self._oldest_ms[where] = min(self._oldest_ms.get(where, at_ms), at_ms)
        if not self.wanted(record):
            return
        heapq.heappush(self._found, (at_ms, where, record.origin.offset, record))
        self._byte_count += len(record.value)
        while len(self._found) > self.count_max or (
            self._byte_count > PAGE_BYTES_MAX and len(self._found) > 1
        ):
            _, out_of, offset, left_out = heapq.heappop(self._found)
            self._byte_count -= len(left_out.value)
            self._left_out[out_of] = max(self._left_out.get(out_of, 0), offset + 1)

    def _is_of(
        self, found: tuple[int, KafkaPartition, int, RecordIn], unread: set[KafkaPartition]
    ) -> bool:
        _, where, offset, _ = found
        return where in unread and offset < self.begins[where]


def _at(
    cursor: Cursor | None, spans: Mapping[KafkaPartition, tuple[int, int]], *, otherwise: _Offsets
) -> _Offsets:
    """Return a cursor's offset in each Kafka partition, limited to the existing range."""
    offsets = dict(zip(sorted(spans), cursor.offsets if cursor else (), strict=False))
    return {
        where: min(max(offsets.get(where, otherwise[where]), first), end)
        for where, (first, end) in spans.items()
    }


def _onwards(cursor: Cursor, spans: Mapping[KafkaPartition, tuple[int, int]]) -> _Offsets:
    """Return a cursor's offsets; Kafka partitions that were added later begin at their starts."""
    return _at(cursor, spans, otherwise={where: first for where, (first, _) in spans.items()})


def _cursor(offsets: _Offsets) -> Cursor:
    return Cursor(tuple(offsets[where] for where in sorted(offsets)))
