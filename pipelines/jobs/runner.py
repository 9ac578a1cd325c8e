"""Runs a whole job: stores its ranges, has Spark do the work, stores the results."""

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

import structlog

from pipelines.jobs.job import (
    EndsExecutorError,
    JobFailedError,
    JobLateError,
    Task,
    fold_of,
    run_job,
)
from pipelines.jobs.lane_states import LaneStates, Stored, placed, stored_of
from pipelines.jobs.letters import letter_of
from pipelines.jobs.losses import Losses
from pipelines.jobs.outcomes import Results, receipts
from pipelines.jobs.plan_cache import PlanCache
from pipelines.jobs.poison import record_at
from pipelines.jobs.rows_to_kafka import TooMuchAtOnceError
from pipelines.jobs.sink import SinkAwayError, SinkKind
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.portions import PipelinePortion, PlannedJob
from pipelines.metrics import PipelineMetrics
from pipelines.parts.alone import ExecutorTurns
from pipelines.parts.archive_source import ArchiveAwayError, kept_record
from pipelines.parts.blame import ExecutorEndedError
from pipelines.session import SparkOnDemand
from pipelines.settings import PipelinesSettings
from pipelines.windows.change import (
    KeptChange,
    KeptPosition,
    TooManyChangedError,
    TooMuchKeptError,
)
from pipelines.writer import UNWRITTEN, SlotLostError, SlotWriters
from shared.config.pipeline import Pipeline
from shared.event.envelope import EVENT_BYTES_MAX
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import lane_group
from shared.proof.intervals import Offsets
from shared.runtime.clock import now_ms
from shared.runtime.kafka.leases.fenced_positions import Reach

log = structlog.get_logger()

# The maximum time for which a job of several events has the executor to itself, as its range can be
# cut. It may take longer within _COLD_S of an executor's end: the next one must start, and its
# first job is slow.
_ALONE_S_MAX, _COLD_S = 7.0, 25.0
_OF_A_TASK = re.compile(r"\A.*?most recent failure: Lost task [^)]*\) \([^)]*\): ", re.DOTALL)
# The maximum number of characters of an error that are shown.
_WORDS_MAX = 300
# The reason for dead letters of events whose pipeline has no room for more kept state.
TOO_MUCH_KEPT = "too_much_kept"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PipelineWrite:
    """The records and positions of a pipeline that are stored together, all or none."""

    reaches: Mapping[KafkaPartition, Reach]
    rows: Sequence[RecordOut] = ()
    # Records of the kept state, and the rows made from it.
    more: Sequence[Stored] = ()


@dataclass
class JobRunner:
    """Runs the jobs of one process."""

    spark: SparkOnDemand
    settings: PipelinesSettings
    metrics: PipelineMetrics
    book: PipelineBook
    writers: SlotWriters
    losses: Losses
    sinks: Mapping[str, SinkKind]
    # Called with the pipeline's title, and why its sink accepts nothing; empty: it accepts events.
    told: Callable[[str, str], None] = lambda _, __: None
    keepers: LaneStates = field(default_factory=LaneStates)
    # Takes the pipeline that has ended an executor, and the error.
    blame: Callable[[Pipeline, str], None] = lambda _, __: None
    turns: ExecutorTurns = field(default_factory=ExecutorTurns)

    def __post_init__(self) -> None:
        self._plans: PlanCache | None = None
        # When an executor last ended.
        self._ended_s = -inf
        # Two of the threads are for shared jobs.
        count = self.settings.own_jobs_max + self.settings.sink_jobs_max + 2
        self._threads = ThreadPoolExecutor(count, "job")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    async def run(self, job: PlannedJob, work: Sequence[Task]) -> None:
        """Run a job and report its end to its lanes; never raises."""
        began_s, began_ms = time.monotonic(), now_ms()
        try:
            work = [await self._with_sink(task) for task in work]
            # Store this before writing anything: a successor must know which rows may be repeats.
            ready = await self._store(
                job, {task: PipelineWrite(_until(task.portion)) for task in work}
            )
            if not ready:
                return
            spark = await self.spark.get()
            if self._plans is None or self._plans.spark is not spark:
                self._plans = PlanCache(spark)
            results = await self._worked_on(job, self._plans, ready)
            made = dict(zip(ready, results, strict=True))
            await self._store_made(job, made, began_s, began_ms)
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            await self._went_wrong(job, work, error, began_ms)

    async def _worked_on(
        self, job: PlannedJob, plans: PlanCache, ready: Sequence[Task]
    ) -> Sequence[Results]:
        """Run a job alone if it may have ended an executor: if one ends again, the job did it."""
        if not self.book.is_suspect(job):
            async with self.turns.among_others():
                return await self.in_thread(run_job, plans, self.settings, ready)
        is_last = job.is_of_one and job.portions[0].is_one_event
        async with self.turns.alone():
            await self.spark.wait_for_executor()
            # All others wait for this job: if it has several events, limit its time.
            cold_s = self._ended_s + _COLD_S - time.monotonic()
            most_s = None if is_last else max(_ALONE_S_MAX, cold_s)
            run = partial(run_job, seconds_max=most_s)
            try:
                return await self.in_thread(run, plans, self.settings, ready)
            except ExecutorEndedError as error:
                self._ended_s = time.monotonic()
                rests_s = self.book.offended(job, time.monotonic())
                why = f"{error}, with nothing else at work: the pipeline rests for {rests_s:.0f} s"
                for task in ready:
                    self.blame(task.pipeline, why)
                raise EndsExecutorError(str(error)) from error
            except JobLateError:
                self.book.was_late_alone(job, time.monotonic())
                raise

    async def _went_wrong(
        self, job: PlannedJob, work: Sequence[Task], error: Exception, began_ms: int
    ) -> None:
        """Find the cause; records that are gone explain a failure by themselves."""
        try:
            passing = await self.losses.pass_by(work)
        except Exception as away:  # noqa: BLE001 - as above
            self._held_up(job, work, away)
            return
        others = [task for task in work if task not in passing]
        for task in passing:
            if (output := task.pipeline.sink) is not None and task.sink is not None:
                self.sinks[output.member].ended(task.pipeline, error)
        if not others:
            return
        error = self._held_up_by_others(job, error, began_ms)
        if isinstance(error, JobFailedError):
            await self._cut(_part(job, others), others, error, began_ms)
        elif isinstance(error, TooMuchAtOnceError):
            await self._too_much(_part(job, others), others, error, began_ms)
        elif isinstance(error, ExecutorEndedError):
            self._ended_s = time.monotonic()
            self.book.suspect(_part(job, others), time.monotonic())
            for task in others:
                self._died(task, error, 0)
        else:
            self._held_up(job, others, error)

    def _held_up_by_others(self, job: PlannedJob, error: Exception, began_ms: int) -> Exception:
        """If a job that ran beside others was late, blame any trouble with the executor for it."""
        is_late = isinstance(error, JobLateError) and not self.book.is_suspect(job)
        why = self.spark.watch.trouble_since(began_ms) if is_late else ""
        return ExecutorEndedError(f"{error}, and {why}") if why else error

    async def _with_sink(self, task: Task) -> Task:
        if (output := task.pipeline.sink) is None:
            return task
        topic_id = await self.losses.topic_id(task)
        return replace(task, sink=self.sinks[output.member].made(task.pipeline, topic_id))

    async def close_windows(self, job: PlannedJob, task: Task) -> None:
        """Write windows that have ended by time alone, without an event."""
        try:
            await self._store_made(job, {task: Results()}, time.monotonic(), now_ms())
        except Exception as error:  # noqa: BLE001 - as above
            self._held_up(job, [task], error)

    async def _store_made(
        self, job: PlannedJob, made: dict[Task, Results], began_s: float, began_ms: int
    ) -> None:
        """Store the results of a job, each pipeline's separately."""
        writes, changes = {}, {}
        for task in list(made):
            portion, change = task.portion, None
            if self.book.is_ours(portion) and portion.lane_id in self.keepers.by_lane:
                try:
                    change, made[task] = await self.in_thread(self._changed, task, made[task])
                except TooMuchKeptError as error:
                    failed = JobFailedError(str(error), TOO_MUCH_KEPT)
                    await self._cut(_part(job, [task]), [task], failed, began_ms)
                    continue
                except TooManyChangedError as error:
                    await self._too_much(_part(job, [task]), [task], error, began_ms)
                    continue
                except Exception as error:  # noqa: BLE001 - the job's others did nothing
                    await self._went_wrong(_part(job, [task]), [task], error, began_ms)
                    continue
                changes[task] = change
            more: Iterable[Stored] = ()
            if change is not None:
                head = self.keepers.by_lane[portion.lane_id].kept.head
                more = stored_of(task.pipeline, change, made[task], task.tables.written, head)
                lane = self.book.lanes[portion.lane_id]
                position = KeptPosition({**lane.position, **portion.ends}, lane.topic_id)
                more = [placed(task.pipeline, position), *more]
            rows = self._receipts(portion, made[task], began_ms) if portion.ranges else []
            rows += made[task].records
            writes[task] = PipelineWrite(_ends(portion), rows, list(more))
        stored = await self._store(job, writes)
        for task in stored:
            if (change := changes.get(task)) is not None and self.book.is_ours(task.portion):
                keeper = self.keepers.by_lane[task.portion.lane_id]
                keeper.is_done(change, task.portion, made[task])
                self.book.closes_at(task.portion, keeper.kept.closes_at_ms)
        took_s = time.monotonic() - began_s
        self._done(job, {task: made[task] for task in stored}, took_s)

    def _changed(self, task: Task, made: Results) -> tuple[KeptChange, Results]:
        lane_id = task.portion.lane_id
        keeper, places = self.keepers.by_lane[lane_id], self.book.lanes[lane_id].reaches
        room = self.keepers.room_of(lane_id)
        row_sizes = [table.row_bytes_max for table in task.tables.written.values()]
        row_bytes_max = min(row_sizes, default=EVENT_BYTES_MAX)
        spark = self.spark.session
        return keeper.change(
            task.pipeline,
            task.portion,
            made,
            list(places),
            room=room,
            row_bytes_max=row_bytes_max,
            fold=fold_of(spark, self.settings, task.pipeline.name) if spark else None,
        )

    async def _store(self, job: PlannedJob, told: Mapping[Task, PipelineWrite]) -> list[Task]:
        """Return the tasks whose writes Kafka has; the others are repeated as a whole."""

        async def store(task: Task) -> Exception | None:
            write = told[task]
            if not self.book.is_ours(task.portion):
                return SlotLostError("another process may own it now")
            lane = lane_group(task.portion.lane_id)
            writer = self.writers.of(task.pipeline.name)
            try:
                await writer.store(
                    write.rows, {lane: write.reaches} if write.reaches else {}, write.more
                )
            except UNWRITTEN as error:
                if write.more:
                    # The write may be stored or not: entering the lane again asks Kafka.
                    self.book.leave(task.portion.lane_id)
                return error
            return None

        errors = dict(zip(told, await asyncio.gather(*map(store, told)), strict=True))
        for task, error in errors.items():
            if error is not None:
                self._held_up(job, [task], error)
        return [task for task, error in errors.items() if error is None]

    def _receipts(self, portion: PipelinePortion, made: Results, began_ms: int) -> list[RecordOut]:
        return receipts(
            portion,
            made,
            batch_id=str(uuid.uuid4()),
            started_at_ms=began_ms,
            ended_at_ms=max(began_ms, now_ms()),
        )

    def _done(
        self,
        job: PlannedJob,
        made: Mapping[Task, Results],
        took_s: float,
        *,
        is_well: bool = True,
    ) -> None:
        self.book.done(_part(job, made), took_s, time.monotonic(), is_well=is_well)
        for task, what in made.items():
            name = task.pipeline.name
            self.told(task.pipeline.title, "")
            self.metrics.lane_up(name, is_up=True)
            if (output := task.pipeline.sink) is not None:
                self.sinks[output.member].ended(task.pipeline, None)
            count = task.portion.count
            self.metrics.micro_batch_done(name, events=count, duration_s=took_s)
            self.metrics.came_to(name, what.counts)

    async def _too_much(
        self, job: PlannedJob, work: Sequence[Task], error: Exception, began_ms: int
    ) -> None:
        """Retry with fewer events; a single event that is too much becomes a dead letter."""
        if job.is_of_one and job.portions[0].is_one_event:
            await self._cut(job, work, JobFailedError(str(error), TOO_MUCH_KEPT), began_ms)
            return
        self.book.too_much(job)
        for task in work:
            log.info("lane.too_much", lane=task.portion.lane_id, why=short(error))

    def _held_up(self, job: PlannedJob, work: Sequence[Task], error: Exception) -> None:
        again_s = self.book.held_up(_part(job, work), time.monotonic())
        for task in work:
            if isinstance(error, SinkAwayError):
                self.told(task.pipeline.title, str(error)[:_WORDS_MAX])
            self._died(task, error, again_s)
            if (output := task.pipeline.sink) is not None and task.sink is not None:
                self.sinks[output.member].ended(task.pipeline, error)

    def _died(self, task: Task, error: Exception, again_s: float) -> None:
        self.metrics.lane_up(task.pipeline.name, is_up=False)
        self.metrics.lane_restarted(task.pipeline.name)
        lane = task.portion.lane_id
        log.error("lane.died", lane=lane, restart_in_s=again_s, error=short(error))

    async def _cut(
        self, job: PlannedJob, work: Sequence[Task], error: JobFailedError, began_ms: int
    ) -> None:
        """Find the event that the pipeline cannot process, and make it a dead letter."""
        if not (job.is_of_one and job.portions[0].is_one_event):
            self.book.failed(job)
            for task in work:
                self._died(task, error, 0)
                if (output := task.pipeline.sink) is not None:
                    self.sinks[output.member].ended(task.pipeline, error)
            return
        (task,), ((where, (at, _)),) = work, job.portions[0].ranges.items()
        try:
            letter = await self._letter(task, where, at, error)
            dead = {(error.reason, where): Offsets.of([(at, at + 1)])} if letter else {}
            made = Results(dead=dead)
            rows = self._receipts(task.portion, made, began_ms)
            rows += [letter] if letter else []
            if await self._store(job, {task: PipelineWrite(_ends(task.portion), rows)}):
                is_well = not isinstance(error, EndsExecutorError)
                self._done(job, {task: made}, 0.0, is_well=is_well)
        except Exception as away:  # noqa: BLE001 - as above
            self._held_up(job, work, away)

    async def _letter(
        self, task: Task, where: KafkaPartition, at: int, error: JobFailedError
    ) -> RecordOut | None:
        """Return the event's dead letter; None if there is no event."""
        if (piece := task.portion.earlier.get(where)) is not None:
            try:
                record = await self.in_thread(kept_record, where, at, piece)
            except ArchiveAwayError as away:
                raise SinkAwayError(str(away)) from None
        else:
            record = await record_at(self.losses.log, where, at)
        if record is None:
            return None
        return letter_of(record, task.portion.lane_id, reason=error.reason, why=short(error))


def short(error: Exception) -> str:
    """The error in a line of limited length; for a Spark task, only the task's own words."""
    says = _OF_A_TASK.sub("", str(error).strip())
    return f"{type(error).__name__}: {says}"[:_WORDS_MAX]


def _part(job: PlannedJob, work: Sequence[Task] | Mapping[Task, Any]) -> PlannedJob:
    return replace(job, portions=tuple(task.portion for task in work))


def _until(portion: PipelinePortion) -> dict[KafkaPartition, Reach]:
    return {
        where: Reach(begin, portion.until(where)) for where, (begin, _) in portion.ranges.items()
    }


def _ends(portion: PipelinePortion) -> dict[KafkaPartition, Reach]:
    return {where: Reach(end, portion.until(where)) for where, (_, end) in portion.ranges.items()}
