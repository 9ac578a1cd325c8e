"""Runs lanes: looks for new events in the streams, and has Spark send them."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from random import SystemRandom

import structlog

from delivery.lanes.book import Book
from delivery.lanes.fates import Fates
from delivery.lanes.following.keeper import Following
from delivery.lanes.following.terms import TERMS_LOG
from delivery.lanes.marks import Mark
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.pace import LaneMaker, publish_every_ms
from delivery.lanes.roster import Roster
from delivery.lanes.strands.blocks import Blocks
from delivery.lanes.strands.telling import Teller
from delivery.lanes.turns import Turns
from delivery.lanes.units import (
    PATIENCE_S,
    Job,
    JobKind,
    Lane,
    Orders,
    Span,
    Strand,
    StrandEnd,
    TaskEnd,
)
from delivery.lanes.worker_daemon import ANY_WORKER
from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from shared.config.destination import Destination
from shared.event.topics import lease_group
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.leases.member import LeaseMember
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.spark.daemon_copies import WORKER_NAME
from shared.runtime.spark.task_jobs import TaskJobs

log = structlog.get_logger()

# How often to fetch the ends of all streams: often enough that nobody notices a delay. Each end
# costs us and its broker some microseconds, so at most 6,000 are fetched in a second.
_LOOK_S, _LOOK_S_MAX = 0.05, 0.5
_ENDS_PER_S = 6_000
# Marks arrive in bursts, and each burst leads to one plan. When hundreds of lanes have something to
# send, a plan takes milliseconds, so the next one waits for 20 times as long.
_GATHER_S, _GATHER_S_MAX = 0.005, 0.1
_PLAN_PART = 20
# A job has at least one task place; the results of a finished job may still be under way.
_THREADS_PER_PLACE = 2
# How often to check each lane's health.
_FATES_S = 1.0
_AWAY_S = 1.0
_DICE = SystemRandom()
# Processes number their spans from random starts: far apart, and with room to count up.
_NUMBER_BITS = 60


@dataclass
class LaneLoop:
    """The lanes of one process."""

    tasks: TaskJobs[TaskEnd]
    settings: DeliverySettings
    metrics: DeliveryMetrics
    config: ConfigFeed
    states: StateFeed
    positions: LanePositions
    log: LogClient
    marks: MarksLog
    outlet: Outlet

    def __post_init__(self) -> None:
        self.book = Book(_DICE.getrandbits(_NUMBER_BITS))
        self.member = LeaseMember(
            self.settings.bootstrap_servers,
            lease_group("delivery"),
            self,
            session_s=self.settings.lease_s,
            # A running job assumes that it owns its strands for a full lease. If we released them
            # sooner, it would send unlabelled events beside the new owner.
            drain_s=max(self.settings.drain_s, self.settings.lease_s),
        )
        self.roster = Roster(
            self.book, self.log, self.marks, self.outlet, self.member.owns, self.positions.last
        )
        places, workers = self.settings.lent_places, self.settings.worker_count
        self.turns = Turns(
            places,
            self.settings.follow_s,
            self.settings.time_box_s,
            workers,
            worker_count_min=self.settings.spark_executors,
        )
        self.maker = LaneMaker(self.settings, self.config, self.states)
        self.following = Following(
            self.book, self.turns, self.marks, self.outlet, self._lane_of, self.states
        )
        book, roster, marks = self.book, self.roster, self.marks
        self.teller = Teller(self.outlet.store, book.mark_of, marks.marks, marks.repeats)
        self.blocks = Blocks(book.blocked, book.try_now, roster.destination, self.maker.is_resumed)
        self.fates = Fates(self.metrics, self.settings.stalled_after_s)
        self._threads = ThreadPoolExecutor(_THREADS_PER_PLACE * self.settings.all_places, "job")
        self._jobs: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._sees_ends = False
        # Strands whose next events are gone, with the `resumed_at_ms` of their destination then.
        self._lost: dict[Strand, int] = {}
        # Slots to give up: nothing new is planned for them.
        self._leaving: frozenset[int] = frozenset()
        # The slots among these that another process may have from now on.
        self._gone: frozenset[int] = frozenset()

    async def run(self, stop: asyncio.Event, health: Health, pulse: Pulse) -> None:
        """Run until `stop` is set; `drain` then ends the jobs under way."""
        look_s = looked_s = fates_s = 0.0
        while not stop.is_set():
            now_s = time.monotonic()
            self.roster.take(self.config.configuration)
            if now_s >= look_s:
                looked_s, look_s = now_s, now_s + await pulse.beat_during(self._look())
                if self.member.is_told and self._sees_ends and self.roster.is_entered:
                    # All lanes work, except those about which Kafka does not report enough.
                    health.start()
            began_s = time.thread_time()
            self._start_jobs()
            gather_s = _PLAN_PART * (time.thread_time() - began_s)
            # An earlier look is useless: the events that it finds could not be sent yet.
            look_s = max(look_s, min(self.turns.opens_s, looked_s + _LOOK_S_MAX))
            if now_s >= fates_s:
                fates_s = now_s + _FATES_S
                self._look_at_fates(now_s)
            await self._rest(stop, gather_s=gather_s, until_s=look_s)

    async def warm_up(self, *, within_s: float) -> None:
        """Start the workers: lanes that begin earlier would only wait for them."""
        jobs = [Job(JobKind.SHARED, [()], worker) for worker in range(self.turns.worker_count)]
        begun = [self._threads.submit(self._submit, job, self._orders([], job)) for job in jobs]
        await asyncio.wait(map(asyncio.wrap_future, begun), timeout=within_s)

    def begin(self, _: frozenset[int]) -> None:
        """Take over these slots."""
        self.roster.begin()
        self._wake.set()

    async def finish(self, slots: frozenset[int]) -> None:
        """Let the jobs under way end, and start nothing new."""
        self._leaving |= slots
        strands = self.roster.strands(lambda shard: self.member.slot_of(shard) in slots)
        names = {strand.destination for strand in strands}
        while any(map(self.book.is_under_way, strands)):  # noqa: ASYNC110 - many unknown jobs
            await asyncio.sleep(_GATHER_S)
        # Followers have no end of their own: they stop here, and another process continues.
        await self.teller.tell(strands)
        # Report positions before the next owner reports later ones.
        for name in names:
            self._tell_position(name)
        await self.positions.tell(names)
        self.drop(slots)

    def drop(self, slots: frozenset[int]) -> None:
        """Stop at once: others may already have these slots."""
        self._leaving |= slots
        # Many slots are dropped at the same moment: release them together.
        if not self._gone:
            asyncio.get_running_loop().call_soon(self._let_go_of_them)
        self._gone |= slots

    def _let_go_of_them(self) -> None:
        slots, self._gone = self._gone, frozenset()
        self._leaving -= slots
        wanted = self.roster.wanted
        self.positions.forget(name for name, to in wanted.items() if self._shards_in(slots, to))
        self.roster.drop()

    async def drain(self) -> None:
        """Cancel the jobs that have not ended."""
        if self._jobs:
            log.info("service.cut_off", jobs=len(self._jobs))
            self.tasks.cancel_all()
            await asyncio.wait(self._jobs, timeout=self.settings.change_drain_s)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _rest(self, stop: asyncio.Event, *, gather_s: float, until_s: float) -> None:
        left_s = until_s - time.monotonic()
        if left_s > 0 and not stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
                    await asyncio.sleep(min(_GATHER_S_MAX, max(_GATHER_S, gather_s)))
        self._wake.clear()

    async def _look(self) -> float:
        """Look for news; return the seconds until the next look."""
        new = set(self.roster.new)
        try:
            self._sees_ends = await self.roster.look()
            await self._go_on_without()
        except AWAY as error:
            if self._sees_ends:
                log.info("service.kafka_away", error=repr(error))
            self._sees_ends = False
            return _AWAY_S
        for name in new:
            self._tell_position(name)
        return min(_LOOK_S_MAX, max(_LOOK_S, self.roster.place_count / _ENDS_PER_S))

    def _shards_in(self, slots: frozenset[int], to: Destination) -> list[str]:
        return [name for name in to.shard_names if self.member.slot_of(name) in slots]

    def _lane_of(self, name: str) -> Lane | None:
        destination = self.roster.destination(name)
        if destination is None or (self._leaving and self._shards_in(self._leaving, destination)):
            return None
        return self.maker.lane(destination)

    def _start_jobs(self) -> None:
        if not self._sees_ends:
            return
        self.blocks.look(self.config.configuration)
        now_s = time.monotonic()
        if self.roster.terms_at is not None:
            self.following.prolong(now_s=now_s, ours_until_ms=self.member.ours_until_ms)
        for job in self.book.plan(self._lane_of, self.turns, now_s=now_s):
            # Make the orders here, so that changes and releases during the job do not alter them.
            strands = [strand for unit in job.units for strand in unit.strands]
            orders = self._orders(strands, job)
            self.following.began(job)
            task = asyncio.create_task(self._run_job(job, orders))
            self._jobs.add(task)
            task.add_done_callback(self._jobs.discard)

    async def _run_job(self, job: Job, orders: Orders) -> None:
        began_s = time.monotonic()
        spans = {
            Strand(name, unit.where): span
            for unit in job.units
            for name, span in unit.spans.items()
        }
        reports: list[StrandEnd] = []
        why, is_begun = "its task has ended without a report", False
        try:
            await self.teller.begin(spans)
            loop, is_begun = asyncio.get_running_loop(), True
            ends = await loop.run_in_executor(self._threads, self._submit, job, orders)
            self.turns.learn(job.kind, ends, now_s=time.monotonic())
            reports = [report for end in ends for report in end.reports]
        except Exception as error:  # noqa: BLE001 - logged, and planned again
            why = f"{type(error).__name__}: {str(error).strip()[:300]}"
            if not is_begun:
                reports = [StrandEnd(each, span.begin, 0, why) for each, span in spans.items()]
        finally:
            self.turns.end(job)
            self.following.ended(job)
        if job.kind is JobKind.FOLLOWING:
            await self.following.close_marks(reports, spans)
        self._take_reports(reports, spans, why, took_s=time.monotonic() - began_s)
        self._wake.set()

    def _orders(self, strands: Sequence[Strand], job: Job) -> Orders:
        settings, flows = self.settings, self.states.flows
        names = {strand.destination for strand in strands}
        wanted = {name: self.roster.wanted[name] for name in names}
        return Orders(
            bootstrap_servers=settings.bootstrap_servers,
            destinations=wanted,
            tenants={name: self.maker.tenant_of(to) for name, to in wanted.items()},
            flows={name: flows[name] for name in names & flows.keys()},
            unasked=frozenset(
                name
                for name, to in wanted.items()
                if len(self.book.strands(name)) <= to.parallel_max
            ),
            resting=frozenset(
                name for name in wanted if self.maker.is_to_rest(wanted[name], flows.get(name))
            ),
            flow_folder=settings.flows,
            schedule=settings.schedule,
            time_box_s=settings.time_box_s,
            follow_s=job.follow_s,
            ours_until_ms=self.member.ours_until_ms,
            allows_private=settings.allow_private,
            publish_every_ms=publish_every_ms(len(self.config.configuration.destinations)),
            leaders=self.log.leaders({TERMS_LOG, *(strand.where for strand in strands)}),
            terms_at=self.roster.terms_at,
            patience_s=PATIENCE_S if job.is_hurried else None,
        )

    def _submit(self, job: Job, orders: Orders) -> list[TaskEnd]:
        """Run a job in a thread of its own; return when Spark has run all tasks."""
        # The orders are data of the tasks, and Spark discards both when the tasks are done. If the
        # function held them, it would be a broadcast, on disk until the JVM collects garbage.
        return self.tasks.run(
            [(units, orders.of(units)) for units in job.tasks],
            pool=job.kind.value,
            environment={
                WORKER_NAME: ANY_WORKER if job.worker is None else f"{job.kind}-{job.worker}"
            },
            place=job.place(self.turns.worker_count) if self.settings.spark_executors > 1 else None,
        )

    def _take_reports(
        self, reports: Sequence[StrandEnd], spans: Mapping[Strand, Span], why: str, *, took_s: float
    ) -> None:
        now_s = time.monotonic()
        heard = {report.strand: report for report in reports}
        counts: Counter[str] = Counter()
        for strand, span in spans.items():
            name = strand.destination
            report = heard.get(strand, StrandEnd(strand, span.begin, error=why))
            counts[name] += report.event_count
            if not report.error:
                block = report.block
                again_s = now_s + block.wait_ms / 1000 if block else 0.0
                if self.book.ended(strand, span, report.at, block, again_s):
                    self._went_on(strand, now_s)
            elif self.book.is_with(strand, span):
                self._died(report, span, now_s, is_suspect=strand not in heard)
        for name, count in counts.items():
            if count:
                self.metrics.micro_batch_done(name, events=count, duration_s=took_s)
            self._tell_position(name)

    def _died(self, report: StrandEnd, span: Span, now_s: float, *, is_suspect: bool) -> None:
        strand, name = report.strand, report.strand.destination
        again_s = self.fates.again_s(name, now_s=now_s)
        if span.end is None:
            # Its worker may still be alive: wait until it has stopped following the log.
            again_s = max(again_s, now_s + self.turns.follows_s_max)
        self.book.cut(strand, span, report.at, not_before_s=again_s, is_suspect=is_suspect)
        if report.is_data_lost:
            # The first error counts: the strand retries until a person resumes the lane.
            destination = self.roster.destination(name)
            self._lost.setdefault(strand, destination.resumed_at_ms if destination else 0)
        self.fates.died(strand, report.error, is_data_lost=report.is_data_lost, now_s=now_s)

    async def _go_on_without(self) -> None:
        """Continue with the events that Kafka still has, where a person has resumed a lane."""
        for strand, resumed_at_ms in list(self._lost.items()):
            destination = self.roster.destination(strand.destination)
            if strand not in self.book or destination is None:
                del self._lost[strand]
            elif destination.resumed_at_ms > resumed_at_ms:
                starts = await self.log.starts([strand.where])
                if strand.where in starts and strand in self.book:
                    self._went_on(strand, time.monotonic())
                    if self.book.skip(strand, starts[strand.where]):
                        log.warning("lane.skips", lane=strand.destination, to=starts[strand.where])
                        # Otherwise the strand's next owner would skip the log's next events.
                        await self.teller.tell([strand])

    async def follow_marks(self) -> None:
        """Follow all marks that are written, until cancelled."""
        await self.marks.follow(self._mark_came)

    def _mark_came(self, strand: Strand, mark: Mark) -> None:
        if self.book.went(strand, mark, time.monotonic() + mark.wait_ms / 1000):
            self._went_on(strand, time.monotonic())
            self._tell_position(strand.destination)
            self._wake.set()
        self.roster.mark_came(strand, mark)

    def _went_on(self, strand: Strand, now_s: float) -> None:
        self._lost.pop(strand, None)
        self.fates.went_on(strand, now_s=now_s)

    def _tell_position(self, name: str) -> None:
        if name in self.roster.wanted:
            places = self.roster.places(self.roster.wanted[name])
            self.positions.enter(name, self.book.position(name, places))

    def _look_at_fates(self, now_s: float) -> None:
        running = {destination.id for destination in self.roster.running()}
        behind = self.book.behind()
        for name in self.fates.names() - running:
            self.fates.down(name)
        for name in running:
            self.fates.up(name, now_s=now_s)
            last = self.book.laggard(name) if name in behind else None
            if last is not None:
                # During `linger_s`, the lane may be waiting for its batch to fill.
                last = last._replace(since_s=last.since_s + self.roster.wanted[name].linger_s)
            self.fates.look(name, last, now_s=now_s)
        if self._sees_ends:
            self.fates.wait(self.roster.waiting(), now_s=now_s)
