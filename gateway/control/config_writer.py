"""Writes the config topic: all of Hifi follows what is stored there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from shared.event.record import KafkaPartition, Position
from shared.event.topics import CONFIG
from shared.runtime.kafka.clients import FENCED, new_producer, running
from shared.runtime.setup_error import OperatorError

# Whoever starts a transaction under this id ends an earlier one that is still open.
_WRITER_ID = "hifi-config"
# Readers wait for an open transaction; one that a crash has left must not hold them for long.
_TRANSACTION_TIMEOUT_MS = 10_000


class OutrunError(OperatorError):
    """Another writer has begun meanwhile; nothing was stored."""


@asynccontextmanager
async def config_writer(
    bootstrap_servers: str,
) -> AsyncIterator[Callable[[bytes, bytes | None], Awaitable[Position]]]:
    """Stores one record and returns the position after it; OutrunError if nothing was stored.

    Nothing is when another writer begins after us.
    """
    producer = new_producer(
        bootstrap_servers,
        transactional_id=_WRITER_ID,
        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
    )

    async def write(key: bytes, value: bytes | None) -> Position:
        try:
            async with producer.transaction():
                stored = await producer.send_and_wait(CONFIG, key=key, value=value)
        except FENCED as error:
            raise OutrunError("Another gateway has changed the configuration meanwhile.") from error
        return {KafkaPartition(stored.topic, stored.partition): stored.offset + 1}

    async with running(producer, bootstrap_servers):
        yield write
