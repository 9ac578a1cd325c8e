"""Runs pipelines: looks for new events in their streams, and has Spark process them.

A pipeline is a position for each Kafka partition of its stream, in the consumer group of its lane.
A job's ranges are stored there before it starts. When all its rows are in Kafka, the only writer
of the pipeline's slot stores receipts and position together (ADR 0077).
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from pipelines.archive.archive_reads import ArchiveReads
from pipelines.beginnings import Entrance
from pipelines.documents import Documents
from pipelines.functions.granted import calls_of, granted
from pipelines.jobs.job import Task
from pipelines.jobs.lane_states import LaneStates
from pipelines.jobs.losses import Losses
from pipelines.jobs.runner import JobRunner, short
from pipelines.jobs.sink import SinkKind
from pipelines.jobs.state_store import ForgottenTopics
from pipelines.jobs.succession import Succession
from pipelines.judging.apart.judge_client import JudgeClient
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.culprits import Culprits
from pipelines.lanes.portions import PipelinePortion, PlannedJob
from pipelines.lanes.stalls import Stalls
from pipelines.metrics import PipelineMetrics
from pipelines.session import SparkOnDemand
from pipelines.settings import PipelinesSettings
from pipelines.shards import partitionings
from pipelines.tables.known import KnownTables
from pipelines.tables.look_ups import NO_TABLES, Tables
from pipelines.writer import UNWRITTEN, SlotWriters
from shared.config.pipeline import Pipeline
from shared.config.steps.window import Keeping
from shared.event.record import RecordOut
from shared.event.topics import (
    PIPELINES,
    lease_group,
    name_and_generation,
    pipeline_of,
    stream_topic,
)
from shared.runtime.clock import now_ms
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.leases.member import LeaseMember
from shared.runtime.kafka.log_client import LogClient

log = structlog.get_logger()

# How often to look while nothing runs.
_IDLE_LOOK_S = 0.5
# The first wait before judging a document or entering a pipeline again, after Spark or Kafka was
# unavailable. The wait for a judgement doubles each time, up to a minute.
_AGAIN_S, _AGAIN_S_MAX = 1.0, 60.0


@dataclass
class PipelineLoop:
    """The pipelines of one process."""

    spark: SparkOnDemand
    settings: PipelinesSettings
    metrics: PipelineMetrics
    config: ConfigFeed
    log: LogClient
    # The kinds of outputs outside Kafka, by the member that names such an output.
    sinks: Mapping[str, SinkKind]

    def __post_init__(self) -> None:
        settings = self.settings
        self.member = LeaseMember(
            settings.bootstrap_servers,
            lease_group("pipelines"),
            self,
            session_s=settings.lease_s,
            drain_s=settings.drain_s,
        )
        self.book = PipelineBook(
            settings.micro_batch_events_max,
            settings.time_box_s,
            settings.own_jobs_max,
            settings.sink_jobs_max,
        )
        self.documents = Documents()
        self.judge = JudgeClient(settings.home / "judging", settings.jars_cache)
        self.tables = KnownTables(settings)
        self._seen: object = None
        # The granted functions of each tenant that calls any.
        self._granted: dict[str, frozenset[str]] = {}
        self.writers = SlotWriters(settings.bootstrap_servers, self.member)
        self.keepers = LaneStates()
        self.stalls = Stalls(self.book, self.metrics, settings.stalled_after_s)
        self.losses = Losses(self.log, self.book, self.writers, self.metrics, self._say_lost)
        self.earlier = ArchiveReads(
            *(settings, self.log, self.book, lambda: self.config.configuration),
            pass_by=self.losses.pass_over,
            say=self._say,
            note=self._note,
        )
        self.losses.is_archived = self.earlier.may_have
        self.runner = JobRunner(
            self.spark,
            settings,
            self.metrics,
            self.book,
            self.writers,
            self.losses,
            self.sinks,
            self._say,
            self.keepers,
            Culprits(self.documents, self.metrics).blame,
        )
        self.entrance = self._entrance()
        self.succession = Succession(self.runner, self.documents)
        self.forgotten = ForgottenTopics(
            settings.bootstrap_servers,
            self.is_ours,
            self.keepers,
        )
        # The jobs under way, with the names of their pipelines.
        self._jobs: dict[asyncio.Task[None], frozenset[str]] = {}
        self._beside: set[asyncio.Task[None]] = set()
        # Slots to give up: nothing new is planned for them. Others may own those in `_gone`.
        self._leaving: frozenset[int] = frozenset()
        self._gone: frozenset[int] = frozenset()
        self._look_s = 0.0
        self._wake = asyncio.Event()

    def _entrance(self) -> Entrance:
        return Entrance(
            self.settings,
            self.log,
            self.book,
            self.keepers,
            self.writers,
            self.sinks,
            self.earlier,
            is_ours=self.is_ours,
            is_running=lambda lane_id: lane_id in self.documents.by_lane(),
            before=self._before,
            refuse=self._refuse,
        )

    async def run(self, stop: asyncio.Event, health: Health, pulse: Pulse) -> None:
        """Run until `stop` is set; the lease member then finishes the work under way."""
        while not stop.is_set():
            if self.config.configuration is not self._seen:
                self._take()
            if time.monotonic() >= self._look_s:
                await pulse.beat_during(self._look())
                if self.member.is_told:
                    health.start()
            self._start_jobs()
            self.stalls.show(self.documents.by_lane())
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._look_s - time.monotonic())):
                    await self._wake.wait()

    def begin(self, _: frozenset[int]) -> None:
        """Take up the pipelines of these slots, which are ours now."""
        self._take()

    async def finish(self, slots: frozenset[int]) -> None:
        """Finish the work under way, and start nothing new."""
        self._leaving |= slots
        if jobs := [job for job, names in self._jobs.items() if slots & self._slots_of(names)]:
            await asyncio.wait(jobs)
        await self.writers.close(slots)
        self.drop(slots)

    def drop(self, slots: frozenset[int]) -> None:
        """Stop at once: others may already have these slots."""
        self._gone |= slots
        self._take()
        for writer in self.writers.drop(slots):
            self._spawn(writer.close())
        # The member releases these slots right after this call.
        asyncio.get_running_loop().call_soon(self._let_go_of, slots)

    def _let_go_of(self, slots: frozenset[int]) -> None:
        self._leaving -= slots
        self._gone -= slots
        self._take()

    async def drain(self) -> None:
        """Cancel the jobs that have not ended."""
        if self._jobs and self.spark.session is not None:
            log.info("service.cut_off", jobs=len(self._jobs))
            self.spark.session.sparkContext.cancelAllJobs()
            await asyncio.wait(self._jobs, timeout=self.settings.change_drain_s)
        for task in self._beside:
            task.cancel()
        self.entrance.close()
        self.succession.close()
        self.earlier.close()
        await self.writers.close()
        self.runner.close()
        self.judge.close()

    @property
    def _busy(self) -> set[str]:
        """The pipelines that have jobs under way."""
        return set().union(*self._jobs.values())

    def _slots_of(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset(map(self.member.slot_of, names))

    def is_ours(self, name: str) -> bool:
        return self._slot_if_ours(name) is not None

    def _slot_if_ours(self, pipeline: str) -> int | None:
        slot = self.member.slot_of(pipeline)
        return slot if slot in self.member.owned - self._gone else None

    def _take(self) -> None:
        """Run the configured pipelines that are ours, and no others."""
        self._seen = configuration = self.config.configuration
        ours = [
            pipeline
            for pipeline in configuration.documents
            if self._slot_if_ours(pipeline.name) is not None
        ]
        self._look_who_may_call(ours)
        for pipeline in self.documents.take(ours, now_ms=now_ms()):
            self._spawn(self._judge(pipeline))
        self._leave_others()
        self._look_s = 0.0
        self._wake.set()

    def _look_who_may_call(self, ours: Sequence[Pipeline]) -> None:
        """Judge again the pipelines of tenants that were granted a function, or have lost one."""
        configuration = self.config.configuration
        before, now = self._granted, {}
        for tenant in {each.tenant for each in ours if calls_of(each)}:
            now[tenant] = granted(tenant, configuration)
        self._granted = now
        self.documents.judge_again(
            each.name
            for each in ours
            if calls_of(each) and before.get(each.tenant, now[each.tenant]) != now[each.tenant]
        )

    def _leave_others(self) -> None:
        running = self.documents.by_lane()
        for lane_id in self.book.lanes.keys() - running.keys():
            self.book.leave(lane_id)
            self.stalls.gone(lane_id)
            name = pipeline_of(lane_id)
            if name is not None and name not in {
                each.name for each in self.documents.ours.values()
            }:
                self.metrics.lane_gone(name)
        for lane_id in self.keepers.by_lane.keys() - self.book.lanes.keys():
            del self.keepers.by_lane[lane_id]
        for lane_id, keeper in list(self.keepers.by_lane.items()):
            if keeper.kept.head.shape != running[lane_id].kept_shape:
                # Reading the kept state again will find the fault.
                self.book.leave(lane_id)
                del self.keepers.by_lane[lane_id]

    async def _judge(self, pipeline: Pipeline) -> None:
        """Ask until there is an answer; start Spark meanwhile, in case the document is accepted."""
        refusal, again_s = None, _AGAIN_S
        while self.documents.ours.get(pipeline.title) == pipeline:
            try:
                may = granted(pipeline.tenant, self.config.configuration)
                judging = self.judge.judge(pipeline, may)
                refusal, _ = await asyncio.gather(judging, self.spark.get())
            except Exception as error:  # noqa: BLE001 - not the document's fault
                log.warning("pipeline.not_judged", pipeline=pipeline.name, error=short(error))
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, _AGAIN_S_MAX)
                continue
            break
        why, pointer = refusal or ("", "")
        if self.documents.judged(pipeline, why=why, pointer=pointer, now_ms=now_ms()):
            word = "refused" if refusal else "running"
            log.info("pipeline.judged", pipeline=pipeline.name, standing=word, why=why)
            if refusal:
                # The author of the document must correct it: nothing here is down.
                self.metrics.lane_gone(pipeline.name)
            else:
                self.metrics.lane_up(pipeline.name, is_up=True)
            self._leave_others()
            self._look_s = 0.0
            self._wake.set()

    async def _look(self) -> None:
        """Look for new events, enter new lanes, and write states that are not written yet."""
        running = self.documents.by_lane()
        self._look_s = time.monotonic() + (self.settings.look_s if running else _IDLE_LOOK_S)
        try:
            topics = {stream_topic(pipeline.source.stream) for pipeline in running.values()}
            if running:
                await self.log.follow(topics)
                asked_ms = self.writers.clock.now_ms(time.monotonic())
                ends = await self.log.ends(
                    [where for top in topics for where in self.log.partitions(top)]
                )
                await self.losses.look(running, self.book.see_ends(ends, asked_ms))
            # Wait for each to end: repeating a request under way would write it twice.
            entering = [*self.entrance.entering(running), self._tell_states()]
            for error in await asyncio.gather(*entering, return_exceptions=True):
                if error is not None:
                    raise error
            await self.entrance.tell_again(running)
            self.earlier.look(running)
            self.succession.look(running, self.config.configuration)
            await self.forgotten.forget_gone(self.config.configuration, busy=self._busy)
        except UNWRITTEN as error:
            log.info("service.kafka_away", error=repr(error))
            self._look_s = time.monotonic() + _AGAIN_S

    def _refuse(self, pipeline: Pipeline, why: str) -> None:
        """Refuse a pipeline that cannot continue with its kept state."""
        index = next(at for at, step in enumerate(pipeline.steps) if isinstance(step, Keeping))
        pointer = f"/steps/{index}"
        if self.documents.judged(pipeline, why=why, pointer=pointer, now_ms=now_ms()):
            log.error("pipeline.refused", pipeline=pipeline.name, why=why)
            self.metrics.lane_up(pipeline.name, is_up=False)
            self._leave_others()

    def _before(self, pipeline: Pipeline) -> int:
        """The generation that the pipeline is being built to replace, if any; else 0."""
        current = self.config.configuration.pipelines.get(pipeline.name)
        return current.generation if current and current.title != pipeline.title else 0

    def _say(self, title: str, why: str) -> None:
        self.documents.held_up(title, why, now_ms=now_ms())

    def _note(self, title: str, note: str) -> None:
        self.documents.noted(title, note, now_ms=now_ms())

    def _say_lost(self, title: str, count: int, offsets: str) -> None:
        self.documents.lost(title, count, offsets, now_ms=now_ms())

    async def _tell_states(self) -> None:
        """Write changed states to Kafka for their followers."""
        for title in list(self.documents.untold):
            name, _ = name_and_generation(title)
            if title in self.documents.untold and self._slot_if_ours(name) is not None:
                state = self.documents.states[title]
                row = RecordOut(PIPELINES, title.encode(), state.to_json())
                await self.writers.of(name).store([row], {})
                if self.documents.states.get(title) == state:
                    self.documents.untold.discard(title)

    def _start_jobs(self) -> None:
        running = self.documents.by_lane()
        tables = {
            lane_id: self.tables.of(pipeline, self.config.configuration)
            for lane_id, pipeline in running.items()
        }
        leaving = [
            lane_id
            for lane_id, pipeline in running.items()
            if self.member.slot_of(pipeline.name) in self._leaving or tables[lane_id] is None
        ]
        now_s = time.monotonic()
        for job in [*self.book.plan(now_s, leaving), *self.book.to_close(now_s, leaving)]:
            work = [
                self._task(running[portion.lane_id], portion, tables[portion.lane_id] or NO_TABLES)
                for portion in job.portions
            ]
            task = asyncio.create_task(self._run(job, work))
            self._jobs[task] = frozenset(one.pipeline.name for one in work)
            task.add_done_callback(self._jobs.pop)

    def _task(self, pipeline: Pipeline, portion: PipelinePortion, tables: Tables) -> Task:
        streams = partitionings(pipeline, self.config.configuration)
        keeper = self.keepers.by_lane.get(portion.lane_id)
        frontier_ms = keeper.kept.head.frontier_ms if keeper else 0
        is_quiet = keeper is not None and keeper.kept.head.is_quiet
        return Task(pipeline, portion, streams, tables, None, frontier_ms, is_quiet=is_quiet)

    async def _run(self, job: PlannedJob, work: Sequence[Task]) -> None:
        try:
            if job.is_quick:
                await self.runner.close_windows(job, work[0])
            else:
                await self.runner.run(job, work)
        finally:
            self.book.over(job)
            # The pipelines of this job were waiting for its end.
            self._look_s = 0.0
            self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
