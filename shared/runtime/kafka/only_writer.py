"""Writes records all or none, as the only one of a name: whoever begins later ends the earlier."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeAlias

from aiokafka.structs import OffsetAndMetadata, TopicPartition

from shared.event.record import Headers, KafkaPartition, RecordOut
from shared.runtime.kafka.clients import FENCED, KafkaProducer, new_producer, running
from shared.runtime.setup_error import OperatorError

# While a transaction is open, who reads its topics waits. One that was left open by a crash must
# not hold them for long; Kafka's default is a minute.
_TRANSACTION_TIMEOUT_MS = 10_000

# Topic, key, value and headers, as of a RecordOut; without a value it takes away. And the Kafka
# partition, if it is not by the key.
Row: TypeAlias = (
    tuple[str, bytes | None, bytes | None, Headers]
    | tuple[str, bytes | None, bytes | None, Headers, int]
)
# How far somebody is, by consumer group and Kafka partition: an offset, and a word beside it.
Told: TypeAlias = Mapping[str, Mapping[KafkaPartition, tuple[int, str]]]
NOTHING_TOLD: Told = {}
# A transaction that follows another at once is told to come again: Kafka is not done with the one
# before for some milliseconds. aiokafka's own pause is 100 ms.
_PAUSE_MS = 20


class Write(Protocol):
    """Stores rows and positions, all or none; gives Kafka's report on each row.

    On rows that name their Kafka partition it is one for many.
    """

    async def __call__(self, rows: Iterable[Row], told: Told = ...) -> list[Any]: ...


def rows_of(records: Iterable[RecordOut]) -> Iterator[Row]:
    """Those that go to the Kafka partition of their key."""
    return ((it.topic, it.key, it.value, it.headers) for it in records)


class OvertakenError(OperatorError):
    """Another writer of the name has begun; nothing of this transaction was stored."""


@asynccontextmanager
async def only_writer(bootstrap_servers: str, name: str, **options: Any) -> AsyncIterator[Write]:
    """Stores rows in their order and then positions, in one transaction.

    Once this has begun, nothing more can be written by whoever began under the name before.
    """
    producer = new_producer(
        bootstrap_servers,
        transactional_id=name,
        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        retry_backoff_ms=_PAUSE_MS,
        **options,
    )

    async def write(rows: Iterable[Row], told: Told = NOTHING_TOLD) -> list[Any]:
        try:
            async with producer.transaction():
                sent: list[Awaitable[Any]] = []
                try:
                    await _send(producer, rows, sent)
                finally:
                    # Whatever goes wrong, each report is looked at.
                    reports = await asyncio.gather(*sent, return_exceptions=True)
                for report in reports:
                    if isinstance(report, BaseException):
                        raise report
                for group, position in told.items():
                    offsets = {
                        TopicPartition(*where): OffsetAndMetadata(at, word)
                        for where, (at, word) in position.items()
                    }
                    await producer.send_offsets_to_transaction(offsets, group)
        except FENCED as error:
            raise OvertakenError(f"Another writer {name} has begun meanwhile.") from error
        return reports

    async with running(producer, bootstrap_servers):
        yield write


async def _send(producer: KafkaProducer, rows: Iterable[Row], sent: list[Awaitable[Any]]) -> None:
    """One after the other, so that they stand in this order.

    Those that name their Kafka partition are put together here: one by one they take the client
    three times as long.
    """
    batches: dict[tuple[str, int], Any] = {}
    for topic, key, value, headers, *place in rows:
        if not place:
            sent.append(await producer.send(topic, value, key=key, headers=list(headers)))
            continue
        where = (topic, place[0])
        record = {"timestamp": None, "key": key, "value": value, "headers": list(headers)}
        batch = batches.get(where)
        if batch is None or batch.append(**record) is None:
            if batch is not None:
                sent.append(await producer.send_batch(batch, topic, partition=place[0]))
            batches[where] = producer.create_batch()
            batches[where].append(**record)
    for (topic, partition), batch in batches.items():
        sent.append(await producer.send_batch(batch, topic, partition=partition))
