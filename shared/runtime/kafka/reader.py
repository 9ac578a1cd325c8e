"""Reads Kafka's log: a range of it, everything since some time, or new records.

A reader belongs to no group and leaves no trace. It reads one thing at a time: a new range or a
new follow ends the previous one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from aiokafka.protocol.metadata import MetadataRequest

from shared.event.record import KafkaPartition, Origin, Position, Ranges, RecordIn
from shared.runtime.kafka.clients import KafkaClient, new_consumer, running, start_client

# A fetch without records returns after this long, so that readers can check the time.
_POLL_S = 0.3
# Records to read at once: 10 ms of work, which other tasks in the process hardly notice.
_RECORDS_MAX = 500
# A search reads fewer at once, 2 ms of work, because other requests wait meanwhile.
_SEARCHED_MAX = 100
# A broker that sends nothing of a range for this long counts as down.
_SILENCE_S_MAX = 30.0


class KafkaReader:
    """Reads topics; `open_reader` and `start_reader` make one."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def close(self) -> None:
        """Close a reader from `start_reader`."""
        with suppress(KafkaError):
            await self._consumer.stop()

    async def starts(self, topics: Iterable[str]) -> dict[KafkaPartition, int]:
        """Return the first offset that each Kafka partition of these topics still has."""
        return _ours(await self._consumer.beginning_offsets(await self._partitions(topics)))

    async def ends(self, topics: Iterable[str]) -> dict[KafkaPartition, int]:
        """Return the offset after the last record of each Kafka partition of these topics."""
        return _ours(await self._consumer.end_offsets(await self._partitions(topics)))

    async def ends_of(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the ends of known Kafka partitions, without asking Kafka for all its topics."""
        known = [TopicPartition(*partition) for partition in partitions]
        return _ours(await self._consumer.end_offsets(known))

    async def spans(self, topics: Iterable[str]) -> dict[KafkaPartition, tuple[int, int]]:
        """Return the first offset and the end of each Kafka partition of the existing topics."""
        partitions = await self._partitions(topics)
        starts = await self._consumer.beginning_offsets(partitions)
        ends = _ours(await self._consumer.end_offsets(partitions))
        return {partition: (starts[partition], end) for partition, end in ends.items()}

    async def offsets_at(self, times_ms: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, int]:
        """Return the first offsets not older than the given times; absent if all are older."""
        asked = {TopicPartition(*partition): max(at_ms, 0) for partition, at_ms in times_ms.items()}
        firsts = await self._first_at(asked)
        return _ours({partition: first.offset for partition, first in firsts.items()})

    async def oldest_ms(self, topics: Iterable[str]) -> dict[KafkaPartition, int]:
        """Return when the oldest record of each Kafka partition came; absent if there is none."""
        firsts = await self._first_at(dict.fromkeys(await self._partitions(topics), 0))
        return {KafkaPartition(*partition): first.timestamp for partition, first in firsts.items()}

    def range(self, ranges: Ranges, *, records_max: int = _RECORDS_MAX) -> "RangeRead":
        """Read these offsets, the Kafka partitions in parallel."""
        return RangeRead(self._consumer, ranges, records_max)

    async def since(self, topics: Iterable[str], since_ms: int) -> "RangeRead":
        """Read from a time to the current ends."""
        ends = await self.ends(topics)
        starts = await self.offsets_at(dict.fromkeys(ends, since_ms))
        return self.range(
            {partition: (offset, ends[partition]) for partition, offset in starts.items()}
        )

    def follow(self, position: Position) -> "Follow":
        """Read records from a position on, without end."""
        return Follow(self._consumer, position)

    async def _first_at(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """Return the first records not older than the given times; absent if all are older."""
        firsts = await self._consumer.offsets_for_times(asked) if asked else {}
        return {partition: first for partition, first in firsts.items() if first is not None}

    async def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return every Kafka partition of the existing topics, in the order of the topics."""
        client = self._consumer._client  # noqa: SLF001 - the public call knows only topics that
        # somebody subscribed to, and assigning is not subscribing.
        metadata = await client.fetch_all_metadata()
        numbers = {topic: metadata.partitions_for_topic(topic) or () for topic in topics}
        if missing := [topic for topic, there in numbers.items() if not there]:
            await _require_seen(client, missing)
        return [
            TopicPartition(topic, number)
            for topic, there in numbers.items()
            for number in sorted(there)
        ]


class RangeRead:
    """A range being read: iterate over it for batches of records, which may be empty."""

    def __init__(self, consumer: AIOKafkaConsumer, ranges: Ranges, records_max: int) -> None:
        self._consumer = consumer
        self._records_max = records_max
        self._ends = {
            TopicPartition(*partition): end
            for partition, (begin, end) in ranges.items()
            if begin < end
        }
        self._unread = set(self._ends)
        self._heard_s = time.monotonic()
        _assign(consumer, {partition: ranges[partition][0] for partition in self._ends})

    @property
    def unread(self) -> set[KafkaPartition]:
        """The Kafka partitions that have not been read to their ends."""
        return {KafkaPartition(*partition) for partition in self._unread}

    def __aiter__(self) -> "RangeRead":
        return self

    async def __anext__(self) -> list[RecordIn]:
        if not self._unread:
            raise StopAsyncIteration
        batches = await self._consumer.getmany(
            *self._unread, timeout_ms=round(_POLL_S * 1000), max_records=self._records_max
        )
        # Transaction markers are not records: only the position shows that they were passed.
        for partition in list(self._unread):
            if await self._consumer.position(partition) >= self._ends[partition]:
                self._unread.discard(partition)
                # Pause before anything else runs. Otherwise the next fetch starts, and at the end
                # of the log it delays the next read by half a second.
                self._consumer.pause(partition)
        # Prefetched records come without a pause: let other tasks run.
        await asyncio.sleep(0)
        if batches:
            self._heard_s = time.monotonic()
        elif self._unread and time.monotonic() - self._heard_s > _SILENCE_S_MAX:
            raise KafkaTimeoutError(f"no records for {_SILENCE_S_MAX:g} s")
        return [
            record_in(record)
            for partition, records in batches.items()
            for record in records
            if record.offset < self._ends[partition]
        ]

    async def records(self) -> AsyncIterator[RecordIn]:
        """Yield the records one by one."""
        async for records in self:
            for record in records:
                yield record

    async def each(
        self,
        take: Callable[[RecordIn], None],
        *,
        until_s: float,
        is_over: Callable[[], bool] = lambda: False,
    ) -> set[KafkaPartition]:
        """Pass records to `take` until it `is_over`; return partitions left at `until_s`."""
        self._records_max = min(self._records_max, _SEARCHED_MAX)
        while self._unread and not is_over():
            if time.monotonic() > until_s:
                return self.unread
            for record in await anext(self):
                take(record)
        return set()


class Follow:
    """Kafka partitions being followed, without end."""

    def __init__(self, consumer: AIOKafkaConsumer, position: Position) -> None:
        self._consumer = consumer
        self._partitions = _assign(consumer, position)
        self.partitions = frozenset(position)

    async def read(self, *, wait_s: float, records_max: int | None = None) -> list[RecordIn]:
        """Return new records; if there are none, wait for them up to `wait_s`."""
        batches = await self._consumer.getmany(
            *self._partitions, timeout_ms=round(wait_s * 1000), max_records=records_max
        )
        return [record_in(record) for records in batches.values() for record in records]

    async def values(self, *, wait_s: float) -> dict[str, list[bytes]]:
        """Return only the values by topic, which is enough for readers of millions of receipts."""
        values: dict[str, list[bytes]] = {}
        batches = await self._consumer.getmany(*self._partitions, timeout_ms=round(wait_s * 1000))
        for partition, records in batches.items():
            values.setdefault(partition.topic, []).extend(r.value for r in records if r.value)
        return values

    async def ends(self) -> dict[KafkaPartition, int]:
        """Return the current ends of the followed Kafka partitions."""
        return _ours(await self._consumer.end_offsets(self._partitions))

    async def has_reached(self, ends: Position) -> bool:
        """Return whether all records before these offsets have been read."""
        for partition, end in ends.items():
            if await self._consumer.position(TopicPartition(*partition)) < end:
                return False
        return True

    async def at_end_ms(self, where: KafkaPartition) -> int | None:
        """Return when Kafka last confirmed that all records are read; None if some are unread.

        Records beyond the last stable offset do not count yet.
        """
        partition = TopicPartition(*where)
        end = self._consumer.last_stable_offset(partition)
        if end is None or await self._consumer.position(partition) < end:
            return None
        at_ms: int | None = self._consumer.last_poll_timestamp(partition)
        return at_ms

    @property
    def answered_at_ms(self) -> int:
        """When Kafka last answered, with or without records; 0 before its first answer."""
        answers = [self._consumer.last_poll_timestamp(partition) for partition in self._partitions]
        return max((at_ms for at_ms in answers if at_ms is not None), default=0)


def record_in(record: ConsumerRecord) -> RecordIn:
    """Convert a record for the core, where Kafka's nulls are empty."""
    return RecordIn(
        origin=Origin(record.topic, record.partition, record.offset),
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value or b"",
        headers=tuple((name, raw or b"") for name, raw in record.headers),
    )


@asynccontextmanager
async def open_reader(bootstrap_servers: str, **options: Any) -> AsyncIterator[KafkaReader]:
    """Open a reader for the block; KafkaUnavailableError if Kafka does not answer."""
    async with running(new_consumer(bootstrap_servers, **options), bootstrap_servers) as consumer:
        yield KafkaReader(consumer)


async def start_reader(bootstrap_servers: str, **options: Any) -> KafkaReader:
    """Start a reader, which the caller must close."""
    consumer = new_consumer(bootstrap_servers, **options)
    return KafkaReader(await start_client(consumer, bootstrap_servers))


async def _require_seen(client: KafkaClient, topics: list[str]) -> None:
    """Raise TopicAuthorizationFailedError for topics that are only hidden from us.

    A list of all topics omits them as if they did not exist, and the books would omit them, too.
    """
    # A broker may create a topic on a client's own request.
    asked = MetadataRequest(topics, allow_auto_topic_creation=False)
    for broker in client.cluster.brokers():
        try:
            answer = await client.send(broker.nodeId, asked)
        except KafkaError:
            # This broker is down; another one knows the same.
            continue
        refused = TopicAuthorizationFailedError.errno
        if hidden := [topic for code, topic, *_ in answer.topics if code == refused]:
            raise TopicAuthorizationFailedError(*hidden)
        return


def _assign(consumer: AIOKafkaConsumer, position: Position) -> list[TopicPartition]:
    """Make a consumer read from a position instead of its former assignment."""
    partitions = [TopicPartition(*partition) for partition in position]
    if consumer.assignment() == set(partitions):
        # A new assignment takes some milliseconds, which adds up with many small ranges.
        consumer.resume(*partitions)
    else:
        consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, position[partition])
    return partitions


def _ours(offsets: Mapping[TopicPartition, int]) -> dict[KafkaPartition, int]:
    return {KafkaPartition(*partition): offset for partition, offset in offsets.items()}
