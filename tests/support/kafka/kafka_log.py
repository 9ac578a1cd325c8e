"""Writes records to a real Kafka that no process of Hifi would write, and reads whole topics."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import OUTCOME_BYTES_MAX
from shared.runtime.kafka.clients import running
from shared.runtime.kafka.connection import client_connection
from shared.runtime.kafka.reader import KafkaReader

# A test's records are there at once, but a busy machine may take its time.
_READ_TIMEOUT_S = 60.0
_POLL_MS = 500
# A topic without a leader has one a moment later, or the broker is gone.
_AGAIN_S = 0.2


def anywhere(_nth: int, _row: RecordOut) -> None:
    """Choose the Kafka partition by the key."""


async def write_rows(
    bootstrap_servers: str,
    rows: Iterable[RecordOut],
    *,
    partition_of: Callable[[int, RecordOut], int | None] = anywhere,
) -> None:
    """Write rows in order; return after Kafka has reported each."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", max_request_size=OUTCOME_BYTES_MAX
    )
    async with running(producer, bootstrap_servers):
        reports = []
        for nth, row in enumerate(rows):
            headers: list[Any] = list(row.headers)
            partition = partition_of(nth, row)
            reports.append(
                await producer.send(
                    row.topic, row.value, key=row.key, headers=headers, partition=partition
                )
            )
        await asyncio.gather(*reports)


async def read_all(bootstrap_servers: str, topic: str) -> list[ConsumerRecord]:
    """Return every record that a topic has now, except those of aborted transactions."""
    consumer = AIOKafkaConsumer(
        **client_connection(bootstrap_servers),
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    found: list[ConsumerRecord] = []
    async with running(consumer, bootstrap_servers), asyncio.timeout(_READ_TIMEOUT_S):
        for (name, number), (start, end) in (await _spans(consumer, topic)).items():
            where = TopicPartition(name, number)
            consumer.assign([where])
            consumer.seek(where, start)
            while await consumer.position(where) < end:
                for records in (await consumer.getmany(where, timeout_ms=_POLL_MS)).values():
                    found += records
    return found


async def _spans(consumer: AIOKafkaConsumer, topic: str) -> dict[KafkaPartition, tuple[int, int]]:
    """Return the spans of a topic; those of a broker that was just frozen come a moment later."""
    while True:
        try:
            return await KafkaReader(consumer).spans([topic])
        except KafkaError:
            await asyncio.sleep(_AGAIN_S)
