"""Writes and follows the config topic: config push without a database."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from aiokafka.errors import IllegalOperation, ProducerFenced

from shared.config.configuration import Configuration
from shared.config.model import ConfigObject
from shared.event.topics import CONFIG
from shared.runtime.kafka.clients import new_producer, running
from shared.runtime.kafka.topic_feed import TopicFeed
from shared.runtime.setup_error import OperatorError

# Whoever starts a transaction under this id ends an earlier one that is still open.
_WRITER_ID = "hifi-config"
# Readers wait for an open transaction; one that a crash has left must not hold them for long.
_TRANSACTION_TIMEOUT_MS = 10_000


class OutrunError(OperatorError):
    """Another writer has begun meanwhile; nothing was stored."""


class ConfigFeed(TopicFeed[Configuration]):
    """The newest configuration, kept up to date in the background, whatever happens to Kafka."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        on_change: Callable[[Configuration], None] | None = None,
    ) -> None:
        super().__init__(
            bootstrap_servers,
            CONFIG,
            empty=Configuration(),
            fold=Configuration.apply,
            on_change=on_change,
        )

    @property
    def configuration(self) -> Configuration:
        return self.value


@asynccontextmanager
async def config_writer(
    bootstrap_servers: str,
) -> AsyncIterator[Callable[[bytes, bytes | None], Awaitable[None]]]:
    """Store one record, unless another writer begins after us: then OutrunError, and nothing is."""
    producer = new_producer(
        bootstrap_servers,
        transactional_id=_WRITER_ID,
        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
    )

    async def write(key: bytes, value: bytes | None) -> None:
        try:
            async with producer.transaction():
                await producer.send_and_wait(CONFIG, key=key, value=value)
        except (ProducerFenced, IllegalOperation) as error:
            # The client says the second when it has seen the first in the background.
            raise OutrunError("Another gateway has changed the configuration meanwhile.") from error

    async with running(producer, bootstrap_servers):
        yield write


async def read_config(bootstrap_servers: str) -> Configuration:
    """The configuration as of now."""
    feed = ConfigFeed(bootstrap_servers)
    try:
        await feed.start()
    finally:
        await feed.stop()
    return feed.configuration


async def write_config(bootstrap_servers: str, objects: Iterable[ConfigObject]) -> None:
    """Store config objects; returns after Kafka has reported each."""
    await write_records(bootstrap_servers, [(item.config_key, item.to_json()) for item in objects])


async def write_records(
    bootstrap_servers: str, records: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Store config records as they are; None as a value removes the object."""
    async with running(new_producer(bootstrap_servers), bootstrap_servers) as producer:
        for key, value in records:
            await producer.send_and_wait(CONFIG, key=key, value=value)
