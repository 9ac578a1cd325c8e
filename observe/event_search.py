"""Finds one event by its id: in its stream's topic, newest first, and whatever became of it since.

The only file that reads the log for the console. A search is bounded in time: what was not found
says how far back it has looked, and can be gone on with from there.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from shared.envelope import Envelope, Malformed, open_retry_record, open_stream_record
from shared.receipt import Receipt
from shared.record import Origin
from shared.runtime.kafka_records import partitions_of, record_in
from shared.runtime.setup_error import SetupError
from shared.schedule import RetrySchedule
from shared.topics import DEAD, RECEIPTS, retry_topic, stream_topic

# How many records a step back takes from each Kafka partition: a fetch or two.
_CHUNK = 4_000
# What a person waits for an answer without wondering.
SEARCH_S_MAX = 6.0
_POLL_MS = 300
# Receipts carry the times of another machine's clock; this much earlier we look, to miss none.
_CLOCK_SLACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class Kept:
    """A record on a retry tier or in dead letters: the event, where it lies, since when."""

    envelope: Envelope
    place: Origin
    stored_at_ms: int
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """One event of the log, with everything that names it since."""

    envelope: Envelope
    stored_at_ms: int
    receipts: tuple[Receipt, ...] = ()
    retries: tuple[Kept, ...] = ()
    dead: tuple[Kept, ...] = ()
    # False: there was more to read than the time allowed.
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class SearchResult:
    found: tuple[FoundEvent, ...] = ()
    records_read: int = 0
    # Looked at everything younger than this; None when it was the whole log.
    back_to_ms: int | None = None


@dataclass(slots=True)
class _Progress:
    until_s: float
    records_read: int = 0
    oldest_ms: int | None = None
    found: list[tuple[Envelope, int]] = field(default_factory=list)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.until_s


class EventSearch:
    """Looks for events with a consumer of its own for each search, which belongs to no group."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        # One at a time: a search reads as fast as it can.
        self._one = asyncio.Lock()

    async def find(
        self, stream: str, event_id: str, *, before_ms: int | None = None
    ) -> SearchResult:
        """The newest events of this id, at most `SEARCH_S_MAX` s of reading back."""
        async with self._one:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap_servers,
                enable_auto_commit=False,
                # A re-drive that broke off has never been.
                isolation_level="read_committed",
            )
            try:
                await consumer.start()
                return await self._find(consumer, stream, event_id, before_ms=before_ms)
            except KafkaError as error:
                raise SetupError(
                    f"Kafka at {self._bootstrap_servers} cannot be read now ({error!r}):"
                    " try again when it is well."
                ) from error
            finally:
                await consumer.stop()

    async def _find(
        self, consumer: AIOKafkaConsumer, stream: str, event_id: str, *, before_ms: int | None
    ) -> SearchResult:
        progress = _Progress(time.monotonic() + SEARCH_S_MAX)
        is_whole = await _walk_back(
            consumer, stream_topic(stream), event_id, progress, before_ms=before_ms
        )
        found = [
            await _follow(consumer, envelope, stored_at_ms)
            for envelope, stored_at_ms in progress.found
        ]
        return SearchResult(
            tuple(sorted(found, key=_newest_first)),
            progress.records_read,
            None if is_whole else progress.oldest_ms,
        )


def _newest_first(found: FoundEvent) -> tuple[int, int]:
    return -found.stored_at_ms, -found.envelope.origin.offset


async def _walk_back(
    consumer: AIOKafkaConsumer,
    topic: str,
    event_id: str,
    progress: _Progress,
    *,
    before_ms: int | None,
) -> bool:
    """Read chunk by chunk from the end until something is found; False when time ran out."""
    partitions = await partitions_of(consumer, topic)
    starts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)

    def look(record: ConsumerRecord) -> None:
        progress.records_read += 1
        before = progress.oldest_ms
        progress.oldest_ms = record.timestamp if before is None else min(before, record.timestamp)
        envelope = open_stream_record(record_in(record))
        if envelope.event_id == event_id:
            progress.found.append((envelope, record.timestamp))

    if before_ms is not None:
        firsts = await consumer.offsets_for_times(dict.fromkeys(partitions, before_ms))
        ends |= {where: at.offset for where, at in firsts.items() if at is not None}
    while not progress.found:
        ranges = {
            where: (max(starts[where], ends[where] - _CHUNK), ends[where])
            for where in partitions
            if ends[where] > starts[where]
        }
        if not ranges:
            return True
        if progress.is_late or not await _read(consumer, ranges, look, until_s=progress.until_s):
            return False
        ends |= {where: begin for where, (begin, _) in ranges.items()}
    return True


async def _follow(consumer: AIOKafkaConsumer, envelope: Envelope, stored_at_ms: int) -> FoundEvent:
    """What became of an event after it was stored."""
    until_s = time.monotonic() + SEARCH_S_MAX
    origin = envelope.origin
    receipts: list[Receipt] = []
    retries: list[Kept] = []
    dead: list[Kept] = []

    def take_receipt(record: ConsumerRecord) -> None:
        receipt = _receipt(record.value)
        if receipt is not None and _covers(receipt, origin):
            receipts.append(receipt)

    def take_kept(into: list[Kept]) -> Callable[[ConsumerRecord], None]:
        def take(record: ConsumerRecord) -> None:
            opened = open_retry_record(record_in(record))
            if not isinstance(opened, Malformed) and opened.origin == origin:
                place = Origin(record.topic, record.partition, record.offset)
                into.append(Kept(opened, place, record.timestamp, dict(record.headers)))

        return take

    since_ms = stored_at_ms - _CLOCK_SLACK_MS
    is_whole = await _read_since(consumer, [RECEIPTS], since_ms, take_receipt, until_s=until_s)
    if any(receipt.outcome.value != "delivered" for receipt in receipts):
        tiers = [retry_topic(tier.name) for tier in RetrySchedule().tiers]
        is_whole &= await _read_since(
            consumer, tiers, since_ms, take_kept(retries), until_s=until_s
        )
        is_whole &= await _read_since(consumer, [DEAD], since_ms, take_kept(dead), until_s=until_s)
    receipts.sort(key=lambda receipt: receipt.started_at_ms)
    return FoundEvent(
        envelope, stored_at_ms, tuple(receipts), tuple(retries), tuple(dead), is_whole
    )


async def _read_since(
    consumer: AIOKafkaConsumer,
    topics: Sequence[str],
    since_ms: int,
    take: Callable[[ConsumerRecord], None],
    *,
    until_s: float,
) -> bool:
    """Read topics from a time to their ends as they are now; False when time ran out."""
    partitions = await partitions_of(consumer, *topics)
    ends = await consumer.end_offsets(partitions)
    firsts = await consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
    ranges = {
        where: (first.offset, ends[where])
        for where, first in firsts.items()
        if first is not None and first.offset < ends[where]
    }
    return await _read(consumer, ranges, take, until_s=until_s)


async def _read(
    consumer: AIOKafkaConsumer,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    take: Callable[[ConsumerRecord], None],
    *,
    until_s: float,
) -> bool:
    """Show `take` the records of each [begin, end), side by side; False when time ran out."""
    consumer.assign(list(ranges))
    for where, (begin, _) in ranges.items():
        consumer.seek(where, begin)
    left = set(ranges)
    while left:
        if time.monotonic() > until_s:
            return False
        batches = await consumer.getmany(*left, timeout_ms=_POLL_MS)
        for where, records in batches.items():
            for record in records:
                if record.offset < ranges[where][1]:
                    take(record)
        for where in list(left):
            if await consumer.position(where) >= ranges[where][1]:
                left.discard(where)
                consumer.pause(where)
    return True


def _receipt(value: bytes | None) -> Receipt | None:
    try:
        return Receipt.from_json(value or b"")
    except (ValueError, TypeError, KeyError):
        return None


def _covers(receipt: Receipt, origin: Origin) -> bool:
    return any(
        covered.topic == origin.topic
        and covered.partition == origin.partition
        and covered.first <= origin.offset < covered.end
        for covered in receipt.covered
    )
