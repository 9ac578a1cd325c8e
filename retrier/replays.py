"""Carries out replays: puts their events, slice by slice, into the tiers that the retrier sends.

The events of a slice and the replay's position after it are one transaction of the replay's only
writer (ADR 0109): a writer that dies or is replaced leaves no event out, and writes none twice.
"""

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from msgspec.structs import replace

from retrier.broker import Broker
from retrier.restraint import Restraint, part_of
from retrier.settings import RetrierSettings
from shared.event.envelope import open_stream_record
from shared.event.record import KafkaPartition, RecordIn
from shared.event.topics import OUTCOME_BYTES_MAX, REPLAYS, lease_group, stream_topic
from shared.retry.replay import Replay, ReplayOrder, ReplayProgress, progress_row, queued_rows
from shared.runtime.health import Pulse
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.leases.fenced_positions import FencedPositions
from shared.runtime.kafka.leases.member import LeaseMember
from shared.runtime.kafka.lookup.replays import ReplayFeed
from shared.runtime.kafka.only_writer import OvertakenError, Row, Write, only_writer, rows_of
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.kafka.state_topic import StateFeed

log = structlog.get_logger()

_GROUP = lease_group("replays")
_LOOK_S = 0.5
# The limits of a slice: events that are sent, events that are looked at, and bytes.
_CHUNK, _LOOKED_MAX, _BYTES_MAX = 500, 5_000, 4_000_000
# Sending an event is this many times as much work as skipping it.
_LOOKED_PER_SENT = 10
# The pause after a fault that may pass.
_PAUSE_S = 5.0


class Replayer:
    """The replays that one process carries out."""

    def __init__(
        self,
        settings: RetrierSettings,
        config: ConfigFeed,
        states: StateFeed,
        fenced: FencedPositions,
        broker: Broker,
    ) -> None:
        servers = settings.bootstrap_servers
        self.feed = ReplayFeed(servers)
        self.member = LeaseMember(
            servers, _GROUP, self, session_s=settings.lease_s, drain_s=settings.drain_s
        )
        self._settings, self._config, self._states = settings, config, states
        self._fenced = fenced
        self._broker = broker
        self._slots: frozenset[int] = frozenset()
        # Each task with the event that tells it to end.
        self._tasks: dict[tuple[str, str], tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._not_before_s: dict[tuple[str, str], float] = {}

    def begin(self, slots: frozenset[int]) -> None:
        self._slots |= slots

    async def finish(self, slots: frozenset[int]) -> None:
        # Each replay ends after its present slice.
        await asyncio.gather(*self._stop(slots), return_exceptions=True)

    def drop(self, slots: frozenset[int]) -> None:
        # A cancelled slice leaves nothing in Kafka.
        for task in self._stop(slots):
            task.cancel()

    async def run(self, stop: asyncio.Event, pulse: Pulse) -> None:
        """Carry out our replays until `stop` is set."""
        while not stop.is_set():
            pulse.beat()
            for place, (task, _) in list(self._tasks.items()):
                if task.done():
                    del self._tasks[place]
            for place, replay in self.feed.value.items():
                if (
                    replay.state == "running"
                    and replay.order is not None
                    and not replay.order.is_archived
                    and self._slot_of(place) in self._slots
                    and place not in self._tasks
                    and time.monotonic() >= self._not_before_s.get(place, 0.0)
                ):
                    ends = asyncio.Event()
                    self._tasks[place] = asyncio.create_task(self._carry_out(place, ends)), ends
            await _pause(stop, _LOOK_S)

    def _slot_of(self, place: tuple[str, str]) -> int:
        return self.member.slot_of("/".join(place))

    def _stop(self, slots: Collection[int]) -> list[asyncio.Task[None]]:
        """Tell the replays of these slots to end."""
        self._slots -= frozenset(slots)
        stopped = [each for place, each in self._tasks.items() if self._slot_of(place) in slots]
        for _, ends in stopped:
            ends.set()
        return [task for task, _ in stopped]

    async def _carry_out(self, place: tuple[str, str], ends: asyncio.Event) -> None:
        """Carry out a replay until it is done or `ends` is set; retry after a pause on a fault."""
        servers = self._settings.bootstrap_servers
        stream, replay_id = place
        try:
            order = self.feed.value[place].order
            assert order is not None, "only requested replays are begun"
            async with (
                only_writer(servers, order.writer, max_request_size=OUTCOME_BYTES_MAX) as write,
                open_reader(servers, fetch_max_bytes=_BYTES_MAX) as reader,
            ):
                # Its earlier writer can write no more, so the position is final.
                progress = (await self.feed.newest())[place].progress
                log.info("replay.goes_on", stream=stream, replay=replay_id, sent=progress.sent)
                restraint = Restraint(
                    order,
                    config=self._config,
                    states=self._states,
                    fenced=self._fenced,
                    reader=reader,
                    schedule=self._settings.schedule,
                    tenant_count=partial(self._count_of, order.tenant),
                )
                course = _Course(self, restraint, order, progress, write=write, reader=reader)
                await course.run(ends)
        except OvertakenError:
            log.info("replay.overtaken", stream=stream, replay=replay_id)
        except AWAY as error:
            log.warning("replay.interrupted", stream=stream, replay=replay_id, error=repr(error))
            self._not_before_s[place] = time.monotonic() + _PAUSE_S
        except Exception as error:
            # A replay that cannot be carried out must not stop the others, nor the retrier.
            log.exception("replay.failed", stream=stream, replay=replay_id, error=repr(error))
            self._not_before_s[place] = time.monotonic() + 6 * _PAUSE_S

    async def now_ms(self) -> int:
        """Return the time by the broker's clock."""
        return (await self._broker.clock())()

    def share_of(self, tenant: str) -> float:
        """Return the events per second that a replay of this tenant may put into the tiers now."""
        orders = (self.feed.value.get(place, Replay()).order for place in self._tasks)
        running = [order.tenant for order in orders if order is not None]
        return self._settings.replays_per_s * part_of(tenant, running)

    def is_cancelled(self, order: ReplayOrder) -> bool:
        known = self.feed.value.get((order.stream, order.id), Replay()).order
        return known is None or known.cancelled_at_ms > 0

    def _count_of(self, tenant: str) -> int:
        """Count a tenant's running replays, in all processes."""
        return sum(
            each.order is not None and each.order.tenant == tenant and each.state == "running"
            for each in self.feed.value.values()
        )

    @property
    def settings(self) -> RetrierSettings:
        return self._settings


class _Course:
    """One replay under way."""

    def __init__(
        self,
        replayer: Replayer,
        restraint: Restraint,
        order: ReplayOrder,
        progress: ReplayProgress,
        *,
        write: Write,
        reader: KafkaReader,
    ) -> None:
        self._replayer, self._restraint = replayer, restraint
        self._order, self._progress = order, progress
        self._write, self._reader = write, reader

    async def run(self, ends: asyncio.Event) -> None:
        order, replayer, restraint = self._order, self._replayer, self._restraint
        while not ends.is_set() and not replayer.is_cancelled(order):
            begun_s = time.monotonic()
            if failure := restraint.failure:
                await self._store([], replace(self._progress, state="failed", why=failure))
                return
            span = Replay(order, self._progress).next_span(_LOOKED_MAX)
            if span is None:
                await self._store([], replace(self._progress, state="done", why=""))
                log.info("replay.done", stream=order.stream, replay=order.id)
                return
            if why := await restraint.why(await replayer.now_ms()):
                if why != self._progress.why:
                    await self._store([], replace(self._progress, why=why))
                await _pause(ends, _LOOK_S)
                continue
            share = replayer.share_of(order.tenant)
            rate = min(restraint.rate_max, share)
            sent, looked = await self._slice(span, count_max=max(1, min(_CHUNK, int(rate))))
            needs_s = max(sent / rate, looked / (_LOOKED_PER_SENT * share))
            await _pause(ends, begun_s + needs_s - time.monotonic())

    async def _slice(self, span: tuple[int, int, int], *, count_max: int) -> tuple[int, int]:
        """Put some events into the first tier; return their number, and how many were looked at."""
        order, progress = self._order, self._progress
        number, at, end = span
        where = KafkaPartition(stream_topic(order.stream), number)
        first = (await self._reader.starts([where.topic])).get(where, at)
        gone = max(0, min(first, end) - at)
        wanted, reached, reached_ms = await self._read(where, at + gone, end, count_max)
        at_ms = await self._replayer.now_ms()
        schedule = self._replayer.settings.schedule
        rows = queued_rows(order, wanted, schedule=schedule, now_ms=at_ms)
        await self._store(
            list(rows_of(rows)),
            replace(
                progress,
                at={**progress.at, number: reached},
                sent=progress.sent + len(wanted),
                gone=progress.gone + gone,
                reached_ms=max(progress.reached_ms, reached_ms),
                why="",
            ),
        )
        return len(wanted), reached - at - gone

    async def _read(
        self, where: KafkaPartition, at: int, end: int, count_max: int
    ) -> tuple[list[RecordIn], int, int]:
        """Return the wanted events, the offset that was reached, and the last record's time."""
        wanted: list[RecordIn] = []
        byte_count, reached_ms = 0, 0
        async for records in self._reader.range({where: (at, end)}, records_max=count_max):
            for record in records:
                reached_ms = record.timestamp_ms
                if not self._order.takes(open_stream_record(record)):
                    continue
                wanted.append(record)
                byte_count += len(record.value)
                if len(wanted) == count_max or byte_count > _BYTES_MAX:
                    return wanted, record.origin.offset + 1, reached_ms
        return wanted, end, reached_ms

    async def _store(self, rows: list[Row], progress: ReplayProgress) -> None:
        progress = replace(progress, updated_at_ms=await self._replayer.now_ms())
        row: Row = (REPLAYS, *progress_row(self._order, progress), ())
        reports: list[Any] = await self._write([*rows, row])
        self._progress = progress
        # The events come first, and then their receipts.
        in_tier = [report for report in reports if rows and report.topic == rows[0][0]]
        if in_tier:
            newest = in_tier[-1]
            where = KafkaPartition(newest.topic, newest.partition)
            self._restraint.has_put(where, newest.offset, len(in_tier))


async def _pause(ends: asyncio.Event, pause_s: float) -> None:
    """Wait for `pause_s`, or until the end event is set."""
    if pause_s > 0:
        with suppress(TimeoutError):
            await asyncio.wait_for(ends.wait(), pause_s)
