"""Runs Spark jobs: one job reads events, makes rows of them by their plans and writes the rows.

All its pipelines share the job. Each has a source of its own, as their positions differ.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.functions.reducing import fold_in
from pipelines.functions.states import Fold, FoldedState, ToFold
from pipelines.jobs.dead_rows import with_dead_letters
from pipelines.jobs.outcomes import Results
from pipelines.jobs.plan_cache import CachedPlan, PlanCache
from pipelines.jobs.rows_to_kafka import TooMuchAtOnceError, read_rows, write_rows
from pipelines.jobs.sink import Sink, SinkAwayError, handed_over, heard
from pipelines.jobs.tee import run_tee
from pipelines.lanes.portions import PipelinePortion
from pipelines.parts.archive_source import ArchiveAwayError, records_in_archives
from pipelines.parts.blame import check_executor, fault_of_an_event
from pipelines.parts.bounded import TookTooLongError, bounded
from pipelines.parts.columns import ours
from pipelines.parts.whole_events import DEAD, LATE, NOT_PASSED
from pipelines.plan import planned
from pipelines.settings import PipelinesSettings
from pipelines.shards import Partitionings
from pipelines.tables.look_ups import NO_TABLES, Tables
from pipelines.windows.partials import events_of, lost_of, parts_of
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS, MINUTE_MS
from shared.event.topics import STREAM_RETENTION_MS, stream_topic
from shared.proof.acked import EARLY_MS_MAX, LATE_MS_MAX, WILD
from shared.proof.intervals import Offsets
from shared.proof.receipt import PASSED
from shared.runtime.kafka.spark_options import range_options, sink_options

# A pipeline produces thousands of events at a time: a request waits until it is full. The last
# events of a task do not wait, as the task flushes.
_LARGE_BATCHES = {"kafka.batch.size": str(128 * 1024), "kafka.linger.ms": "20"}
# This header marks events that may have been written before.
MAYBE_DUPLICATE = "maybe-duplicate"
_READERS = "hifi-pipelines"
_TIMES = ("event_time_ms", "accepted_at_ms")
_MANY_TIMES = ("event_times", "accepted_ats")
# The maximum number of event times that a job reports: if it has more, close ones are merged.
_MOMENTS_MAX = 100
# More minutes than a stream retains, with a day to spare for late events.
_MINUTES_MAX = (STREAM_RETENTION_MS + 2 * DAY_MS) // MINUTE_MS
# The answers of a sink's tasks are collected under this name.
_SAID = "said"


# The maximum number of rows that are stored with the position, in one transaction.
_ONCE_ROWS_MAX = 10_000
# Spark's error when a result is too large for the driver; fewer events have a smaller result.
_TOO_MUCH = "spark.driver.maxResultSize"


# The reason for dead letters of events that their pipeline cannot process.
STEP_FAILED = "step_failed"


class JobFailedError(Exception):
    """Some of the job's events cannot be processed; Kafka and Spark work."""

    def __init__(self, why: str, reason: str = STEP_FAILED) -> None:
        super().__init__(why)
        # The reason recorded for the one event at fault, once it is found.
        self.reason = reason


class JobLateError(JobFailedError):
    """The job was cut off at its time limit."""


class EndsExecutorError(JobFailedError):
    """The job ended an executor in which nothing else was at work."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The work that a job does for one pipeline, and the document that it follows."""

    pipeline: Pipeline
    portion: PipelinePortion
    # The partitionings of those target streams that place their events by shard.
    streams: Partitionings = field(default_factory=dict)
    tables: Tables = NO_TABLES
    # The target of events outside Kafka, if any; such a task has a job of its own.
    sink: Sink | None = None
    # For a pipeline with windows: its whole stream had been read up to this time.
    frontier_ms: int = 0
    # The pipeline that it replaces still writes to the streams.
    is_quiet: bool = False

    @property
    def plan_key(self) -> Hashable:
        """The key of the task's plan: plans of one key differ only in where they read."""
        shards = tuple(sorted(self.streams.items(), key=str))
        tables = repr(self.tables)
        return self.pipeline.fingerprint, frozenset(self.portion.ranges), repr(shards), tables


def run_job(
    plans: PlanCache,
    settings: PipelinesSettings,
    tasks: Sequence[Task],
    *,
    seconds_max: float | None = None,
) -> list[Results]:
    """Run the tasks, in a thread of its own; return when Kafka has all rows."""
    name = tasks[0].pipeline.name if len(tasks) == 1 else "shared"
    is_elsewhere = any(task.sink is not None for task in tasks)
    # A job that reads archives gets the longer limit, too. Beyond it, the store is not to blame.
    is_slow = is_elsewhere or any(task.portion.earlier for task in tasks)
    most_s = settings.sink_job_s_max if is_slow else seconds_max or settings.job_s_max
    too_late = SinkAwayError if is_elsewhere else JobLateError
    with _bounded(plans.spark.sparkContext, name, most_s, too_late):
        made = _worked_on(plans, settings.bootstrap_servers, tasks, name)
    return [made[task] for task in tasks]


def fold_of(spark: SparkSession, settings: PipelinesSettings, name: str) -> Fold:
    """Return a function that merges reducers' states, in jobs with the same time limit."""

    def fold(asked: Sequence[ToFold]) -> Sequence[FoldedState]:
        with _bounded(spark.sparkContext, name, settings.job_s_max, JobLateError):
            return fold_in(spark.sparkContext)(asked)

    return fold


@contextmanager
def _bounded(
    context: SparkContext, name: str, seconds_max: float, too_late: type[Exception]
) -> Iterator[None]:
    """Cut off this thread's jobs when they take too long, and raise an error that says why."""
    try:
        with bounded(context, name, seconds_max):
            yield
    except TookTooLongError as error:
        raise too_late(str(error)) from error
    except ArchiveAwayError as away:
        raise SinkAwayError(str(away)) from None
    except (PySparkException, Py4JJavaError) as error:
        if _TOO_MUCH in str(error):
            raise TooMuchAtOnceError("the results are larger than the driver can take") from error
        check_executor(str(error))
        if (why := fault_of_an_event(str(error))) is not None:
            raise JobFailedError(why) from error
        raise


def _worked_on(
    plans: PlanCache, servers: str, tasks: Sequence[Task], name: str
) -> dict[Task, Results]:
    is_tee = tasks[0].pipeline.is_tee and not tasks[0].portion.earlier
    if (sink := tasks[0].sink) is not None and is_tee:
        # A tee has a job of its own.
        return {tasks[0]: run_tee(plans.tees, servers, sink, tasks[0].portion.ranges, pool=name)}
    options = {**sink_options(servers, name=f"pipelines-{name}"), **_LARGE_BATCHES}
    made: dict[Task, Results] = {}
    for task in tasks:
        if task.pipeline.window is not None:
            made[task] = _counted(plans.spark, servers, task, options)
        elif task.pipeline.dedupe is not None:
            made[task] = _asked(plans.spark, servers, task)
        else:
            made[task] = _written(plans, servers, task, options)
    return made


def _written(plans: PlanCache, servers: str, task: Task, options: Mapping[str, str]) -> Results:
    """Run a task that needs no state of earlier events."""
    watched = f"made-{task.pipeline.name}"
    if task.sink is not None:
        rows = _rows(plans.spark, servers, task, watched)
        return _made_elsewhere(task, *write_rows(rows, options, [watched, _SAID]))
    # A plan with labels, or with events of an archive, is used only once.
    is_kept = not (task.portion.repeats or task.portion.earlier)
    plan = plans.take(task.plan_key) if is_kept else None
    if plan is None:
        rows = _rows(plans.spark, servers, task, watched)
    else:
        rows = plan.rows
        plan.read(task.portion.ranges)
    (seen,) = write_rows(rows, options, [watched])
    if is_kept and (plan := plan or CachedPlan.of(rows)):
        plans.give_back(task.plan_key, plan)
    return _made(task, seen)


def _records(spark: SparkSession, servers: str, task: Task) -> DataFrame:
    ranges, earlier = task.portion.ranges, task.portion.earlier
    kept = records_in_archives(spark, ranges, earlier) if earlier else None
    in_log = {where: span for where, span in ranges.items() if where not in earlier}
    if kept is not None and not in_log:
        return kept
    # Spark caches consumers by this name for the next job; no group of this name is ever joined.
    options = {**range_options(servers, in_log), "kafka.group.id": _READERS}
    records = spark.read.format("kafka").options(**options).load()
    return records if kept is None else records.select(*kept.columns).union(kept)


def _rows(spark: SparkSession, servers: str, task: Task, watched: str) -> DataFrame:
    records = _records(spark, servers, task)
    rows = planned(task.pipeline, records, task.streams, task.tables).observe(
        watched, *_figures(F.col)
    )
    return _to_be_written(rows, task)


def _to_be_written(rows: DataFrame, task: Task) -> DataFrame:
    letters = with_dead_letters(rows, task.pipeline, now_ms=_now_ms(rows.sparkSession))
    wanted = reduce(DataFrame.where, (F.col("outcome") != fate for fate in NOT_PASSED), letters)
    if task.sink is None:
        return _for_kafka(wanted, task)
    # The sink itself knows which events it has had before.
    is_dead = F.col("outcome") == DEAD
    headers = F.when(is_dead, labelled(task.portion)).otherwise(F.col("headers"))
    handed = handed_over(
        wanted.withColumn("headers", headers), task.sink, task.pipeline, task.portion.ranges
    ).observe(_SAID, F.collect_list("said").alias("said"))
    return handed.where(F.col("topic").isNotNull()).select("topic", "key", "value", "headers")


def _now_ms(spark: SparkSession) -> Column:
    """The time now, read at each run even if a plan is reused. No allowed function has a clock.

    Spark's own clock function is read when a plan is made.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - nothing else reaches it
    kind = _module(jvm.org.apache.spark.sql.types, "LongType")
    none, nothing = _module(jvm.scala, "None"), _module(jvm.scala.collection.immutable, "Nil")
    is_null_safe, may_be_null, is_same_each_time = True, False, False
    now = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        jvm.java.lang.Class.forName("java.lang.System"),
        kind,
        "currentTimeMillis",
        nothing,
        nothing,
        is_null_safe,
        may_be_null,
        is_same_each_time,
        none,
    )
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(now))


def _module(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _for_kafka(letters: DataFrame, task: Task) -> DataFrame:
    # Where the partition is null, Kafka's producer chooses by the key.
    place = F.col("to_partition").alias("partition")
    return letters.select("topic", place, "key", "value", labelled(task.portion).alias("headers"))


def _counted(spark: SparkSession, servers: str, task: Task, options: Mapping[str, str]) -> Results:
    """Return what the events add to their windows; late and dead events are written."""
    records = _records(spark, servers, task)
    events = events_of(
        task.pipeline,
        records,
        frontier_ms=task.frontier_ms,
        look_ups=task.tables.look_ups,
    )
    watched = events.observe("made", *_figures(ours), *_stored(task, ours))
    parts, (seen,) = read_rows(parts_of(task.pipeline, watched), ["made"])
    made = _made(task, seen, parts)
    is_late_told = task.pipeline.late_to is not None and not task.is_quiet
    if made.dead or (is_late_told and made.counts[LATE]):
        lost = lost_of(task.pipeline, events)
        lost = lost.where(F.col("outcome") == DEAD) if task.is_quiet else lost
        lost = with_dead_letters(lost, task.pipeline, now_ms=_now_ms(spark))
        write_rows(_for_kafka(lost, task), options, [])
    return made


def _asked(spark: SparkSession, servers: str, task: Task) -> Results:
    """Return the rows of events that are still to be checked for earlier appearances."""
    records = _records(spark, servers, task)
    rows = planned(task.pipeline, records, task.streams, task.tables)
    watched = rows.observe("made", *_figures(F.col), *_stored(task, F.col))
    letters = with_dead_letters(watched, task.pipeline, now_ms=_now_ms(spark))
    wanted = letters.where(F.col("topic").isNotNull() | F.col("seen").isNotNull())
    wanted = wanted.withColumn("minute_ms", _audited_minute(F.col))
    asked, (seen,) = read_rows(wanted, ["made"], rows_max=_ONCE_ROWS_MAX)
    return _made(task, seen, asked)


def _stored(task: Task, column: Callable[[str], Column]) -> list[Column]:
    """The time up to which each Kafka partition has been read once these events are read."""
    return [
        F.max(F.when(column("partition") == where.partition, column("stored_ms"))).alias(
            f"stored-{where.partition}"
        )
        for where in task.portion.ranges
    ]


def _figures(column: Callable[[str], Column]) -> list[Column]:
    """The figures that Spark counts on the way; all rows of an event have the same outcome."""
    outcome, is_first = column("outcome"), column("nth") == 0
    place = F.struct(*(column(name).alias(name) for name in ("reason", "partition", "offset")))
    return [
        F.count_if((outcome == PASSED) & is_first).alias(PASSED),
        *(
            # The histogram is exact, as a stream has no more minutes.
            F.histogram_numeric(
                F.when((outcome == each) & is_first, _audited_minute(column)), F.lit(_MINUTES_MAX)
            ).alias(each)
            for each in NOT_PASSED
        ),
        F.collect_list(F.when((outcome == DEAD) & is_first, place)).alias(DEAD),
        *(F.coalesce(F.min(column(time)), F.lit(0)).alias(time) for time in _TIMES),
        *(
            F.histogram_numeric(F.when(is_first, column(time)), F.lit(_MOMENTS_MAX)).alias(many)
            for time, many in zip(_TIMES, _MANY_TIMES, strict=True)
        ),
    ]


def _audited_minute(column: Callable[[str], Column]) -> Column:
    """The same minute as `audited_minute` returns."""
    event_ms, accepted_ms = map(column, _TIMES)
    is_wild = ~(event_ms - accepted_ms).between(-LATE_MS_MAX, EARLY_MS_MAX)
    minute_ms = event_ms - F.pmod(event_ms, F.lit(MINUTE_MS))
    return F.when(is_wild, WILD).otherwise(minute_ms)


def labelled(portion: PipelinePortion) -> Column:
    """The headers, with a label on events that may have been written before."""
    headers = F.col("headers")
    if not portion.repeats:
        return headers
    is_again = reduce(
        Column.__or__,
        (
            (F.col("partition") == where.partition) & (F.col("offset") < until)
            for where, until in portion.repeats.items()
        ),
    )
    label = F.struct(F.lit(MAYBE_DUPLICATE).alias("key"), F.lit(b"1").alias("value"))
    return F.when(is_again, F.array_append(headers, label)).otherwise(headers)


def _made(task: Task, seen: dict[str, Any], found: Sequence[Mapping[str, Any]] = ()) -> Results:
    topic = stream_topic(task.pipeline.source.stream)
    dead: dict[tuple[str, KafkaPartition], Offsets] = {}
    for event in seen[DEAD]:
        where = KafkaPartition(topic, event["partition"])
        offsets = dead.setdefault((event["reason"], where), Offsets())
        offsets.add(event["offset"], event["offset"] + 1)
    made = Results(
        seen[PASSED],
        {what: _times(seen[what]) for what in NOT_PASSED},
        dead,
        *(seen[time] for time in _TIMES),
        *(_times(seen[many]) for many in _MANY_TIMES),
    )
    return replace(made, stored_ms=_stored_ms(task, seen), found=found)


def _stored_ms(task: Task, seen: Mapping[str, Any]) -> dict[KafkaPartition, int]:
    stored = {where: seen.get(f"stored-{where.partition}") for where in task.portion.ranges}
    return {where: at_ms for where, at_ms in stored.items() if at_ms is not None}


def _times(histogram: Sequence[Mapping[str, float]] | None) -> dict[int, int]:
    """Count how often each value came; each task's histogram reports its own events."""
    counts: Counter[int] = Counter()
    for each in histogram or ():
        counts[round(each["x"])] += round(each["y"])
    return dict(counts)


def _made_elsewhere(task: Task, seen: dict[str, Any], told: dict[str, Any]) -> Results:
    """Add the sink's answers: the sink may have refused some of the events that passed."""
    assert task.sink is not None, "it is a sink's job"
    made, handed = _made(task, seen), heard(task.pipeline, told["said"])
    refused = sum(map(len, handed.refused.values()))
    return replace(
        made,
        passed=made.passed - refused,
        dead={**made.dead, **handed.refused},
        records=tuple(task.sink.records(task.portion.ranges, handed.reports)),
    )
