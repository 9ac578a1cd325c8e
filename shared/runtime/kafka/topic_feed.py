"""Decides how a compacted topic is followed: read whole, then kept up to date for ever."""

import asyncio
import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# A record is live everywhere well inside the 2 s that we promise for the configuration.
_POLL_S = 0.5
# Without an answer for so long the value may be old: a dozen polls, and longer than the election of
# a new leader takes.
_AGE_S_MAX = 15.0
# Between attempts to follow again; a Kafka that restarts is away for seconds.
_PAUSE_S, _PAUSE_S_MAX = 0.5, 5.0

T = TypeVar("T")


class TopicFeed(Generic[T]):
    """What a topic amounts to by now, kept up to date in the background, whatever Kafka does."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        empty: T,
        fold: Callable[[T, bytes, bytes | None], T],
        on_change: Callable[[T], None] | None = None,
    ) -> None:
        self.value = empty
        self._topic = topic
        self._partition = TopicPartition(topic, 0)
        self._empty = empty
        # The value after one more record (key, value); ValueError when the record makes no sense.
        self._fold = fold
        self._bootstrap_servers = bootstrap_servers
        self._on_change = on_change
        self._consumer: AIOKafkaConsumer | None = None
        self._follower: asyncio.Task[None] | None = None
        self._heard_at_s = float("-inf")
        self._answered_ms: int | None = None

    async def start(self) -> None:
        """Read what there is, then follow. Returns once everything written so far is known."""
        try:
            self._consumer, self.value = await self._open()
        except KafkaError as error:
            raise SetupError(
                f"{self._topic} cannot be read from Kafka at {self._bootstrap_servers}"
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
        """Why the value may be old; None while it is fresh."""
        if self.age_s > _AGE_S_MAX:
            return f"no news of {self._topic} for {_AGE_S_MAX:g} s"
        return None

    async def _open(self) -> tuple[AIOKafkaConsumer, T]:
        """A consumer at the end of the topic, and what all records up to there amount to."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            await consumer.start()
            await self._check_topic(consumer)
            consumer.assign([self._partition])
            await consumer.seek_to_beginning(self._partition)
            end = (await consumer.end_offsets([self._partition]))[self._partition]
            found = self._empty
            while await consumer.position(self._partition) < end:
                found = await self._take(consumer, found)
        except BaseException:
            await consumer.stop()
            raise
        self._heard_at_s = monotonic()
        return consumer, found

    async def _check_topic(self, consumer: AIOKafkaConsumer) -> None:
        if self._topic not in await consumer.topics():
            raise SetupError(
                f"Kafka at {self._bootstrap_servers} has no topic {self._topic}: create Hifi's"
                " topics first (`hifi up` does it), or name another Kafka."
            )

    async def _follow(self) -> None:
        """Take what comes. A follower that fails is begun anew: old news must not pass for new."""
        pause_s = _PAUSE_S
        while True:
            try:
                if self._consumer is None:
                    self._consumer, found = await self._open()
                else:
                    found = await self._take(self._consumer, self.value)
                if found != self.value:
                    self.value = found
                    if self._on_change is not None:
                        self._on_change(found)
                pause_s = _PAUSE_S
            except Exception as error:  # noqa: BLE001 - whatever it is, we must follow on
                log.warning(
                    "feed.follower_failed", topic=self._topic, error=repr(error), again_in_s=pause_s
                )
                await self._close()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(KafkaError):
                await consumer.stop()

    async def _take(self, consumer: AIOKafkaConsumer, found: T) -> T:
        """The value after the records that are there."""
        batches = await consumer.getmany(self._partition, timeout_ms=round(_POLL_S * 1000))
        answered_ms = consumer.last_poll_timestamp(self._partition)
        if batches or answered_ms != self._answered_ms:
            # Also an answer without records is news: there is nothing newer.
            self._answered_ms = answered_ms
            self._heard_at_s = monotonic()
        for record in batches.get(self._partition, []):
            try:
                found = self._fold(found, record.key or b"", record.value)
            except (ValueError, TypeError) as error:
                # One bad record must not stop the others; what it is about stays as it was.
                log.warning(
                    "feed.record_refused", topic=self._topic, key=str(record.key), error=str(error)
                )
        return found
