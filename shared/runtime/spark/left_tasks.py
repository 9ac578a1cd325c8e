"""Finds tasks that go on although their job has ended, as they do not listen when cut off.

Spark tells of them nowhere: only its scheduler knows them, until they end. These parts of it are
those of pyspark 4.2.0, to which we are pinned.
"""

from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class LeftTasks(NamedTuple):
    """Those of one stage of a job."""

    stage: str
    # That of their job: it says whose they are.
    pool: str
    tasks: int


def left_tasks(session: SparkSession) -> list[LeftTasks]:
    """Those that still run, each in a place of its executor."""
    found: dict[str, LeftTasks] = {}
    sets = _spark(session).taskScheduler().taskIdToTaskSetManager().elements()
    while sets.hasMoreElements():
        manager = sets.nextElement()
        # It starts none any more: its job has ended.
        if manager.isZombie():
            stage, properties = manager.taskSet().id(), manager.taskSet().properties()
            pool = properties.getProperty("spark.scheduler.pool") if properties else None
            found[stage] = LeftTasks(stage, pool or "", manager.runningTasks())
    return [*found.values()]


def replace_executors(session: SparkSession) -> None:
    """End those there are; no more tasks are given to them, and others are started."""
    spark = _spark(session)
    ids = spark.schedulerBackend().getExecutorIds()
    for nth in range(ids.size()):
        spark.killAndReplaceExecutor(ids.apply(nth))


def _spark(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001 - nothing else reaches it
