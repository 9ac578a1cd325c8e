"""Runs the retrier's lanes: looks for due events in the tiers, and has Spark send them.

One lane serves all destinations and waits for none of them for long. Due events of a slow one move
to the other lane, which waits (ADR 0051). Each lane has one micro-batch at a time for each Kafka
partition number: a slow destination delays only events of its own number (ADR 0067).
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import NamedTuple

import structlog

from retrier.broker import Broker, due_ends
from retrier.due_gate import bounded
from retrier.known_doubts import KnownDoubts
from retrier.lane import RetryLane, plan_of
from retrier.settings import RetrierSettings
from retrier.task import DueJob, RangeEnd
from retrier.watch import LaneWatch
from shared.event.record import KafkaPartition, Position, Ranges
from shared.event.topics import LANES, RETRIER, lease_group, retry_topic
from shared.retry.schedule import SLOW
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from shared.runtime.kafka.leases.member import LeaseMember, Standing, clock_s
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.setup_error import SetupError
from shared.runtime.spark.task_jobs import TaskJobs

log = structlog.get_logger()

GROUP = lease_group(RETRIER)
# A process that has had no answer from Kafka for this long is not ready.
_SILENCE_S_MAX = 15.0
# The results of a finished job may still be under way.
_THREADS_PER_PLACE = 2
_DICE = SystemRandom()
# Jobs have random numbers of this many bits: no two ever have the same.
_NUMBER_BITS = 60
_NO_WORD = "its task has ended without a report"


class DueQueue(NamedTuple):
    """A lane's Kafka partitions of one number, which have one micro-batch at a time."""

    lane: str
    number: int


@dataclass
class RetryLoop:
    """The retrier's lanes in one process."""

    tasks: TaskJobs[list[RangeEnd]]
    settings: RetrierSettings
    lanes: Mapping[str, RetryLane]
    watch: LaneWatch
    broker: Broker
    log: LogClient
    fenced: FencedPositions
    positions: LanePositions
    doubts: KnownDoubts

    def __post_init__(self) -> None:
        self.member = LeaseMember(
            self.settings.bootstrap_servers,
            GROUP,
            self,
            slot_count=0,
            session_s=self.settings.lease_s,
            # A task may start its work until the lease that it was given ends.
            drain_s=max(self.settings.drain_s, self.settings.lease_s),
        )
        self._delays_s = {
            topic: delay_s
            for lane in self.lanes.values()
            for topic, delay_s in lane.delays_s.items()
        }
        self._threads = ThreadPoolExecutor(_THREADS_PER_PLACE * self.settings.task_places, "job")
        self._jobs: dict[DueQueue, asyncio.Task[None]] = {}
        self._last_s: dict[DueQueue, float] = {}
        # The positions of our Kafka partitions, here and in Kafka; and where their due events end.
        self._reaches: dict[KafkaPartition, Reach] = {}
        self._told: dict[KafkaPartition, Reach] = {}
        self._due: Position = {}
        # Slots to give up, where nothing new begins; and how often our share grew.
        self._leaving: frozenset[int] = frozenset()
        self._begun = 0
        self._heard_s, self._look_s = time.monotonic(), 0.0
        self._wake = asyncio.Event()

    @property
    def problem(self) -> str | None:
        """Why this process is not ready."""
        is_silent = time.monotonic() - self._heard_s > _SILENCE_S_MAX
        return f"no answer from Kafka for {_SILENCE_S_MAX:g} s" if is_silent else None

    async def meet(self) -> None:
        """Check that the tiers exist; raise SetupError if they do not."""
        if not await self._places():
            raise SetupError(
                f"Kafka at {self.settings.bootstrap_servers} has no topic {retry_topic(SLOW.name)}:"
                " create Hifi's topics first (`hifi up` does it, or `hifi topics`), or name another"
                " Kafka."
            )

    async def run(self, stop: asyncio.Event, health: Health, pulse: Pulse) -> None:
        """Run until `stop` is set; the member then ends the jobs under way."""
        while not stop.is_set():
            if (now_s := time.monotonic()) >= self._look_s:
                self._look_s = now_s + self.settings.look_s
                is_entered = await pulse.beat_during(self._look())
                if is_entered and self.member.is_told and not health.is_started:
                    for name in self.lanes:
                        self.watch.started(name)
                    health.start()
            self._start_jobs()
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._look_s - time.monotonic())):
                    await self._wake.wait()

    def begin(self, slots: frozenset[int]) -> None:
        """Take over these slots; each is a Kafka partition number."""
        self._begun += 1
        plan = plan_of(self.lanes[RETRIER], self.settings)
        for number in slots:
            # Start a worker, so that the first events need not wait for it.
            first = DueJob(self.settings.bootstrap_servers, GROUP, 0, {}, plan)
            self._threads.submit(self._submit, DueQueue(RETRIER, number), first)
        self._look_s = 0.0
        self._wake.set()

    async def finish(self, slots: frozenset[int]) -> None:
        """Let the jobs under way end, and start nothing new."""
        self._leaving |= slots
        if jobs := [job for queue, job in self._jobs.items() if queue.number in slots]:
            await asyncio.wait(jobs)
        await self._write([where for where in self._reaches if where.partition in slots])
        self._tell()
        await self.positions.tell([RETRIER])
        self.drop(slots)

    def drop(self, slots: frozenset[int]) -> None:
        """Stop at once: others may already have these slots."""
        self._leaving |= slots
        # The member releases them right after this call.
        asyncio.get_running_loop().call_soon(self._let_go_of, slots)

    def _let_go_of(self, slots: frozenset[int]) -> None:
        self._leaving -= slots
        gone = [where for where in self._reaches if where.partition in slots]
        for where in gone:
            del self._reaches[where]
            self._told.pop(where, None)
        self.watch.went_on(gone)
        self.positions.forget([RETRIER])
        self._tell()

    async def drain(self) -> None:
        """Cancel the jobs that have not ended."""
        if self._jobs:
            log.info("service.cut_off", jobs=len(self._jobs))
            self.tasks.cancel_all()
            await asyncio.wait(self._jobs.values(), timeout=self.settings.change_drain_s)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _places(self) -> list[KafkaPartition]:
        """Return all Kafka partitions of the tiers; those of one number are one slot."""
        await self.log.follow({LANES, *self._delays_s})
        places = [where for topic in self._delays_s for where in self.log.partitions(topic)]
        if places:
            self.member.share_out(1 + max(where.partition for where in places))
        return places

    async def _look(self) -> bool:
        """Look for due events; False unless all our Kafka partitions with leaders are entered."""
        begun, owned = self._begun, self.member.owned
        try:
            places = await self._places()
            ours = {
                where: self._delays_s[where.topic] for where in places if where.partition in owned
            }
            now_ms = await self.broker.now_ms()
            ends, self._due = await due_ends(self.log, ours, now_ms=now_ms)
            if missing := ours.keys() - self._reaches.keys():
                await self._enter(missing, ends, begun)
            idle = [where for where in self._reaches if where in ends and not self._is_busy(where)]
            await self._go_on_without(
                where for where in idle if self._reaches[where].at > ends[where]
            )
            await self._write(idle)
        except AWAY as error:
            if self.problem is None:
                log.info("service.kafka_away", error=repr(error))
            return False
        self._heard_s = time.monotonic()
        self._tell()
        for name, lane in self.lanes.items():
            behind = [
                where
                for where, reach in self._reaches.items()
                if reach.at < self._due.get(where, 0)
            ]
            mine = [where for where in behind if where.topic in lane.delays_s]
            self.watch.look(name, mine, now_s=self._heard_s)
        # A Kafka partition without a leader is no reason to restart this process.
        return ours.keys() & ends.keys() <= self._reaches.keys()

    async def _enter(
        self, missing: AbstractSet[KafkaPartition], ends: Position, begun: int
    ) -> None:
        """Resume at the offsets that Kafka has, or else where the log begins."""
        known = await self.fenced.read()
        unmarked = [where for where in missing if where not in known]
        positions: Mapping[str, Position] = {RETRIER: {}}
        if unmarked:
            positions = await self.positions.last([RETRIER])
        # Positions of a retrier without leases: everything now in the log may have been sent.
        former = positions.get(RETRIER)
        starts = await self.log.starts(unmarked)
        if former is None or begun != self._begun:
            return
        # Skip slots that were lost meanwhile: other processes may have newer positions.
        owned = self.member.owned - self._leaving
        for where in [each for each in missing & ends.keys() if each.partition in owned]:
            if where in known:
                self._told[where] = reach = known[where]
            elif where in former:
                reach = Reach(former[where], ends[where])
            elif where in starts:
                reach = Reach(starts[where], starts[where])
            else:
                continue
            # An earlier job may still run: from this record it learns that its lease is lost.
            until = max(reach.at, min(reach.until, ends[where]))
            self._reaches[where] = Reach(reach.at, until)
        # So the next owner need not ask for earlier positions.
        await self._write([where for where in unmarked if where in self._reaches])

    async def _go_on_without(self, places: Iterable[KafkaPartition]) -> None:
        """Continue with the events that Kafka still has, and log the loss of the others."""
        for where in list(places):
            starts, ends = await self.log.starts([where]), await self.log.ends([where])
            if where in starts and where in ends and where in self._reaches:
                before = self._reaches[where]
                at = min(max(before.at, starts[where]), ends[where])
                self._reaches[where] = Reach(at, max(at, min(before.until, ends[where])))
                log.error("lane.data_lost", lane=RETRIER, where=where, at=before.at, to=at)

    def _is_busy(self, where: KafkaPartition) -> bool:
        return any(
            queue.number == where.partition and where.topic in self.lanes[queue.lane].delays_s
            for queue in self._jobs
        )

    def _queues(self) -> list[DueQueue]:
        """Return the queues, the one with the most recent micro-batch last."""
        numbers = {where.partition for where in self._reaches} - self._leaving
        queues = [DueQueue(lane, number) for lane in self.lanes for number in numbers]
        return sorted(queues, key=lambda queue: self._last_s.get(queue, 0.0))

    def _ranges(self, queue: DueQueue, now_s: float) -> Ranges:
        begins = {
            where: reach.at
            for where, reach in self._reaches.items()
            if where.partition == queue.number
            and where.topic in self.lanes[queue.lane].delays_s
            and self.watch.may_start(where, now_s=now_s)
        }
        return bounded(begins, self._due, events_max=self.settings.micro_batch_events_max)

    def _start_jobs(self) -> None:
        now_s = time.monotonic()
        # Lanes that wait for slow answers leave room for the others.
        most = max(1, self.settings.task_places // len(self.lanes))
        for queue in self._queues():
            is_full = sum(other.lane == queue.lane for other in self._jobs) >= most
            if queue in self._jobs or is_full:
                continue
            if ranges := self._ranges(queue, now_s):
                self._last_s[queue] = now_s
                self._jobs[queue] = asyncio.create_task(self._run_job(queue, ranges))

    async def _run_job(self, queue: DueQueue, ranges: Ranges) -> None:
        began_s, number = time.monotonic(), _DICE.getrandbits(_NUMBER_BITS)
        # Use the lease that we hold now; a later one may not cover this job.
        lease_ends_s = clock_s() + self.member.left_s
        before = {where: self._reaches[where] for where in ranges}
        begun = {
            where: Reach(begin, max(end, before[where].until), number)
            for where, (begin, end) in ranges.items()
        }
        self._reaches |= begun
        reports = {
            place: RangeEnd(place, begin, error=_NO_WORD) for place, (begin, _) in ranges.items()
        }
        is_begun = False
        try:
            # The job's events are in the tiers, so their lanes' earlier records are in Kafka, too.
            job = await self._job(queue, ranges, before, number, lease_ends_s)
            await self._write(ranges)
            is_begun = True
            loop = asyncio.get_running_loop()
            ends = await loop.run_in_executor(self._threads, self._submit, queue, job)
            reports |= {end.where: end for end in ends}
        except Exception as error:  # noqa: BLE001 - logged, and planned again
            why = f"{type(error).__name__}: {str(error).strip()[:300]}"
            reports = {where: end._replace(error=why) for where, end in reports.items()}
        try:
            # Other processes may already own some of the job's Kafka partitions.
            ours = [place for place, reach in begun.items() if self._reaches.get(place) is reach]
            for where in ours:
                at, is_unsure = reports[where].at, is_begun and reports[where].error
                until = begun[where].until if is_unsure else before[where].until
                self._reaches[where] = Reach(at, max(at, until))
            self._note(queue, [reports[where] for where in ours], began_s)
            with suppress(*AWAY):
                await self._go_on_without(place for place in ours if reports[place].is_gone)
                # If this write fails, the next check repeats it.
                await self._write(ours)
            self._tell()
        finally:
            del self._jobs[queue]
            self._wake.set()

    def _note(self, queue: DueQueue, ends: Collection[RangeEnd], began_s: float) -> None:
        now_s, count = time.monotonic(), sum(end.event_count for end in ends)
        self.watch.went_on(end.where for end in ends if not end.error)
        if count:
            took_s = now_s - began_s
            self.watch.metrics.micro_batch_done(queue.lane, events=count, duration_s=took_s)
        if died := {end.where: end.error for end in ends if end.error and not end.is_gone}:
            self.watch.died(queue.lane, died, next(iter(died.values())), now_s=now_s)

    async def _job(
        self,
        queue: DueQueue,
        ranges: Ranges,
        before: Mapping[KafkaPartition, Reach],
        number: int,
        lease_ends_s: float,
    ) -> DueJob:
        clock = await self.broker.clock()
        again = {where: (reach.at, reach.until) for where, reach in before.items()}
        await self.doubts.read_again(again, now_ms=clock())
        plan = replace(
            plan_of(self.lanes[queue.lane], self.settings),
            replay_until={where: reach.until for where, reach in before.items()},
            doubts=await self.doubts.now(self._told, now_ms=clock()),
            ours_until_ms=clock() + round(1000 * (lease_ends_s - clock_s())),
        )
        return DueJob(self.settings.bootstrap_servers, GROUP, number, ranges, plan)

    def _submit(self, queue: DueQueue, job: DueJob) -> list[RangeEnd]:
        """Run a job in a thread of its own; return when Spark has run the task."""
        return [end for ends in self.tasks.run([job], pool=queue.lane) for end in ends]

    async def _write(self, places: Iterable[KafkaPartition]) -> None:
        """Write the positions, and how far events may have been sent, unless Kafka has both."""
        known, reaches = self._told, self._reaches
        news = {
            where: reaches[where]
            for where in places
            if where in reaches and reaches[where] != known.get(where)
        }
        await self.fenced.write(news, lambda: self._standing_for(news))
        known |= {where: reach for where, reach in news.items() if reaches.get(where) is reach}

    def _standing_for(self, news: Mapping[KafkaPartition, Reach]) -> Standing | None:
        """Return the standing to write with; None if we lost any of these, even for a while."""
        is_ours = self.member.owned.issuperset(where.partition for where in news)
        is_same = all(self._reaches.get(where) is reach for where, reach in news.items())
        return self.member.standing if is_ours and is_same else None

    def _tell(self) -> None:
        """Publish our positions for lag tools."""
        self.positions.enter(RETRIER, {where: reach.at for where, reach in self._reaches.items()})
