"""Finds events in Kafka, by id or by the request that sent them, and their outcomes.

A search has a time limit: if it finds nothing, it reports how far it has looked, and the next
search can continue from there.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from math import inf

from shared.event.derived import restore_of
from shared.event.envelope import EVENT_ID, Envelope, open_stream_record
from shared.event.places import Places, Stretches, last_part
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.event.topics import ACKED, DEAD, RECEIPTS, retry_topics, stream_topic
from shared.proof.acked import AckedRequest
from shared.proof.trail import Trail
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.lookup.key_search import KeyedEvents, read_keyed
from shared.runtime.kafka.lookup.streams_with_id import PlacesOf, StreamsWithId, streams_with_id
from shared.runtime.kafka.reader import KafkaReader, open_reader

# A step back reads this many records from each Kafka partition: one or two fetches.
_CHUNK = 4_000
# How long people wait patiently for an answer.
SEARCH_S_MAX = 6.0
# An index may have many events with one id: show this many of each Kafka partition.
_FOUND_MAX = 5
# Show at most this many neighbours on each side of an event, of those sent with it.
_AROUND = 10
# Receipts have the times of another machine's clock; begin this much earlier to miss none.
CLOCK_SLACK_MS = 60_000
# A search for one event waits this long for records after its last outcome. If brokers' clocks
# differ by more than the second value, more is read.
_SOON_S, _NEAR_MS = 0.5, 5_000
# The pause between two checks for a record that may be written at this moment.
_LOOK_S = 0.1
# For somebody who waits for a page, a broker that answers later counts as down.
_REQUEST_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """One event of the log, with all later records that name it."""

    envelope: Envelope
    stored_at_ms: int
    trail: Trail
    # The restore that put it back; empty if none did.
    restored_by: str = ""
    # Ids by offset of its neighbours in its Kafka partition, if it was sent with others.
    around: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchResult:
    found: tuple[FoundEvent, ...] = ()
    records_read: int = 0
    # The search looked at everything younger than this; None if that was the whole log.
    back_to_ms: int | None = None
    # Whether the index had these events.
    is_from_index: bool = False
    # If it did not: the number of skipped events, all of whose ids are in the index, and whether
    # the index is behind the log; None if nobody asked the index.
    passed_over: int = 0
    index_is_behind: bool | None = None


@dataclass(slots=True)
class _Walk:
    """The results of a walk back through a topic so far."""

    event_id: str
    records_read: int = 0
    passed_over: int = 0
    oldest_ms: int | None = None
    # Whether the whole log was read, or something was found.
    is_done: bool = False
    found: list[tuple[Envelope, int, str]] = field(default_factory=list)

    def look(self, record: RecordIn) -> None:
        self.records_read += 1
        at_ms = record.timestamp_ms
        self.oldest_ms = at_ms if self.oldest_ms is None else min(self.oldest_ms, at_ms)
        envelope = open_stream_record(record)
        if envelope.event_id == self.event_id:
            self.found.append((envelope, at_ms, restore_of(record.headers)))


class EventSearch:
    """Looks for events; each search has its own consumer, without a group."""

    def __init__(
        self,
        bootstrap_servers: str,
        places: PlacesOf | None = None,
        places_by_key: PlacesOf | None = None,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._places = places
        self._places_by_key = places_by_key
        # One search at a time, because it reads as fast as it can.
        self._turn = asyncio.Lock()

    async def among(self, streams: Sequence[str], event_id: str) -> StreamsWithId:
        """Return those of the streams for which the index has the id."""
        async with self._turn:
            return await asyncio.to_thread(streams_with_id, self._places, streams, event_id)

    async def of_key(self, streams: Sequence[str], key: str) -> KeyedEvents:
        """Return the newest events of an ordering key in these streams, by the index."""
        by_key = self._places_by_key
        async with self._turn:
            named = await asyncio.to_thread(streams_with_id, by_key, streams, key)
            if by_key is None or not named.streams:
                return KeyedEvents(named)
            topics = {stream: stream_topic(stream) for stream in named.streams}
            places = {
                stream: await asyncio.to_thread(by_key, topics[stream], key) for stream in topics
            }
            async with open_log(self._bootstrap_servers) as log:
                return await read_keyed(log, named, places, key)

    async def request(self, request_id: str, *, since_ms: int) -> AckedRequest:
        """Return the ledger's records of a request since a time."""
        async with self._turn:
            return await find_request(
                self._bootstrap_servers, request_id, since_ms=since_ms, wait_s=0.0
            )

    async def find(
        self,
        stream: str,
        event_id: str,
        *,
        before_ms: int | None = None,
        destination_ids: Collection[str] = (),
    ) -> SearchResult:
        """Return the newest events with this id, reading back for `SEARCH_S_MAX` s at most.

        An event with a final outcome at each of the destinations is not followed for long.
        """
        async with self._turn, open_log(self._bootstrap_servers) as log:
            topic, walk, places = stream_topic(stream), _Walk(event_id), None
            if self._places is not None:
                places = await asyncio.to_thread(self._places, topic, event_id)
                if before_ms is None:
                    await _look_among(log, walk, places.of(topic))
            is_from_index = bool(walk.found)
            if not is_from_index:
                await _walk_back(log, topic, walk, places or Places(), before_ms=before_ms)
            events: list[FoundEvent] = []
            for envelope, stored_at_ms, restored_by in walk.found:
                trail = await _follow_one(log, envelope.origin, stored_at_ms, destination_ids)
                trail.receipts.sort(key=lambda receipt: receipt.started_at_ms)
                around = await _around(log, envelope.origin, trail)
                events.append(FoundEvent(envelope, stored_at_ms, trail, restored_by, around))
            # The newest first.
            events.sort(key=lambda event: (-event.stored_at_ms, -event.envelope.origin.offset))
            back_to_ms = None if walk.is_done else walk.oldest_ms
            behind = None if places is None else places.is_behind
            return SearchResult(
                tuple(events),
                walk.records_read,
                back_to_ms,
                is_from_index,
                walk.passed_over,
                behind,
            )


async def find_request(
    bootstrap_servers: str, request_id: str, *, since_ms: int, wait_s: float
) -> AckedRequest:
    """Return the ledger's records of a request; wait for them up to `wait_s`."""
    request = AckedRequest(request_id)
    newest_ms: dict[KafkaPartition, int] = {}
    now_s = time.monotonic()
    wait_until_s, until_s = now_s + wait_s, now_s + SEARCH_S_MAX

    def take(record: RecordIn) -> None:
        newest_ms[record.origin.log] = record.timestamp_ms
        request.take(record.value)

    async with open_log(bootstrap_servers) as log:
        ends = await log.ends([ACKED])
        at = {**ends, **await log.offsets_at(dict.fromkeys(ends, since_ms - CLOCK_SLACK_MS))}
        while True:
            ranges = {partition: (at[partition], end) for partition, end in ends.items()}
            left = await log.range(ranges).each(
                take, until_s=until_s, is_over=lambda: request.is_complete
            )
            if left:
                request.read_until_ms = min(
                    newest_ms.get(partition, since_ms) for partition in left
                )
            if left or request.is_complete or time.monotonic() > wait_until_s:
                return request
            await asyncio.sleep(_LOOK_S)
            at, ends = ends, await log.ends([ACKED])


async def find_stored(
    bootstrap_servers: str, topic: str, wanted: Sequence[tuple[str, bytes]], *, since_ms: int
) -> dict[int, tuple[int, int]]:
    """Return Kafka partition and offset of each wanted event, by its place in `wanted`.

    Events are identified by id and value. Everything stored since that time is read.
    """
    left: dict[tuple[bytes, bytes], list[int]] = {}
    for place, (event_id, value) in enumerate(wanted):
        left.setdefault((event_id.encode(), value), []).append(place)
    stored: dict[int, tuple[int, int]] = {}

    def take(record: RecordIn) -> None:
        named = dict(record.headers).get(EVENT_ID, b"")
        if places := left.get((named, record.value)):
            stored[places.pop(0)] = record.origin.partition, record.origin.offset

    async with open_log(bootstrap_servers) as log:
        read = await log.since([topic], since_ms)
        await read.each(take, until_s=inf, is_over=lambda: len(stored) == len(wanted))
    return stored


async def find_trail(
    bootstrap_servers: str,
    origins: Collection[Origin],
    *,
    since_ms: int,
    destination_ids: Collection[str],
    search_s: float = SEARCH_S_MAX,
) -> Trail:
    """Follow events stored after a time, until all destinations have all of them."""
    async with open_log(bootstrap_servers) as log:
        return await _follow(log, origins, since_ms, destination_ids, search_s=search_s)


def open_log(bootstrap_servers: str) -> AbstractAsyncContextManager[KafkaReader]:
    """Open a reader for somebody who waits for a page."""
    return open_reader(bootstrap_servers, request_timeout_ms=_REQUEST_TIMEOUT_MS)


async def _look_among(log: KafkaReader, walk: _Walk, among: Stretches) -> None:
    """Read the places in the index; only the newest ones if there are many."""
    until_s = time.monotonic() + SEARCH_S_MAX
    spans = await log.spans({where.topic for where in among})
    stretches = [
        (where, (max(first, spans[where][0]), min(end, spans[where][1])))
        for where, them in among.items()
        if where in spans
        for first, end in them[-_FOUND_MAX:]
    ]
    for where, stretch in stretches:
        await log.range({where: stretch}).each(walk.look, until_s=until_s)
    walk.is_done = bool(walk.found)


async def _walk_back(
    log: KafkaReader, topic: str, walk: _Walk, told: Places, *, before_ms: int | None
) -> None:
    """Read chunk by chunk from the end until something is found, or time runs out.

    It skips stretches for which the index has all ids.
    """
    until_s = time.monotonic() + SEARCH_S_MAX
    spans = await log.spans([topic])
    ends = {partition: end for partition, (_, end) in spans.items()}
    if before_ms is not None:
        ends |= await log.offsets_at(dict.fromkeys(spans, before_ms))
    unknown = told.unknown({where: (start, ends[where]) for where, (start, _) in spans.items()})
    walk.passed_over = sum(
        max(0, ends[where] - start) - sum(high - low for low, high in unknown[where])
        for where, (start, _) in spans.items()
    )
    while not walk.found:
        ranges = {
            where: part
            for where, end in ends.items()
            if (part := last_part(unknown[where], end, _CHUNK))
        }
        if not ranges:
            break
        if await log.range(ranges).each(walk.look, until_s=until_s):
            return
        ends |= {partition: begin for partition, (begin, _) in ranges.items()}
    walk.is_done = True


async def _around(log: KafkaReader, origin: Origin, trail: Trail) -> dict[int, str]:
    """Return the ids of an event's nearest neighbours in the same batch."""
    reach = [(first, end) for each in trail.receipts for first, end in each.beside(origin)]
    if all(end - first == 1 for first, end in reach):
        return {}
    ids: dict[int, str] = {}

    def take(record: RecordIn) -> None:
        ids[record.origin.offset] = open_stream_record(record).event_id

    begin, over = (await log.spans([origin.topic]))[origin.log]
    first = max(begin, min(first for first, _ in reach), origin.offset - _AROUND)
    end = min(over, max(end for _, end in reach), origin.offset + _AROUND + 1)
    until_s = time.monotonic() + SEARCH_S_MAX
    await log.range({origin.log: (first, end)}).each(take, until_s=until_s)
    return ids


async def _follow(
    log: KafkaReader,
    origins: Collection[Origin],
    since_ms: int,
    destination_ids: Collection[str],
    *,
    search_s: float = SEARCH_S_MAX,
) -> Trail:
    """Follow events after they were stored, reading for `search_s` s at most."""
    trail = Trail.of(origins)
    until_s = time.monotonic() + search_s

    def is_over() -> bool:
        return bool(destination_ids) and trail.is_delivered_to(destination_ids)

    receipts = await log.since([RECEIPTS], since_ms - CLOCK_SLACK_MS)
    left = await receipts.each(trail.take_sheet, until_s=until_s, is_over=is_over)
    # Once events have arrived everywhere, no other record matters.
    if not is_over():
        left |= await _read_kept(log, trail, until_s=until_s)
    trail.is_whole = not left
    return trail


async def _follow_one(
    log: KafkaReader, origin: Origin, stored_at_ms: int, destination_ids: Collection[str]
) -> Trail:
    """Follow one event; return soon if it has a final outcome everywhere."""
    trail = Trail.of([origin])
    now_s = time.monotonic()
    soon_s, until_s = now_s + _SOON_S, now_s + SEARCH_S_MAX

    def is_over() -> bool:
        return time.monotonic() > soon_s and trail.has_ended_at(destination_ids)

    # Start shortly before: a minute of receipts is a lot, and is needed only if clocks are wrong.
    receipts = await log.since([RECEIPTS], stored_at_ms - _NEAR_MS)
    left = await receipts.each(trail.take_sheet, until_s=until_s, is_over=is_over)
    trail.ends_there = not left and bool(receipts.unread)
    if not trail.has_ended_at(destination_ids):
        ends = await log.ends([RECEIPTS])
        begins, near = [
            ends | await log.offsets_at(dict.fromkeys(ends, stored_at_ms - ago_ms))
            for ago_ms in (CLOCK_SLACK_MS, _NEAR_MS)
        ]
        earlier = log.range({where: (at, near[where]) for where, at in begins.items()})
        left |= await earlier.each(trail.take_sheet, until_s=until_s)
    left |= await _read_kept(log, trail, until_s=until_s, is_over=trail.has_kept)
    trail.is_whole = not left
    return trail


async def _read_kept(
    log: KafkaReader, trail: Trail, *, until_s: float, is_over: Callable[[], bool] = lambda: False
) -> set[KafkaPartition]:
    """Read retry and dead letter records; return Kafka partitions that there was no time for."""
    left: set[KafkaPartition] = set()
    if (trouble_ms := trail.first_trouble_ms) is not None:
        tiers = retry_topics(tier.name for tier in RetrySchedule().tiers)
        for topics, take in (([DEAD], trail.take_dead), (tiers, trail.take_retry)):
            records = await log.since(topics, trouble_ms - CLOCK_SLACK_MS)
            left |= await records.each(take, until_s=until_s, is_over=is_over)
    return left
