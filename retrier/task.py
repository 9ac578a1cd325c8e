"""Sends due events in a Spark task, by destinations' present settings and the broker's time.

No plan names a destination: each task looks up its events' destinations when the events are due. So
correcting a wrong address rescues the waiting events.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from delivery.event_columns import FetchedRecords, KafkaRecord
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

# A lane knew a due record's destination before the record waited, for the shortest tier's delay at
# least. So a configuration that is younger than this delay has the destination as well. But this
# delay is usually 30 s, and other settings in such a configuration would be too old.
_CONFIG_AGE_S_MAX = 5.0
# The maximum size of events without an outcome in a part: 16,000 events of 500 bytes. The answer
# that reaches this limit may exceed it, by up to the size of an unpacked answer.
_BYTES_MAX = 8 * 1_048_576
# A first read from Kafka takes a tenth of a second; a worker that waits this long fails its task.
_START_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class DueJob:
    """The work of a task: parts of Kafka partitions of one number."""

    bootstrap_servers: str
    # The consumer group that records which job has which part.
    group: str
    # The number of this job, by which that group knows it.
    number: int
    ranges: Ranges
    plan: Plan


class RangeEnd(NamedTuple):
    """How a part ended: its offset, its number of events, its error."""

    where: KafkaPartition
    at: int
    event_count: int = 0
    error: str = ""
    # Whether the events to read next are gone from Kafka.
    is_gone: bool = False


def send_due(jobs: Iterable[DueJob]) -> Iterator[list[RangeEnd]]:
    """Send the jobs of one Spark task, and report on each part."""
    if is_another_try():
        # Nobody knows how much the first try has sent: the driver plans the rest again.
        return
    for job in jobs:
        worker = worker_of(allows_private=job.plan.allows_private)
        yield worker.loop.run_until_complete(_send(job))
        worker.loop.run_until_complete(worker.sender.end_task())


class _Ties:
    """The Kafka clients and feeds of a worker process."""

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
    """Follows destinations' settings and state for a worker, whose own loop rests between tasks.

    It runs in a thread, and ends with the process.
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
        """Return a configuration no older than `age_s_max`; read it again if needed."""
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
            group.create_task(_BatchPart(replace(job, plan=plan), where, ties, log).run())
            for where in job.ranges
        ]
    return [part.result() for part in parts]


@dataclass(slots=True)
class _BatchPart:
    """The due events of one Kafka partition."""

    job: DueJob
    where: KafkaPartition
    ties: _Ties
    log: LogClient
    # The offset up to which Kafka has the outcomes.
    _stored: int = 0
    _event_count: int = 0
    # Outcomes that are not stored yet, and the task that stores those before them.
    _left: list[RecordOut] = field(default_factory=list)
    _storing: asyncio.Task[None] | None = None

    async def run(self) -> RangeEnd:
        """Send the part's events. Never raises: others share the task."""
        self._stored, end = self.job.ranges[self.where]
        error, is_gone = "", False
        try:
            await self._send(end)
        except (Exception, asyncio.CancelledError) as caught:
            task = asyncio.current_task()
            if isinstance(caught, asyncio.CancelledError) and (task is None or task.cancelling()):
                # This task itself is cancelled; if only something that it awaits is cancelled, that
                # is a fault.
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
                    await self._settle(sending, FetchedRecords(self.where, records))
                self._stored = reached
                self._event_count += len(records)
        finally:
            sending.leave()

    async def _settle(self, sending: Sending, rows: FetchedRecords) -> None:
        """Store all outcomes; the slow lane stores each as it arrives, not with the slowest."""
        is_patient = self.job.plan.patience_s is None
        try:
            self._keep(await sending.settle(rows, keep=self._keep if is_patient else None))
        finally:
            if self._storing is not None:
                await self._storing

    def _keep(self, outcomes: Sequence[RecordOut]) -> None:
        """Queue outcomes to store, together with later ones, after the store under way."""
        self._left += outcomes
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_left())

    async def _store_left(self) -> None:
        while self._left:
            outcomes, self._left = self._left, []
            await self._store(outcomes)
        # A failed task stays here, for whoever awaits it to get the error.
        self._storing = None

    async def _read(self, end: int) -> tuple[list[KafkaRecord], int]:
        """Read everything up to the size limit: events read later have less of the time box."""
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
        """Store outcomes, except those of events that another process now has and reports on."""
        if self.job.plan.clock() > self.job.plan.ours_until_ms:
            positions = FencedPositions(self.job.bootstrap_servers, self.job.group)
            try:
                reach = (await positions.read()).get(self.where)
            finally:
                await positions.close()
            if reach is None or reach.job != self.job.number:
                raise LeaseOverError("another process has these events now")
        await self.ties.outlet.store(in_sheets(outcomes))


class LeaseOverError(Exception):
    """Another process sends the same events, too."""
