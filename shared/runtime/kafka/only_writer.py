"""Writes records all or none, as the only writer of a name: a later one ends the earlier."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import Any, Protocol, TypeAlias

from aiokafka.structs import OffsetAndMetadata, TopicPartition

from shared.event.record import Headers, KafkaPartition, RecordOut
from shared.runtime.kafka.clients import FENCED, KafkaProducer, new_producer, running
from shared.runtime.setup_error import OperatorError

# While a transaction is open, readers of its topics wait. One that was left open by a crash must
# not hold them for long; Kafka's default is a minute.
_TRANSACTION_TIMEOUT_MS = 10_000

# Topic, key, value and headers, as in a RecordOut; without a value it deletes. The Kafka partition
# comes last, if the key does not decide it.
Row: TypeAlias = (
    tuple[str, bytes | None, bytes | None, Headers]
    | tuple[str, bytes | None, bytes | None, Headers, int]
)
# Positions by consumer group and Kafka partition: an offset, and its metadata.
Told: TypeAlias = Mapping[str, Mapping[KafkaPartition, tuple[int, str]]]
NOTHING_TOLD: Told = {}
# Kafka makes a transaction that follows another at once try again, as it is not done with the one
# before for some milliseconds. aiokafka's own pause is 100 ms.
_PAUSE_MS = 20
# Kafka may forget a writer that is idle, after days, and ends idle connections after minutes.
_IDLE_S_MAX = 30.0


class Write(Protocol):
    """Stores rows and positions, all or none; returns Kafka's report on each row.

    Rows that name their Kafka partition share reports.
    """

    async def __call__(self, rows: Iterable[Row], told: Told = ...) -> list[Any]: ...


def rows_of(records: Iterable[RecordOut]) -> Iterator[Row]:
    """Rows that go to the Kafka partition of their key."""
    return ((record.topic, record.key, record.value, record.headers) for record in records)


class OvertakenError(OperatorError):
    """Another writer of the name has begun; nothing of this transaction was stored."""


@asynccontextmanager
async def only_writer(bootstrap_servers: str, name: str, **options: Any) -> AsyncIterator[Write]:
    """Stores rows in order and then positions, in one transaction.

    Once this has begun, a writer that began earlier under the name can write nothing more.
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
                    # Await each report, even after an error.
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
            # The client leaves the error in a future as well, and its loss would be logged.
            waiter = producer._txn_manager._transaction_waiter  # noqa: SLF001 - see above
            if waiter.done():
                waiter.exception()
            raise OvertakenError(f"Another writer {name} has begun meanwhile.") from error
        return reports

    async with running(producer, bootstrap_servers):
        yield write


class KeptWriter:
    """An only writer that stays open between uses; uses follow one another.

    Beginning one takes some twenty requests to Kafka. A writer learns that another one has
    overtaken it when it writes; after that, or any other error, the next use begins a new one.
    """

    def __init__(self, begin: Callable[[], AbstractAsyncContextManager[Write]]) -> None:
        self._begin = begin
        self._open: tuple[AbstractAsyncContextManager[Write], Write] | None = None
        self._used_s = 0.0

    @property
    def kept(self) -> Write | None:
        """The writer that `use` yields if it begins no other."""
        return self._open[1] if self._open else None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Write]:
        if monotonic() - self._used_s > _IDLE_S_MAX:
            await self.close()
        if self._open is None:
            begun = self._begin()
            self._open = begun, await begun.__aenter__()
        begun, write = self._open
        try:
            yield write
        except BaseException as error:
            self._open = None
            await begun.__aexit__(type(error), error, error.__traceback__)
            raise
        self._used_s = monotonic()

    async def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened[0].__aexit__(None, None, None)


async def _send(producer: KafkaProducer, rows: Iterable[Row], sent: list[Awaitable[Any]]) -> None:
    """Send rows one after the other, so that they stand in this order.

    Rows that name their Kafka partition are batched here: one by one they take the client three
    times as long.
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
