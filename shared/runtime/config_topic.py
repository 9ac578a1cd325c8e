"""Decides how the config topic is written and followed: config push without a database."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from time import monotonic

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from shared.access import ApiKey, Tenant
from shared.configuration import Configuration, Stream
from shared.destination import Destination
from shared.runtime.setup_error import SetupError
from shared.topics import CONFIG

log = structlog.get_logger()

ConfigObject = Stream | Destination | ApiKey | Tenant

# A record of config is live everywhere well inside the 2 s that we promise.
_POLL_S = 0.5
# Without an answer for so long the configuration may be old: a dozen polls, and longer than the
# election of a new leader takes.
_AGE_S_MAX = 15.0
# Between attempts to follow again; a Kafka that restarts is away for seconds.
_PAUSE_S, _PAUSE_S_MAX = 0.5, 5.0
_PARTITION = TopicPartition(CONFIG, 0)


class ConfigFeed:
    """The newest configuration, kept up to date in the background, whatever happens to Kafka."""

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
        self._heard_at_s = float("-inf")
        self._answered_ms: int | None = None

    async def start(self) -> None:
        """Read what there is, then follow. Returns once everything written so far is known."""
        try:
            self._consumer, self.configuration = await self._open()
        except KafkaError as error:
            raise SetupError(
                f"No configuration can be read from Kafka at {self._bootstrap_servers}"
                f" ({error!r}): is it up, and the address right?"
            ) from error
        self._follower = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
        await self._close()

    @property
    def age_s(self) -> float:
        """How long ago Kafka last said that there is nothing newer."""
        return monotonic() - self._heard_at_s

    @property
    def problem(self) -> str | None:
        """Why the configuration may be old; None while it is fresh."""
        if self.age_s > _AGE_S_MAX:
            return f"no news of the configuration for {_AGE_S_MAX:g} s"
        return None

    async def _open(self) -> tuple[AIOKafkaConsumer, Configuration]:
        """A consumer at the end of the topic, and what all records up to there amount to."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            await consumer.start()
            await self._check_topic(consumer)
            consumer.assign([_PARTITION])
            await consumer.seek_to_beginning(_PARTITION)
            end = (await consumer.end_offsets([_PARTITION]))[_PARTITION]
            found = Configuration()
            while await consumer.position(_PARTITION) < end:
                found = await self._take(consumer, found)
        except BaseException:
            await consumer.stop()
            raise
        self._heard_at_s = monotonic()
        return consumer, found

    async def _check_topic(self, consumer: AIOKafkaConsumer) -> None:
        if CONFIG not in await consumer.topics():
            raise SetupError(
                f"Kafka at {self._bootstrap_servers} has no topic {CONFIG}: create Hifi's"
                " topics first (`hifi up` does it), or name another Kafka."
            )

    async def _follow(self) -> None:
        """Take what comes. A follower that fails is begun anew: old config must not go unseen."""
        pause_s = _PAUSE_S
        while True:
            try:
                if self._consumer is None:
                    self._consumer, found = await self._open()
                else:
                    found = await self._take(self._consumer, self.configuration)
                if found != self.configuration:
                    self.configuration = found
                    if self._on_change is not None:
                        self._on_change(found)
                pause_s = _PAUSE_S
            except Exception as error:  # noqa: BLE001 - whatever it is, we must follow on
                log.warning("config.follower_failed", error=repr(error), again_in_s=pause_s)
                await self._close()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(KafkaError):
                await consumer.stop()

    async def _take(self, consumer: AIOKafkaConsumer, found: Configuration) -> Configuration:
        """The configuration after the records that are there."""
        batches = await consumer.getmany(_PARTITION, timeout_ms=round(_POLL_S * 1000))
        answered_ms = consumer.last_poll_timestamp(_PARTITION)
        if batches or answered_ms != self._answered_ms:
            # Also an answer without records is news: there is nothing newer.
            self._answered_ms = answered_ms
            self._heard_at_s = monotonic()
        for record in batches.get(_PARTITION, []):
            try:
                found = found.apply(record.key or b"", record.value)
            except (ValueError, TypeError) as error:
                # One bad object must not stop the others; it stays as it was before.
                log.warning("config.record_refused", key=str(record.key), error=str(error))
        return found


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
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    try:
        await producer.start()
        for key, value in records:
            await producer.send_and_wait(CONFIG, key=key, value=value)
    except KafkaError as error:
        raise SetupError(
            f"Kafka at {bootstrap_servers} did not take the configuration ({error!r}):"
            " write it again when Kafka is well."
        ) from error
    finally:
        await producer.stop()
