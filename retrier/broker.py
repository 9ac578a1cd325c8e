"""Decides nothing: asks Kafka what has become due, and reads it.

The only file of the retrier that knows the Kafka client. Spark calls a data source from ordinary
functions in worker processes, so each process keeps one loop and one consumer for as long as it
lives.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.record import Origin, RecordIn

# A broker that does not answer for so long is down: the task fails, and Spark tries again.
_FETCH_TIMEOUT_S = 30.0
# One fetch's worth of records is handed on at a time.
_RECORDS_MAX = 5_000


class Broker:
    """A consumer that belongs to no group: Spark's checkpoint is the only position."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._runner = asyncio.Runner()
        self._consumer: AIOKafkaConsumer | None = None

    def starts(self, topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
        """The first offset that each Kafka partition still has."""
        return self._runner.run(self._starts(topics))

    def due_ends(self, due_by_ms: Mapping[str, int]) -> Mapping[tuple[str, int], int]:
        """Where each topic's records stop being older than the given time."""
        return self._runner.run(self._due_ends(due_by_ms))

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[RecordIn]]:
        """The records from `start` up to, but not including, `end`."""
        where = TopicPartition(topic, partition)
        at = start
        while at < end:
            at, records = self._runner.run(self._fetch(where, at, end))
            if records:
                yield records

    def close(self) -> None:
        """Let go of the connections; a worker process just ends, and they with it."""
        if self._consumer is not None:
            self._runner.run(self._consumer.stop())
        self._runner.close()

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap_servers,
                enable_auto_commit=False,
                # An offset that is gone is a loss: fail and say so.
                auto_offset_reset="none",
                max_poll_records=_RECORDS_MAX,
            )
            await consumer.start()
            self._consumer = consumer
        return self._consumer

    async def _partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        consumer = await self._connected()
        known = await consumer._client.fetch_all_metadata()  # noqa: SLF001 - see below
        # `partitions_for_topic` knows only topics somebody has subscribed to, which we never do.
        return [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in sorted(known.partitions_for_topic(topic) or ())
        ]

    async def _starts(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        consumer = await self._connected()
        starts: dict[tuple[str, int], int] = await consumer.beginning_offsets(
            await self._partitions(topics)
        )
        return starts

    async def _due_ends(self, due_by_ms: Mapping[str, int]) -> dict[tuple[str, int], int]:
        consumer = await self._connected()
        partitions = await self._partitions(list(due_by_ms))
        # The ends come first: a record that arrives between the two questions is not due, and
        # would be taken for due if "no record that young" were answered by a later end.
        ends = await consumer.end_offsets(partitions)
        young = await consumer.offsets_for_times(
            {where: due_by_ms[where.topic] + 1 for where in partitions}
        )
        return {
            where: ends[where] if young[where] is None else young[where].offset
            for where in partitions
        }

    async def _fetch(self, where: TopicPartition, at: int, end: int) -> tuple[int, list[RecordIn]]:
        consumer = await self._connected()
        if where not in consumer.assignment():
            consumer.assign([where])
        consumer.seek(where, at)
        async with asyncio.timeout(_FETCH_TIMEOUT_S):
            while not (found := (await consumer.getmany(where, timeout_ms=1000)).get(where)):
                if await consumer.position(where) >= end:
                    return end, []
        records = [
            RecordIn(
                origin=Origin(where.topic, where.partition, record.offset),
                timestamp_ms=record.timestamp,
                key=record.key,
                value=record.value or b"",
                headers=tuple(record.headers),
            )
            for record in found
            if record.offset < end
        ]
        return min(await consumer.position(where), end), records


_brokers: dict[str, Broker] = {}


def broker(bootstrap_servers: str) -> Broker:
    """The broker of the process, made when it is first needed."""
    if bootstrap_servers not in _brokers:
        _brokers[bootstrap_servers] = Broker(bootstrap_servers)
    return _brokers[bootstrap_servers]
