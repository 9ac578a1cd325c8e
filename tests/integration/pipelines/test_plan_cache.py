"""A kept plan reads from each run's positions, and plans that cannot do that are not kept."""

import asyncio
import json
import uuid
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from deploy.local.cluster import Cluster
from pipelines.jobs.job import Task, _now_ms, run_job
from pipelines.jobs.plan_cache import CachedPlan, PlanCache
from pipelines.jobs.rows_to_kafka import write_rows as written_by_spark
from pipelines.lanes.portions import PipelinePortion
from pipelines.settings import PipelinesSettings
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Ranges, RecordOut
from shared.event.topics import TopicSpec, stream_topic
from shared.runtime.kafka.spark_options import range_options, sink_options
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.kafka_log import read_all, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration


class Ground:
    """Ten records in each of two Kafka partitions, and a topic for the results."""

    def __init__(self, servers: str, spark: "SparkSession") -> None:
        self.servers, self.spark = servers, spark
        self.topic = f"kept-{uuid.uuid4().hex}"
        self.to = f"{self.topic}-to"
        self.first, self.other = (KafkaPartition(self.topic, number) for number in range(2))
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        async with topic_admin(self.servers) as admin:
            await admin.create_missing([TopicSpec(self.topic, 2, {}), TopicSpec(self.to, 1, {})])
        rows = [RecordOut(self.topic, None, b"%d" % number) for number in range(20)]
        await write_rows(self.servers, rows, partition_of=lambda number, _: number // 10)

    def reading(self, ranges: Ranges) -> "DataFrame":
        records = (
            self.spark.read.format("kafka").options(**range_options(self.servers, ranges)).load()
        )
        rows = records.where("value IS NOT NULL").observe("made", F.count("value").alias("count"))
        now = _now_ms(self.spark).cast("string").cast("binary").alias("key")
        return rows.select(F.lit(self.to).alias("topic"), now, "value")

    def run(self, rows: "DataFrame") -> int:
        """Run the plan; return how many rows it counted."""
        (seen,) = written_by_spark(rows, sink_options(self.servers, name="kept"), ["made"])
        count: int = seen["count"]
        return count

    def written(self) -> list[tuple[bytes, int]]:
        """Return the values in the topic, and when each was made."""
        return [
            (each.value, int(each.key)) for each in asyncio.run(read_all(self.servers, self.to))
        ]


@pytest.fixture
def ground(kafka: Cluster, locked_spark: "SparkSession") -> Ground:
    return Ground(kafka.bootstrap_servers, locked_spark)


def test_the_same_plan_reads_what_it_is_told_next(ground: Ground) -> None:
    rows = ground.reading({ground.first: (0, 5), ground.other: (2, 3)})
    assert ground.run(rows) == 6
    plan = CachedPlan.of(rows)
    assert plan is not None
    seen = {value for value, _ in ground.written()}
    assert seen == {b"0", b"1", b"2", b"3", b"4", b"12"}
    for ranges, wanted in (
        ({ground.first: (5, 7), ground.other: (3, 5)}, {b"5", b"6", b"13", b"14"}),
        ({ground.first: (9, 10), ground.other: (0, 1)}, {b"9", b"10"}),
    ):
        before = ground.written()
        plan.read(ranges)
        assert ground.run(plan.rows) == len(wanted), "it counts again"
        after = ground.written()[len(before) :]
        assert {value for value, _ in after} == wanted
        assert min(at for _, at in after) > max(at for _, at in before), "its time advances"


def test_what_reads_something_else_too_is_not_kept(ground: Ground) -> None:
    reading = ground.reading({ground.first: (0, 5)})
    other = ground.spark.createDataFrame(
        [("t", b"k", b"x")], "topic string, key binary, value binary"
    )
    assert CachedPlan.of(other) is None
    assert CachedPlan.of(reading.union(other)) is None


def test_who_takes_a_plan_has_it_alone_and_the_oldest_goes_first(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.jobs.plan_cache._PLANS_MAX", 2)
    plans = PlanCache(ground.spark)
    plan = CachedPlan.of(ground.reading({ground.first: (0, 5)}))
    assert plan is not None
    assert plans.take("a") is None
    for key in ("a", "b", "c"):
        plans.give_back(key, plan)
    assert plans.take("a") is None
    assert plans.take("c") is plan
    assert plans.take("c") is None


def test_a_job_goes_on_with_the_plan_of_the_one_before(ground: Ground) -> None:
    stream = f"kept-{uuid.uuid4().hex[:8]}"
    streams = [stream_topic(name) for name in (stream, f"{stream}-out")]
    asyncio.run(_filled(ground.servers, streams))
    document = Pipeline.of(
        {
            "name": stream,
            "from": {"stream": stream},
            "schema": "n BIGINT",
            "steps": [{"where": "n % 2 = 0"}],
            "to": [{"stream": f"{stream}-out"}],
        }
    )
    plans = PlanCache(ground.spark)
    settings = PipelinesSettings(bootstrap_servers=ground.servers)
    where, kept = KafkaPartition(streams[0], 0), []
    for begin, end in ((0, 4), (4, 10)):
        task = Task(document, PipelinePortion("lane", {where: (begin, end)}))
        (made,) = run_job(plans, settings, [task])
        assert (made.passed, made.counts["filtered"]) == ((end - begin) // 2,) * 2
        plan = plans.take(task.plan_key)
        assert plan is not None
        kept.append(plan)
        plans.give_back(task.plan_key, plan)
    assert kept[0] is kept[1]
    out = asyncio.run(read_all(ground.servers, streams[1]))
    assert [json.loads(each.value or b"")["n"] for each in out] == [0, 2, 4, 6, 8]


async def _filled(servers: str, topics: list[str]) -> None:
    async with topic_admin(servers) as admin:
        await admin.create_missing([TopicSpec(topic, 1, {}) for topic in topics])
    await write_rows(servers, [RecordOut(topics[0], None, b'{"n": %d}' % n) for n in range(10)])
