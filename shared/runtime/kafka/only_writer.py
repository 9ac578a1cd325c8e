"""Writes records in transactions, with one writer under a name: a new one ends the previous one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import Any, Protocol, TypeAlias

from aiokafka.structs import OffsetAndMetadata, TopicPartition

from shared.event.record import Headers, KafkaPartition, RecordOut
from shared.runtime.kafka.clients import FENCED, KafkaProducer, new_producer, running
from shared.runtime.setup_error import OperatorError

# While a transaction is open, readers of its topics wait. A crash may leave one open, which must
# not stop them for long; Kafka's default is a minute.
_TRANSACTION_TIMEOUT_MS = 10_000

# Topic, key, value and headers, as in a RecordOut; a row without a value is a deletion. The Kafka
# partition comes last, if the key does not decide it.
Row: TypeAlias = (
    tuple[str, bytes | None, bytes | None, Headers]
    | tuple[str, bytes | None, bytes | None, Headers, int]
)
# Positions by consumer group and Kafka partition: an offset, and its metadata.
Told: TypeAlias = Mapping[str, Mapping[KafkaPartition, tuple[int, str]]]
NOTHING_TOLD: Told = {}
# Kafka needs some milliseconds to finish a transaction, so the next one must be tried again if it
# follows at once. aiokafka's own pause is 100 ms.
_PAUSE_MS = 20
# Kafka may forget an idle writer after days, and closes idle connections after minutes.
_IDLE_S_MAX = 30.0


class Write(Protocol):
    """Stores either all rows and positions or none; returns Kafka's report on each row.

    Rows that name their Kafka partition share reports.
    """

    async def __call__(self, rows: Iterable[Row], told: Told = ...) -> list[Any]: ...


def rows_of(records: Iterable[RecordOut]) -> Iterator[Row]:
    """Convert records to rows, whose keys decide the Kafka partition."""
    return ((record.topic, record.key, record.value, record.headers) for record in records)


class OvertakenError(OperatorError):
    """Another writer has begun under the name; nothing of this transaction was stored."""


@asynccontextmanager
async def only_writer(bootstrap_servers: str, name: str, **options: Any) -> AsyncIterator[Write]:
    """Yield a function that stores rows in order and then positions, in one transaction.

    From then on, earlier writers under the name can write nothing more.
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
            # The client also leaves the error in a future, and would log it as never retrieved.
            waiter = producer._txn_manager._transaction_waiter  # noqa: SLF001 - see above
            if waiter.done():
                waiter.exception()
            raise OvertakenError(f"Another writer {name} has begun meanwhile.") from error
        return reports

    async with running(producer, bootstrap_servers):
        yield write


class KeptWriter:
    """The only writer under its name; it stays open between uses, which must not overlap.

    Beginning a writer takes about twenty requests to Kafka. Only when it writes does a writer
    notice that another one has overtaken it. After that, or any other error, the next use begins a
    new writer.
    """

    def __init__(self, begin: Callable[[], AbstractAsyncContextManager[Write]]) -> None:
        self._begin = begin
        self._open: tuple[AbstractAsyncContextManager[Write], Write] | None = None
        self._used_s = 0.0

    @property
    def kept(self) -> Write | None:
        """The open writer, which the next `use` yields unless it begins a new one."""
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
    """Send rows one after the other, so that they are stored in this order.

    Rows that name their Kafka partition are batched here, because the client needs three times as
    long to send them one by one.
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
