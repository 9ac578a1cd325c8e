"""Keeps the plans of documents from job to job: making one takes longer than running it.

All that differs is where it reads. Spark's Kafka source looks for that when a plan is run, in two
fields of its relation that are meant to stay as they are: they are set by reflection (ADR 0082).
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.jobs.tee import TeeEnd, tee
from shared.event.record import Ranges
from shared.runtime.kafka.spark_options import starting_offsets
from shared.runtime.spark.task_jobs import TaskJobs

# Of 40 kB each in the JVM; a process seldom has more pipelines that are busy.
_PLANS_MAX = 200
_RELATION = "org.apache.spark.sql.kafka010.KafkaRelation"
_FIELDS = ("startingOffsets", "endingOffsets")


@dataclass(frozen=True, slots=True, eq=False)
class KeptPlan:
    """A plan that Spark has analysed, and what it reads by."""

    rows: DataFrame
    relation: Any

    @classmethod
    def of(cls, rows: DataFrame) -> "KeptPlan | None":
        """None if it reads by something else as well: then it is of no use for another job."""
        leaves = rows._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - nothing else reaches them
        only = leaves.apply(0)
        if leaves.length() != 1 or only.getClass().getSimpleName() != "LogicalRelation":
            return None
        relation = only.relation()
        return cls(rows, relation) if relation.getClass().getName() == _RELATION else None

    def read(self, ranges: Ranges) -> None:
        """Whoever runs it next reads these."""
        jvm: Any = self.rows.sparkSession._jvm  # noqa: SLF001 - as above
        kafka = jvm.org.apache.spark.sql.kafka010
        for name, end in zip(_FIELDS, (0, 1), strict=True):
            offsets = starting_offsets({where: span[end] for where, span in ranges.items()})
            limit = kafka.SpecificOffsetRangeLimit(kafka.JsonUtils.partitionOffsets(offsets))
            field = self.relation.getClass().getDeclaredField(name)
            field.setAccessible(True)
            field.set(self.relation, limit)


class KeptPlans:
    """Of one session. Whoever takes one has it for himself until he gives it back."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._plans: OrderedDict[Hashable, KeptPlan] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def tees(self) -> TaskJobs[TeeEnd]:
        """Of what needs no plan."""
        return TaskJobs(self.spark.sparkContext, tee)

    def take(self, key: Hashable) -> KeptPlan | None:
        with self._lock:
            return self._plans.pop(key, None)

    def give_back(self, key: Hashable, plan: KeptPlan) -> None:
        """The next that reads the same partitions by the same document goes on with it."""
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > _PLANS_MAX:
                self._plans.popitem(last=False)
