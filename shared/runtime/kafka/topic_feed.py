"""Follows a compacted topic: reads it whole, then keeps the resulting value up to date."""

import asyncio
import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

import structlog

from shared.event.record import Position
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.clients import kafka_errors
from shared.runtime.kafka.reader import Follow, KafkaReader, start_reader
from shared.runtime.kafka.refusals import missing_right
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# Kafka may hold a fetch this long while there are no records; it returns new ones at once. A
# process follows several topics all day, and each fetch is work for both sides.
_LONG_POLL_S = 2.0
# How often the feed checks for an answer, even an empty one.
_POLL_S = 0.5
# The pause between two checks while a caller waits for the newest value.
_LOOK_S = 0.005
# Without an answer for this long the value may be old. It is several polls, and longer than the
# election of a new leader.
_AGE_S_MAX = 15.0
# The loop turns twice a second; without Kafka an attempt to restart ends within the clients' 40 s.
_TURN_WITHIN_S = 120.0
# The pause between attempts to follow again; a restarting Kafka is down for seconds.
_PAUSE_S, _PAUSE_S_MAX = 0.5, 5.0

T = TypeVar("T")


class TopicFeed(Generic[T]):
    """The current value of a topic, kept up to date in the background, even after errors."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        empty: T,
        fold: Callable[[T, bytes, bytes | None], T],
        draft: Callable[[T], T] = lambda value: value,
        gather_s: float = 0.0,
    ) -> None:
        self.value = empty
        self._topic = topic
        self._empty = empty
        # Returns the value after one more record (key, value); ValueError for an invalid record.
        self._fold = fold
        # Returns a copy of the value, if folding changes it in place.
        self._draft = draft
        # Records within this time are folded together, which is cheaper than one by one.
        self._gather_s = gather_s
        self._bootstrap_servers = bootstrap_servers
        self._reader: KafkaReader | None = None
        self._follow: Follow | None = None
        # Opened at the first use, because only writers ask for the newest value.
        self._peeker: KafkaReader | None = None
        self._peeking = asyncio.Lock()
        # The time of the last request for the ends, and the answer.
        self._peeked: tuple[float, Position] = (float("-inf"), {})
        self._task: asyncio.Task[None] | None = None
        self._heard_at_s = float("-inf")
        self._answered_at_ms = 0
        self._pulse = Pulse()

    async def start(self) -> None:
        """Read all existing records, return, and follow the topic in the background."""
        try:
            with kafka_errors(self._bootstrap_servers):
                self.value = await self._open()
        except BaseException:
            await self._close()
            raise
        self._task = asyncio.create_task(self._keep_following())

    def tell(self, health: Health) -> None:
        """Count the process as alive only while this loop turns, with or without Kafka."""
        health.must_turn(f"the feed of {self._topic}", self._pulse, within_s=_TURN_WITHIN_S)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._close()
        await self._close_peeker()

    async def newest(self) -> T:
        """Return the value after all records written so far."""
        with kafka_errors(self._bootstrap_servers):
            return await self.at(await self._ends())

    async def at(self, position: Position) -> T:
        """Wait until the value includes everything before a position; return the value."""
        # The value includes every record that the client has passed: no other task runs in between.
        # The client does not report that it has passed a transaction marker, so poll it.
        while self._follow is None or not await self._follow.has_reached(position):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(_LOOK_S)
        return self.value

    async def _ends(self) -> Position:
        """Ask for the ends on a separate connection: the follower's is blocked by its fetch."""
        came_s = monotonic()
        async with self._peeking:
            # Waiting callers share an answer if Kafka was asked after their calls.
            if self._peeked[0] <= came_s:
                asked_s = monotonic()
                if self._peeker is None:
                    self._peeker = await start_reader(self._bootstrap_servers)
                peeker, follow = self._peeker, self._follow
                try:
                    if follow is None:
                        ends = await peeker.ends([self._topic])
                    else:
                        ends = await peeker.ends_of(follow.partitions)
                    self._peeked = asked_s, ends
                except BaseException:
                    await self._close_peeker()
                    raise
            return self._peeked[1]

    async def _close_peeker(self) -> None:
        peeker, self._peeker = self._peeker, None
        if peeker is not None:
            await peeker.close()

    @property
    def age_s(self) -> float:
        """The time since Kafka last confirmed that there is nothing newer."""
        return monotonic() - self._heard_at_s

    @property
    def problem(self) -> str | None:
        """The reason why the value may be old; None while it is fresh."""
        if self.age_s > _AGE_S_MAX:
            return f"no news of {self._topic} for {_AGE_S_MAX:g} s"
        return None

    async def _open(self) -> T:
        """Follow from the beginning; return the value after all existing records."""
        self._reader = await start_reader(
            self._bootstrap_servers, fetch_max_wait_ms=round(_LONG_POLL_S * 1000)
        )
        spans = await self._reader.spans([self._topic])
        if not spans:
            raise SetupError(
                f"Kafka at {self._bootstrap_servers} has no topic {self._topic}: create Hifi's"
                " topics first (`hifi up` or `hifi topics` does it), or use another Kafka."
            )
        follow = self._reader.follow({where: begin for where, (begin, _) in spans.items()})
        value = self._empty
        while not await follow.has_reached({where: end for where, (_, end) in spans.items()}):
            value = await self._take(follow, value)
        self._follow, self._heard_at_s = follow, monotonic()
        return value

    async def _keep_following(self) -> None:
        """Follow new records. After an error read everything again, so the value is never stale."""
        pause_s = _PAUSE_S
        while True:
            self._pulse.beat()
            try:
                if self._follow is None:
                    value = await self._open()
                else:
                    value = await self._take(self._follow, self.value)
                if value != self.value:
                    self.value = value
                pause_s = _PAUSE_S
                await asyncio.sleep(self._gather_s)
            except Exception as error:  # noqa: BLE001 - after any error we must follow again
                says = missing_right(self._bootstrap_servers, error) or repr(error)
                log.warning(
                    "feed.follower_failed", topic=self._topic, error=says, again_in_s=pause_s
                )
                await self._close()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _close(self) -> None:
        reader, self._reader, self._follow = self._reader, None, None
        if reader is not None:
            await reader.close()

    async def _take(self, follow: Follow, value: T) -> T:
        """Return the value after newly arrived records."""
        records = await follow.read(wait_s=_POLL_S)
        self._pulse.beat()
        if records or follow.answered_at_ms != self._answered_at_ms:
            # An answer without records counts too: it confirms that there is nothing newer.
            self._answered_at_ms = follow.answered_at_ms
            self._heard_at_s = monotonic()
        if records:
            value = self._draft(value)
        for record in records:
            try:
                value = self._fold(value, record.key or b"", record.value)
            except (ValueError, TypeError) as error:
                # A bad record changes nothing, and must not stop the others.
                log.warning(
                    "feed.record_refused", topic=self._topic, key=str(record.key), error=str(error)
                )
        return value
