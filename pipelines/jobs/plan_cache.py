"""Keeps the plans of documents from job to job: making one takes longer than running it.

Plans of one document differ only in the ranges that they read. A plan that has run is complete,
down to its tasks, and can run again unchanged. The range of a task is two final fields, which are
set by reflection (ADR 0087).
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.jobs.tee import TeeEnd, tee
from shared.event.record import KafkaPartition, Ranges
from shared.runtime.spark.task_jobs import TaskJobs

# The JVM keeps each plan as well; a process seldom has more busy pipelines.
_PLANS_MAX = 100
_PART_OF_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceRDDPartition"
_FIELDS = ("fromOffset", "untilOffset")


@dataclass(frozen=True, slots=True, eq=False)
class CachedPlan:
    """A plan that was run, and the ranges that its tasks read."""

    rows: DataFrame
    _reads: Mapping[KafkaPartition, Any]

    @classmethod
    def of(cls, rows: DataFrame) -> "CachedPlan | None":
        """Return None if the plan also reads from elsewhere: then no other job can use it."""
        reads = {}
        for part in rows._jdf.queryExecution().toRdd().partitions():  # noqa: SLF001 - nothing else reaches them
            if part.getClass().getName() != _PART_OF_KAFKA:
                return None
            read = part.offsetRange()
            reads[KafkaPartition(read.topic(), read.partition())] = read
        return cls(rows, reads)

    def read(self, ranges: Ranges) -> None:
        """Set the ranges of the next run, and reset its counts."""
        for where, span in ranges.items():
            read = self._reads[where]
            for name, offset in zip(_FIELDS, span, strict=True):
                field = read.getClass().getDeclaredField(name)
                field.setAccessible(True)
                field.setLong(read, offset)
        self.rows._jdf.queryExecution().executedPlan().resetMetrics()  # noqa: SLF001 - as above


class PlanCache:
    """The plans of one session. A caller that takes a plan is its only user until it returns it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._plans: OrderedDict[Hashable, CachedPlan] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def tees(self) -> TaskJobs[TeeEnd]:
        """The runner of tees, which need no plan."""
        return TaskJobs(self.spark.sparkContext, tee)

    def take(self, key: Hashable) -> CachedPlan | None:
        with self._lock:
            return self._plans.pop(key, None)

    def give_back(self, key: Hashable, plan: CachedPlan) -> None:
        """Keep the plan for the next job that reads the same partitions by the same document."""
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > _PLANS_MAX:
                self._plans.popitem(last=False)
