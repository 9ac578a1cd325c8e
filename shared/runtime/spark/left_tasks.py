"""Finds tasks that still run although their job has ended, because they ignore being cut off.

Spark shows them nowhere: only its scheduler knows them, until they end. The scheduler's parts used
here are those of pyspark 4.2.0, to which we are pinned.
"""

from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class LeftTasks(NamedTuple):
    """The left tasks of one stage of a job."""

    stage: str
    # Their job's pool, whose name is the owner's.
    pool: str
    tasks: int


def left_tasks(session: SparkSession) -> list[LeftTasks]:
    """Return the tasks that still run, each in a place of its executor."""
    by_stage: dict[str, LeftTasks] = {}
    sets = _spark(session).taskScheduler().taskIdToTaskSetManager().elements()
    while sets.hasMoreElements():
        manager = sets.nextElement()
        # A zombie starts no more tasks, because its job has ended.
        if manager.isZombie():
            stage, properties = manager.taskSet().id(), manager.taskSet().properties()
            pool = properties.getProperty("spark.scheduler.pool") if properties else None
            by_stage[stage] = LeftTasks(stage, pool or "", manager.runningTasks())
    return [*by_stage.values()]


def replace_executors(session: SparkSession) -> None:
    """End the current executors, which get no more tasks, and start others."""
    spark = _spark(session)
    ids = spark.schedulerBackend().getExecutorIds()
    for index in range(ids.size()):
        spark.killAndReplaceExecutor(ids.apply(index))


def _spark(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001 - nothing else reaches it
