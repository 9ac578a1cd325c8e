"""Has Spark work on events: one job reads them, makes rows of them by their plans, writes the rows.

All its pipelines share the job, each with a source of its own, as each is elsewhere in its stream.
"""

import uuid
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from threading import Timer
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.book import PipelineShare
from pipelines.jobs.blame import fault_of_an_event
from pipelines.jobs.dead_rows import with_dead_letters
from pipelines.jobs.kept_plans import KeptPlan, KeptPlans
from pipelines.jobs.outcomes import Made
from pipelines.jobs.rows_to_kafka import write_rows
from pipelines.jobs.sink import Sink, SinkAwayError, handed_over, heard
from pipelines.parts.whole_events import DEAD, NOT_PASSED
from pipelines.plan import planned
from pipelines.settings import PipelinesSettings
from pipelines.shards import Partitionings
from pipelines.tables.look_ups import NO_TABLES, Tables
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS, MINUTE_MS
from shared.event.topics import STREAM_RETENTION_MS, stream_topic
from shared.proof.acked import EARLY_MS_MAX, LATE_MS_MAX, WILD
from shared.proof.intervals import Offsets
from shared.proof.receipt import PASSED
from shared.runtime.kafka.spark_options import range_options, sink_options

# Said in a header of what may have been written before.
MAYBE_DUPLICATE = "maybe-duplicate"
_READERS = "hifi-pipelines"
_TIMES = ("event_time_ms", "accepted_at_ms")
_MANY_TIMES = ("event_times", "accepted_ats")
# So many moments stand for all those that events of a job have: of more, near ones are told as one.
_MOMENTS_MAX = 100
# More than those that a stream has kept of, with a day for events that came late.
_MINUTES_MAX = (STREAM_RETENTION_MS + 2 * DAY_MS) // MINUTE_MS
# What a sink's tasks have said is counted under this name.
_SAID = "said"


class JobFailedError(Exception):
    """Something of what it was given cannot be worked on; Kafka and Spark are well."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What a job does for one pipeline, by which document."""

    pipeline: Pipeline
    share: PipelineShare
    # Of the streams that it writes to, those that lay their events by shards.
    streams: Partitionings = field(default_factory=dict)
    tables: Tables = NO_TABLES
    # Where its events go if that is not Kafka; such a task has a job of its own.
    sink: Sink | None = None

    @property
    def plan_key(self) -> Hashable:
        """Tasks of the same key have plans that differ only in where they read."""
        shards = tuple(sorted(self.streams.items(), key=str))
        return self.pipeline.fingerprint, frozenset(self.share.ranges), repr(shards)


def run_job(plans: KeptPlans, settings: PipelinesSettings, tasks: Sequence[Task]) -> list[Made]:
    """In a thread of its own: returns when Kafka has all rows."""
    context, servers = plans.spark.sparkContext, settings.bootstrap_servers
    name = tasks[0].pipeline.name if len(tasks) == 1 else "shared"
    context.setLocalProperty("spark.scheduler.pool", name)
    watched = [f"made-{task.pipeline.name}" for task in tasks]
    is_elsewhere = any(task.sink is not None for task in tasks)
    seconds_max = settings.sink_job_s_max if is_elsewhere else settings.job_s_max
    taken = [_plan(plans, servers, task, name) for task, name in zip(tasks, watched, strict=True)]
    # What was run once is run again only as a part of something new.
    rows = reduce(DataFrame.union, (plan.rows for plan in taken)).where(F.lit(True))
    tag, late = f"hifi-{uuid.uuid4()}", False

    def give_up() -> None:
        nonlocal late
        late = True
        context.cancelJobsWithTag(tag)

    timer = Timer(seconds_max, give_up)
    context.addJobTag(tag)
    timer.start()
    try:
        options = sink_options(servers, name=f"pipelines-{name}")
        found = write_rows(rows, options, [*watched, _SAID] if is_elsewhere else watched)
    except (PySparkException, Py4JJavaError) as error:
        if late:
            too_long = f"it took longer than {seconds_max:g} s"
            raise (SinkAwayError if is_elsewhere else JobFailedError)(too_long) from error
        if (why := fault_of_an_event(str(error))) is not None:
            raise JobFailedError(why) from error
        raise
    finally:
        timer.cancel()
        context.removeJobTag(tag)
    if is_elsewhere:
        return [_made_elsewhere(tasks[0], *found)]
    for task, plan in zip(tasks, taken, strict=True):
        if plan.relation is not None:
            plans.give_back(task.plan_key, plan)
    return [_made(task, seen) for task, seen in zip(tasks, found, strict=True)]


def _plan(plans: KeptPlans, servers: str, task: Task, watched: str) -> KeptPlan:
    """One that is kept, or a new one; with labels, rows of tables or a sink it is of use once."""
    if task.share.repeats or task.tables or task.sink is not None:
        return KeptPlan(_rows(plans.spark, servers, task, watched), None)
    plan = plans.take(task.plan_key)
    if plan is None:
        rows = _rows(plans.spark, servers, task, watched)
        return KeptPlan.of(rows) or KeptPlan(rows, None)
    plan.read(task.share.ranges)
    return plan


def _rows(spark: SparkSession, servers: str, task: Task, watched: str) -> DataFrame:
    # By this name its consumers are kept for the next job; no group of it is ever joined.
    options = {**range_options(servers, task.share.ranges), "kafka.group.id": _READERS}
    records = spark.read.format("kafka").options(**options).load()
    rows = planned(task.pipeline, records, task.streams, task.tables).observe(watched, *_figures())
    letters = with_dead_letters(rows, task.pipeline, now_ms=_now_ms(spark))
    wanted = reduce(DataFrame.where, (F.col("outcome") != it for it in NOT_PASSED), letters)
    if task.sink is None:
        # Where it says nothing, Kafka's producer goes by the key.
        place = F.col("to_partition").alias("partition")
        return wanted.select("topic", place, "key", "value", labelled(task.share).alias("headers"))
    # What it has had before is for a sink to know.
    is_dead = F.col("outcome") == DEAD
    headers = F.when(is_dead, labelled(task.share)).otherwise(F.col("headers"))
    told = handed_over(
        wanted.withColumn("headers", headers), task.sink, task.pipeline, task.share.ranges
    ).observe(_SAID, F.collect_list("said").alias("said"))
    return told.where(F.col("topic").isNotNull()).select("topic", "key", "value", "headers")


def _now_ms(spark: SparkSession) -> Column:
    """When a plan is run. It is no function that an expression could call: these have no clock."""
    jvm: Any = spark._jvm  # noqa: SLF001 - nothing else reaches it
    now = jvm.org.apache.spark.sql.catalyst.expressions.CurrentTimestamp()
    return F.unix_millis(Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(now)))


def _figures() -> list[Column]:
    """What is counted on the way; the rows of an event have one outcome."""
    outcome, is_first = F.col("outcome"), F.col("nth") == 0
    place = F.struct("reason", "partition", "offset")
    return [
        F.count_if((outcome == PASSED) & is_first).alias(PASSED),
        *(
            # Exact, as a stream has no more minutes.
            F.histogram_numeric(
                F.when((outcome == each) & is_first, _audited_minute()), F.lit(_MINUTES_MAX)
            ).alias(each)
            for each in NOT_PASSED
        ),
        F.collect_list(F.when((outcome == DEAD) & is_first, place)).alias(DEAD),
        *(F.coalesce(F.min(time), F.lit(0)).alias(time) for time in _TIMES),
        *(
            F.histogram_numeric(F.when(is_first, F.col(time)), F.lit(_MOMENTS_MAX)).alias(many)
            for time, many in zip(_TIMES, _MANY_TIMES, strict=True)
        ),
    ]


def _audited_minute() -> Column:
    """As `audited_minute` says."""
    event_ms, accepted_ms = map(F.col, _TIMES)
    is_wild = ~(event_ms - accepted_ms).between(-LATE_MS_MAX, EARLY_MS_MAX)
    minute_ms = event_ms - F.pmod(event_ms, F.lit(MINUTE_MS))
    return F.when(is_wild, WILD).otherwise(minute_ms)


def labelled(share: PipelineShare) -> Column:
    """The headers; what may have been written before says so."""
    headers = F.col("headers")
    if not share.repeats:
        return headers
    is_again = reduce(
        Column.__or__,
        (
            (F.col("partition") == where.partition) & (F.col("offset") < until)
            for where, until in share.repeats.items()
        ),
    )
    label = F.struct(F.lit(MAYBE_DUPLICATE).alias("key"), F.lit(b"1").alias("value"))
    return F.when(is_again, F.array_append(headers, label)).otherwise(headers)


def _made(task: Task, seen: dict[str, Any]) -> Made:
    topic = stream_topic(task.pipeline.source.stream)
    dead: dict[tuple[str, KafkaPartition], Offsets] = {}
    for event in seen[DEAD]:
        where = KafkaPartition(topic, event["partition"])
        offsets = dead.setdefault((event["reason"], where), Offsets())
        offsets.add(event["offset"], event["offset"] + 1)
    return Made(
        seen[PASSED],
        {what: _counted(seen[what]) for what in NOT_PASSED},
        dead,
        *(seen[time] for time in _TIMES),
        *(_counted(seen[many]) for many in _MANY_TIMES),
    )


def _counted(histogram: Sequence[Mapping[str, float]] | None) -> dict[int, int]:
    """How often each value came: what each task has seen is told by itself."""
    counts: Counter[int] = Counter()
    for each in histogram or ():
        counts[round(each["x"])] += round(each["y"])
    return dict(counts)


def _made_elsewhere(task: Task, seen: dict[str, Any], told: dict[str, Any]) -> Made:
    """With what the sink has said: some of what has passed it may have refused."""
    assert task.sink is not None, "it is a sink's job"
    made, handed = _made(task, seen), heard(task.pipeline, told["said"])
    refused = sum(map(len, handed.refused.values()))
    return replace(
        made,
        passed=made.passed - refused,
        dead={**made.dead, **handed.refused},
        records=tuple(task.sink.records(task.share.ranges, handed.reports)),
    )
