"""Decides how the config topic is written and followed: config push without a database."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from shared.configuration import Configuration, Destination, Stream
from shared.topics import CONFIG

log = structlog.get_logger()

# A record of config is live everywhere well inside the 2 s that we promise.
_POLL_S = 0.5
_PARTITION = TopicPartition(CONFIG, 0)


class ConfigFeed:
    """The newest configuration, kept up to date in the background."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        on_change: Callable[[Configuration], None] | None = None,
    ) -> None:
        self.configuration = Configuration()
        self._bootstrap_servers = bootstrap_servers
        self._on_change = on_change
        self._consumer: AIOKafkaConsumer | None = None
        self._follower: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what there is, then follow. Returns once everything written so far is known."""
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await self._consumer.start()
        self._consumer.assign([_PARTITION])
        await self._consumer.seek_to_beginning(_PARTITION)
        end = (await self._consumer.end_offsets([_PARTITION]))[_PARTITION]
        while await self._consumer.position(_PARTITION) < end:
            await self._take(self._consumer)
        self._follower = asyncio.create_task(self._follow(self._consumer))

    async def stop(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
        if self._consumer is not None:
            await self._consumer.stop()

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            if await self._take(consumer) and self._on_change is not None:
                self._on_change(self.configuration)

    async def _take(self, consumer: AIOKafkaConsumer) -> bool:
        """Apply the records that are there; say whether there were any."""
        batches = await consumer.getmany(_PARTITION, timeout_ms=round(_POLL_S * 1000))
        records = batches.get(_PARTITION, [])
        for record in records:
            try:
                self.configuration = self.configuration.apply(record.key or b"", record.value)
            except (ValueError, TypeError) as error:
                # One bad object must not stop the others; it stays as it was before.
                log.warning("config.record_refused", key=str(record.key), error=str(error))
        return bool(records)


async def read_config(bootstrap_servers: str) -> Configuration:
    """The configuration as of now."""
    feed = ConfigFeed(bootstrap_servers)
    try:
        await feed.start()
    finally:
        await feed.stop()
    return feed.configuration


async def write_config(bootstrap_servers: str, objects: Iterable[Stream | Destination]) -> None:
    """Store config objects; returns after Kafka has reported each."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    await producer.start()
    try:
        for item in objects:
            await producer.send_and_wait(CONFIG, key=item.config_key, value=item.to_json())
    finally:
        await producer.stop()
