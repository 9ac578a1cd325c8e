"""Writes records all or none, as the only one of a name: whoever begins later ends the earlier."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from shared.event.record import Headers
from shared.runtime.kafka.clients import FENCED, new_producer, running
from shared.runtime.setup_error import OperatorError

# While a transaction is open, who reads its topics waits. One that was left open by a crash must
# not hold them for long; Kafka's default is a minute.
_TRANSACTION_TIMEOUT_MS = 10_000

# Topic, key, value and headers, as of a RecordOut; without a value it takes away.
Row: TypeAlias = tuple[str, bytes | None, bytes | None, Headers]
Write: TypeAlias = Callable[[Iterable[Row]], Awaitable[list[Any]]]


class OvertakenError(OperatorError):
    """Another writer of the name has begun; nothing of this transaction was stored."""


@asynccontextmanager
async def only_writer(bootstrap_servers: str, name: str, **options: Any) -> AsyncIterator[Write]:
    """Stores rows in their order, in one transaction, and returns Kafka's report on each.

    Once this has begun, nothing more can be written by whoever began under the name before.
    """
    producer = new_producer(
        bootstrap_servers,
        transactional_id=name,
        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        **options,
    )

    async def write(rows: Iterable[Row]) -> list[Any]:
        try:
            async with producer.transaction():
                sent: list[Awaitable[Any]] = []
                try:
                    # One after the other, so that they stand in this order.
                    for topic, key, value, headers in rows:
                        report = await producer.send(topic, value, key=key, headers=list(headers))
                        sent.append(report)
                finally:
                    # Whatever goes wrong, each report is looked at.
                    reports = await asyncio.gather(*sent, return_exceptions=True)
                for report in reports:
                    if isinstance(report, BaseException):
                        raise report
        except FENCED as error:
            raise OvertakenError(f"Another writer {name} has begun meanwhile.") from error
        return reports

    async with running(producer, bootstrap_servers):
        yield write
