"""A plan that is kept reads where it is told to, and nothing that reads otherwise is kept."""

from typing import TYPE_CHECKING

import pytest

from pipelines.jobs.kept_plans import KeptPlan, KeptPlans
from shared.event.record import KafkaPartition
from shared.runtime.kafka.spark_options import range_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

FIRST, OTHER = KafkaPartition("hifi.stream.s", 0), KafkaPartition("hifi.stream.s", 1)


def reading(spark: "SparkSession") -> "DataFrame":
    """Of a Kafka that nobody asks before it is run."""
    options = range_options("127.0.0.1:9", {FIRST: (0, 5), OTHER: (2, 3)})
    records = spark.read.format("kafka").options(**options).load()
    return records.select("value").where("value IS NOT NULL")


def offsets(plan: KeptPlan) -> list[str]:
    found = []
    for name in ("startingOffsets", "endingOffsets"):
        field = plan.relation.getClass().getDeclaredField(name)
        field.setAccessible(True)
        found.append(str(field.get(plan.relation).toString()))
    return found


def test_the_same_plan_reads_what_it_is_told_next(locked_spark: "SparkSession") -> None:
    plan = KeptPlan.of(reading(locked_spark))
    assert plan is not None
    plan.read({FIRST: (70, 80), OTHER: (7, 9)})
    begins, ends = offsets(plan)
    assert "hifi.stream.s-0 -> 70" in begins
    assert "hifi.stream.s-1 -> 7" in begins
    assert "hifi.stream.s-0 -> 80" in ends
    assert "hifi.stream.s-1 -> 9" in ends


def test_what_reads_something_else_too_is_not_kept(locked_spark: "SparkSession") -> None:
    other = locked_spark.createDataFrame([(b"x",)], "value binary")
    assert KeptPlan.of(other) is None
    assert KeptPlan.of(reading(locked_spark).union(other)) is None


def test_who_takes_a_plan_has_it_alone_and_the_oldest_goes_first(
    locked_spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.jobs.kept_plans._PLANS_MAX", 2)
    plans = KeptPlans(locked_spark)
    plan = KeptPlan.of(reading(locked_spark))
    assert plan is not None
    assert plans.take("a") is None
    for key in ("a", "b", "c"):
        plans.give_back(key, plan)
    assert plans.take("a") is None
    assert plans.take("c") is plan
    assert plans.take("c") is None
