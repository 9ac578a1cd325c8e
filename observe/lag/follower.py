"""Decides how the sampler reads Kafka: receipts and ledger as they come, ends, and single records.

Independent of the lanes: nothing here asks Spark how it is.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from shared.runtime.kafka.client_start import started
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.records import partitions_of, spans_of

Where = tuple[str, int]
# What goes wrong when Kafka is away or changes its mind; following is then begun anew.
READ_ERRORS = (KafkaError, OSError)

_POLL_MS = 200
# A record and its neighbours; what is peeked at is one event of at most a megabyte.
_PEEK_BYTES = 65_536
_PEEK_TIMEOUT_MS = 2_000


class Follower:
    """Made by `following`."""

    def __init__(
        self, consumer: AIOKafkaConsumer, peeker: AIOKafkaConsumer, groups: LaneGroups
    ) -> None:
        self._consumer = consumer
        self._peeker = peeker
        self._groups = groups

    async def read(self) -> dict[str, list[bytes]]:
        """The values that have come on each topic since the last time."""
        found: dict[str, list[bytes]] = {}
        batches = await self._consumer.getmany(timeout_ms=_POLL_MS)
        for where, records in batches.items():
            found.setdefault(where.topic, []).extend(r.value for r in records if r.value)
        return found

    async def ends(self) -> Mapping[TopicPartition, int]:
        """Where everything that is followed ends now."""
        ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(
            sorted(self._consumer.assignment())
        )
        return ends

    async def has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether `read` has given everything up to there."""
        return all([await self._consumer.position(one) >= end for one, end in ends.items()])

    async def spans(self, topics: Iterable[str]) -> dict[Where, tuple[int, int]]:
        """The first offset and the end of every Kafka partition."""
        return await spans_of(self._peeker, topics)

    async def stored_at_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """When the broker took the first record from there on; None if none comes."""
        where = TopicPartition(topic, partition)
        self._peeker.assign([where])
        self._peeker.seek(where, offset)
        records = await self._peeker.getmany(where, timeout_ms=_PEEK_TIMEOUT_MS, max_records=1)
        return next((r.timestamp for found in records.values() for r in found), None)

    async def position(self, lane: str) -> Mapping[Where, int] | None:
        """How far a lane says it is; None while nobody can tell."""
        try:
            return await self._groups.position(lane)
        except KafkaError:
            # Before the first lane has ever spoken, Kafka has no place for positions.
            return None


@asynccontextmanager
async def following(
    bootstrap_servers: str, *, whole: str, latest: Mapping[str, int]
) -> AsyncIterator[Follower]:
    """Follow one topic from its beginning, and others from a moment (epoch ms) on."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # As the books: the receipt of a re-drive that broke off tells of nothing that is.
        isolation_level="read_committed",
    )
    peeker = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_PEEK_BYTES,
    )
    async with started(consumer), started(peeker), LaneGroups(bootstrap_servers) as groups:
        from_start = await partitions_of(consumer, whole)
        recent = await partitions_of(consumer, *latest)
        consumer.assign([*from_start, *recent])
        await consumer.seek_to_beginning(*from_start)
        if recent:
            found = await consumer.offsets_for_times({one: latest[one.topic] for one in recent})
            for one in recent:
                at = found.get(one)
                if at is None:
                    await consumer.seek_to_end(one)
                else:
                    consumer.seek(one, at.offset)
        yield Follower(consumer, peeker, groups)
