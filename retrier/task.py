"""Sends what is due in a Spark task, by today's destinations and the broker's time.

No plan names a destination: each task looks them up when its events are due. A wrong address that
was mended rescues what waits.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from delivery.event_columns import Fetched, KafkaRecord
from delivery.lanes.outlet import Outlet
from delivery.sending import Plan, Sending, worker_of
from retrier.broker import Broker
from retrier.reading import DataGoneError, read_next
from shared.config.configuration import Configuration
from shared.event.record import KafkaPartition, Ranges, RecordOut
from shared.event.topics import retry_topics
from shared.retry.routing import in_sheets
from shared.runtime.kafka.config_topic import ConfigFeed, read_config
from shared.runtime.kafka.leases.fenced_positions import FencedPositions
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.spark.task_tries import is_another_try

# A record has waited at least the shortest tier's delay since some lane knew its destination; a
# configuration that is younger than that knows it too. In real time 30 s would be too lax.
_CONFIG_AGE_S_MAX = 5.0
# What a part has at once, of events that are not settled yet: 16,000 of 500 bytes. The answer that
# reaches it may have more, as much as one may be once it is unpacked.
_BYTES_MAX = 8 * 1_048_576
# Kafka answers a first reading in a tenth of a second; a worker that waits longer fails its task.
_START_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class DueJob:
    """What a task sends: parts of Kafka partitions of one number."""

    bootstrap_servers: str
    # Where it is written down who is at what.
    group: str
    # By which these parts are known there.
    number: int
    ranges: Ranges
    plan: Plan


class RangeEnd(NamedTuple):
    """How a part ended: how far it is, how many events it had, what went wrong."""

    where: KafkaPartition
    at: int
    event_count: int = 0
    error: str = ""
    # What was to be read next is gone from Kafka.
    is_gone: bool = False


def send_due(jobs: Iterable[DueJob]) -> Iterator[list[RangeEnd]]:
    """Send what one Spark task is given, and report of each part."""
    if is_another_try():
        # Nobody knows what the first try has sent: the driver plans the rest of it anew.
        return
    for job in jobs:
        worker = worker_of(allows_private=job.plan.allows_private)
        yield worker.loop.run_until_complete(_send(job))
        worker.loop.run_until_complete(worker.sender.end_task())


class _Ties:
    """What a worker process reads, writes and follows, for as long as it lives."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.broker = Broker(bootstrap_servers)
        self.outlet = Outlet(bootstrap_servers)
        self.known = _Follower(bootstrap_servers)
        self._bootstrap_servers = bootstrap_servers
        self._log: LogClient | None = None

    async def log(self, topics: Sequence[str]) -> LogClient:
        if self._log is None:
            self._log = await LogClient(self._bootstrap_servers).__aenter__()
        await self._log.follow(topics)
        return self._log


class _Follower:
    """Follows what is set and what is known of destinations, for a worker, whose own loop rests.

    A thread; it ends with the process.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._config, self.states = ConfigFeed(bootstrap_servers), StateFeed(bootstrap_servers)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="follower", daemon=True).start()
        for feed in (self._config, self.states):
            starting = asyncio.run_coroutine_threadsafe(feed.start(), self._loop)
            starting.result(_START_TIMEOUT_S)

    def configuration(self, *, age_s_max: float) -> Configuration:
        """One that was the newest at most so long ago; read anew if need be."""
        if self._config.age_s <= age_s_max:
            return self._config.configuration
        reading = asyncio.run_coroutine_threadsafe(read_config(self._bootstrap_servers), self._loop)
        return reading.result(_START_TIMEOUT_S)


# Made at the first task: Spark forks processes before that.
_ties_of = cache(_Ties)


async def _send(job: DueJob) -> list[RangeEnd]:
    ties, plan = _ties_of(job.bootstrap_servers), job.plan
    age_s_max = min(plan.schedule.tiers[0].delay_s, _CONFIG_AGE_S_MAX)
    known = ties.known.configuration(age_s_max=age_s_max)
    plan = replace(
        plan,
        destinations=known.destinations,
        tenant_of=lambda destination: known.tenant_of(destination.stream),
        removed=known.removed_destinations.keys(),
        flows=ties.known.states.flows,
        clock=await ties.broker.clock(),
    )
    log = await ties.log(retry_topics(tier.name for tier in plan.schedule.tiers))
    async with asyncio.TaskGroup() as group:
        parts = [
            group.create_task(_Part(replace(job, plan=plan), where, ties, log).run())
            for where in job.ranges
        ]
    return [part.result() for part in parts]


@dataclass(slots=True)
class _Part:
    """What is due in one Kafka partition."""

    job: DueJob
    where: KafkaPartition
    ties: _Ties
    log: LogClient
    # Up to where Kafka has the outcomes.
    _stored: int = 0
    _event_count: int = 0
    # Outcomes that are not stored yet, and the task that stores those before them.
    _left: list[RecordOut] = field(default_factory=list)
    _storing: asyncio.Task[None] | None = None

    async def run(self) -> RangeEnd:
        """Never raises: others share the task."""
        self._stored, end = self.job.ranges[self.where]
        error, is_gone = "", False
        try:
            await self._send(end)
        except (Exception, asyncio.CancelledError) as caught:
            task = asyncio.current_task()
            if isinstance(caught, asyncio.CancelledError) and (task is None or task.cancelling()):
                # Not by something that it waited for, which is a fault like others.
                raise
            error = f"{type(caught).__name__}: {caught}"[:300]
            is_gone = isinstance(caught, DataGoneError)
        return RangeEnd(self.where, self._stored, self._event_count, error, is_gone)

    async def _send(self, end: int) -> None:
        plan = self.job.plan
        worker = worker_of(allows_private=plan.allows_private)
        sending = Sending(plan, worker, tell=self.ties.outlet.store)
        try:
            while self._stored < end:
                records, reached = await self._read(end)
                if plan.clock() > plan.ours_until_ms:
                    return
                if records:
                    await self._settle(sending, Fetched(self.where, records))
                self._stored = reached
                self._event_count += len(records)
        finally:
            sending.leave()

    async def _settle(self, sending: Sending, rows: Fetched) -> None:
        """Store all that comes of it; of the slow each as it comes, and not with the slowest."""
        is_patient = self.job.plan.patience_s is None
        try:
            self._keep(await sending.settle(rows, keep=self._keep if is_patient else None))
        finally:
            if self._storing is not None:
                await self._storing

    def _keep(self, outcomes: Sequence[RecordOut]) -> None:
        """Have it stored, with what else there is by then, after what is being stored now."""
        self._left += outcomes
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_left())

    async def _store_left(self) -> None:
        while self._left:
            outcomes, self._left = self._left, []
            await self._store(outcomes)
        # One that has failed stays: whoever waits for it is told.
        self._storing = None

    async def _read(self, end: int) -> tuple[list[KafkaRecord], int]:
        """All of it if it is not too much: who is read later has less of the time box."""
        records: list[KafkaRecord] = []
        at, byte_count = self._stored, 0
        while at < end and byte_count < _BYTES_MAX:
            answer = await read_next(self.log, self.where, at)
            some = [each for each in answer.records if each.offset < end]
            records += some
            byte_count += sum(len(each.value or b"") for each in some)
            at = min(end, answer.reached)
        return records, at

    async def _store(self, outcomes: Sequence[RecordOut]) -> None:
        """Nothing is left of what others may send by now: they say what became of it."""
        if self.job.plan.clock() > self.job.plan.ours_until_ms:
            positions = FencedPositions(self.job.bootstrap_servers, self.job.group)
            try:
                reach = (await positions.read()).get(self.where)
            finally:
                await positions.close()
            if reach is None or reach.job != self.job.number:
                raise LeaseOverError("another process has it now")
        await self.ties.outlet.store(in_sheets(outcomes))


class LeaseOverError(Exception):
    """What was sent is sent by somebody else, too."""
