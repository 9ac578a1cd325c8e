"""Runs lanes: looks what is new in the streams, and has Spark send it."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import SystemRandom

import structlog
from aiokafka.errors import KafkaError
from pyspark.sql import SparkSession

from delivery.lanes.book import Book, Lane
from delivery.lanes.fates import Fates
from delivery.lanes.marks import Mark, mark_record
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.pace import events_max
from delivery.lanes.task import run_units
from delivery.lanes.turns import Turns
from delivery.lanes.units import Job, Kind, Orders, Report, Strand
from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.event.record import KafkaPartition
from shared.event.topics import LANES, stream_topic
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# How often the ends of all streams are asked for; a tenth of a core at the most, however many there
# are, and often enough that an event waits for less than a second.
_LOOK_S, _LOOK_S_MAX = 0.05, 0.5
_LOOK_PART = 10
# Marks come in crowds: those of one moment make one plan.
_GATHER_S = 0.005
_JOBS_MAX = 48
# What one look at each lane's fate may cost is little, once a second.
_FATES_S = 1.0
# A lane at rest has its turn so often, in parts of a time box, and not all in the same moment.
_REST_BOXES = (0.8, 1.0)
_AWAY_S = 1.0
_DICE = SystemRandom()


@dataclass
class LaneLoop:
    """The lanes of one process."""

    spark: SparkSession
    settings: DeliverySettings
    metrics: DeliveryMetrics
    config: ConfigFeed
    states: StateFeed
    positions: LanePositions
    log: LogClient
    marks: MarksLog
    outlet: Outlet

    def __post_init__(self) -> None:
        self.book = Book()
        self.turns = Turns()
        self.fates = Fates(self.metrics, self.settings.stalled_after_s)
        self._threads = ThreadPoolExecutor(_JOBS_MAX, thread_name_prefix="job")
        self._jobs: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._seen: Configuration | None = None
        self._wanted: Mapping[str, Destination] = {}
        # Destinations whose strands are not all entered yet.
        self._new: set[str] = set()
        self._ends_known = False

    async def run(self, stop: asyncio.Event, health: Health, pulse: Pulse) -> None:
        """Run until told to stop, then let what is under way come to its end."""
        following = asyncio.create_task(self.marks.follow(self._mark_came))
        look_s = fates_s = 0.0
        try:
            while not stop.is_set():
                now_s = time.monotonic()
                self._take_config()
                if now_s >= look_s:
                    cost_s = time.thread_time()
                    await self._look()
                    cost_s = time.thread_time() - cost_s
                    wait_s = min(_LOOK_S_MAX, max(_LOOK_S, _LOOK_PART * cost_s))
                    look_s = time.monotonic() + wait_s
                    pulse.beat()
                    if not self._new:
                        # All lanes go on, or have said why not.
                        health.start()
                self._start_jobs()
                if now_s >= fates_s:
                    fates_s = now_s + _FATES_S
                    self._look_at_fates(now_s)
                await self._rest(stop, until_s=look_s)
        finally:
            await self._drain()
            following.cancel()

    async def _rest(self, stop: asyncio.Event, *, until_s: float) -> None:
        left_s = until_s - time.monotonic()
        if left_s > 0 and not stop.is_set():
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
                    await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                pass
        self._wake.clear()

    async def _drain(self) -> None:
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=self.settings.drain_s)
        if self._jobs:
            log.info("service.cut_off", jobs=len(self._jobs))
            self.spark.sparkContext.cancelAllJobs()
            await asyncio.wait(self._jobs, timeout=self.settings.change_drain_s)
        for name in list(self._wanted):
            self.fates.down(name)
        try:
            # What follows its log was to go on for ever, and goes on from where it is.
            await self._write_marks(self.book.all())
        except (KafkaError, OSError, KafkaUnavailableError) as error:
            log.info("lane.marks_not_written", error=repr(error))
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take_config(self) -> None:
        configuration = self.config.configuration
        if configuration is self._seen:
            return
        before, self._wanted = self._wanted, configuration.destinations
        for name in before.keys() - self._wanted.keys():
            self.book.leave(name)
            self.fates.down(name)
        for name, destination in self._wanted.items():
            if destination.is_paused:
                self.fates.down(name)
            elif name not in self._new and name in before:
                self.fates.up(name, now_s=time.monotonic())
        streams = before and self._seen and self._seen.streams
        is_grown = streams != configuration.streams
        self._new |= self._wanted.keys() if is_grown else self._wanted.keys() - before.keys()
        self._new &= self._wanted.keys()
        self._seen = configuration

    def _places(self, destination: Destination) -> list[KafkaPartition]:
        assert self._seen is not None, "places are those of a configuration"
        topic = stream_topic(destination.stream)
        stream = self._seen.streams.get(destination.stream)
        count = stream.partition_count if stream else 0
        known = self.log.partitions(topic)
        return known if len(known) >= count else [KafkaPartition(topic, n) for n in range(count)]

    async def _look(self) -> None:
        """Ask for the ends of all streams, and enter what is new."""
        topics = {stream_topic(each.stream) for each in self._wanted.values()}
        try:
            await self.log.follow({LANES, *topics})
            places = {where for each in self._wanted.values() for where in self._places(each)}
            ends = await self.log.ends(places)
            self.book.see_ends(ends)
            for name in sorted(self._new):
                if await self._enter(self._wanted[name]):
                    self._new.discard(name)
            self._ends_known = bool(ends) or not places
        except (KafkaError, OSError, KafkaUnavailableError) as error:
            if self._ends_known:
                log.info("service.kafka_away", error=repr(error))
            self._ends_known = False
            await asyncio.sleep(_AWAY_S)

    async def _enter(self, destination: Destination) -> bool:
        """Go on with a destination where its marks say, or where it is to begin."""
        places = self._places(destination)
        if not places or not all(self.book.knows_end(where) for where in places):
            return False
        strands = [Strand(destination.id, where) for where in places]
        new = [each for each in strands if each not in self.book]
        unmarked = [each for each in new if each not in self.marks.marks]
        if unmarked:
            # A stream that has grown goes on by itself: its new Kafka partitions are read whole.
            is_known = len(unmarked) < len(strands)
            start = "earliest" if is_known else destination.start
            begins = await self._begins([each.where for each in unmarked], start)
            if len(begins) < len(unmarked):
                return False
            marks = {each: Mark(begins[each.where], begins[each.where]) for each in unmarked}
            # Before anything is sent: a life that ends here must not begin elsewhere.
            await self.outlet.store([mark_record(*each) for each in marks.items()])
            self.marks.marks.update(marks)
        for strand in new:
            self.book.enter(strand, self.marks.marks[strand])
        self._tell_position(destination.id)
        if not destination.is_paused:
            self.fates.up(destination.id, now_s=time.monotonic())
        return True

    async def _begins(
        self, places: Sequence[KafkaPartition], start: str | int
    ) -> Mapping[KafkaPartition, int]:
        if start == "earliest":
            return await self.log.starts(places)
        if isinstance(start, int):
            return await self.log.offsets_at(places, start)
        return await self.log.ends(places)

    def _lane_of(self, name: str) -> Lane | None:
        destination = self._wanted.get(name)
        if destination is None or destination.is_paused or name in self._new:
            return None
        known = self.states.flows.get(name)
        kind, rest_s = self._kind_of(destination, known), 0.0
        if self._is_to_rest(destination, known):
            kind, rest_s = Kind.APART, self.settings.time_box_s * _DICE.uniform(*_REST_BOXES)
        self.book.follow(name, is_following=kind is Kind.FOLLOWING)
        return Lane(destination, kind, events_max(destination, self.settings, known), rest_s)

    def _kind_of(self, destination: Destination, known: FlowRecord | None) -> Kind:
        is_well = known is None or (known.state is FlowState.CLOSED and not known.flow.is_slow)
        if not is_well:
            return Kind.APART
        return Kind.FOLLOWING if destination.latency == "realtime" else Kind.SHARED

    def _is_to_rest(self, destination: Destination, known: FlowRecord | None) -> bool:
        # What was known before a person had it resumed says nothing of how it is now.
        if known is None or known.updated_at_ms <= destination.resumed_at_ms:
            return destination.is_disabled
        after_s = self.settings.time_box_s
        return destination.is_disabled or known.is_in_lasting_trouble(
            now_ms=now_ms(), after_s=after_s
        )

    def _start_jobs(self) -> None:
        if not self._ends_known:
            return
        now_s = time.monotonic()
        may_start = partial(self.turns.may_start, now_s=now_s)
        for job in self.book.plan(self._lane_of, now_s=now_s, may_start=may_start):
            strand_count = sum(len(unit.spans) for unit in job.units)
            self.turns.start(job.kind, strand_count=strand_count, now_s=now_s)
            task = asyncio.create_task(self._run_job(job))
            self._jobs.add(task)
            task.add_done_callback(self._jobs.discard)

    async def _run_job(self, job: Job) -> None:
        began_s = time.monotonic()
        strands = [strand for unit in job.units for strand in unit.strands]
        reports: list[Report] = []
        why = "its task has ended without a word"
        try:
            await self._write_marks(strands)
            orders = self._orders(job)
            loop = asyncio.get_running_loop()
            reports = await loop.run_in_executor(self._threads, self._submit, job, orders)
        except Exception as error:  # noqa: BLE001 - it is told, and planned anew
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
        finally:
            self.turns.end(job.kind)
        self._take_reports(reports, strands, why, took_s=time.monotonic() - began_s)
        self._wake.set()

    def _orders(self, job: Job) -> Orders:
        settings = self.settings
        names = {name for unit in job.units for name in unit.spans}
        # One that was removed since the plan was made is sent to as it was asked for.
        wanted = {name: self._wanted[name] for name in names & self._wanted.keys()}
        flows = self.states.flows
        return Orders(
            bootstrap_servers=settings.bootstrap_servers,
            destinations=wanted,
            flows={name: flows[name] for name in names & flows.keys()},
            resting=frozenset(
                name for name in wanted if self._is_to_rest(wanted[name], flows.get(name))
            ),
            flow_folder=settings.flows,
            schedule=settings.schedule,
            time_box_s=settings.time_box_s,
            follow_s=settings.follow_s,
            allows_private=settings.allow_private,
            leaders=self.log.leaders([unit.where for unit in job.units]),
        )

    def _submit(self, job: Job, orders: Orders) -> list[Report]:
        """In a thread of its own: returns when Spark has run all tasks."""
        context = self.spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", job.kind.value)
        tasks: Sequence[object] = list(job.tasks)
        rows = context.parallelize(tasks, len(tasks)).mapPartitions(
            partial(run_units, orders=orders)
        )
        return [report for reports in rows.collect() for report in reports]

    def _take_reports(
        self, reports: Sequence[Report], strands: Sequence[Strand], why: str, *, took_s: float
    ) -> None:
        now_s = time.monotonic()
        heard = {report.strand for report in reports}
        for report in reports:
            name = report.strand.destination
            if report.event_count:
                self.metrics.micro_batch_done(name, events=report.event_count, duration_s=took_s)
            if report.error:
                self._died(report, now_s)
            else:
                self.book.ended(report.strand, report.at)
                self.fates.went_on(name, now_s=now_s)
        for strand in strands:
            if strand not in heard:
                self._died(Report(strand, 0, error=why), now_s)
        for name in {strand.destination for strand in strands} & self._wanted.keys():
            self._tell_position(name)

    def _died(self, report: Report, now_s: float) -> None:
        name = report.strand.destination
        if name in self._wanted and report.strand in self.book:
            again_s = self.fates.died(
                name, report.error, is_data_lost=report.is_data_lost, now_s=now_s
            )
            self.book.cut(report.strand, report.at, not_before_s=again_s)

    def _mark_came(self, strand: Strand, mark: Mark) -> None:
        if self.book.went(strand, mark):
            self.fates.went_on(strand.destination, now_s=time.monotonic())
            self._tell_position(strand.destination)
            self._wake.set()

    def _tell_position(self, name: str) -> None:
        self.positions.enter(name, self.book.position(name, self._places(self._wanted[name])))

    async def _write_marks(self, strands: Iterable[Strand]) -> None:
        """Say where they are, and how far they may go, if the log does not say so yet."""
        marks = {each: self.book.mark(each) for each in strands if each in self.book}
        news = {each: mark for each, mark in marks.items() if self.marks.marks.get(each) != mark}
        await self.outlet.store([mark_record(*each) for each in news.items()])
        self.marks.marks.update(news)

    def _look_at_fates(self, now_s: float) -> None:
        for name, destination in self._wanted.items():
            if not destination.is_paused and name not in self._new:
                doing = "sending" if self.book.is_under_way(name) else "waiting for its turn"
                has_work = self.book.is_behind(name)
                self.fates.look(name, has_work=has_work, doing=doing, now_s=now_s)
