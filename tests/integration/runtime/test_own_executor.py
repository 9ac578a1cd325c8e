"""Tasks run in an executor beside the driver, and the driver outlives it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.judging.sandbox import OPTIONS
from pipelines.parts.blame import ExecutorEndedError, check_executor
from pipelines.parts.bounded import TookTooLongError, bounded
from shared.runtime.spark.left_tasks import LeftTasks, left_tasks, replace_executors
from shared.runtime.spark.own_executor import executors_of
from shared.runtime.spark.session import SparkSettings, map_arrow, running_spark
from tests.support.deploy.stack_fixtures import wait_until

pytestmark = pytest.mark.integration

# An array too long for any Java heap; and one too large for this heap.
TOO_LONG, TOO_MUCH = "repeat(repeat(id, 40000), 40000)", "split(repeat(id, 90000000), '')"
# Millions of small objects: Java would look for memory for half a minute.
TOO_MANY = "transform(sequence(1, 6000000), n -> named_struct('a', n, 'b', array(n, n)))"
# This runs for hours, and ignores interruptions.
ENDLESS = "concat(repeat('a', 5000), id) RLIKE 'a*a*a*a*a*a*b'"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, no_spark: None) -> Iterator[SparkSession]:
    del no_spark
    settings = SparkSettings(
        name="test",
        worker_daemon="pipelines.worker_daemon",
        folder=tmp_path_factory.mktemp("spark"),
        task_places=4,
        heap_mb=512,
        executor_mb=512,
        has_rows_in_jvm=True,
        more=OPTIONS,
    )
    with running_spark(settings) as session:
        yield session
        last = executor_of(session)
    # No executor is left when the session has ended.
    wait_until(lambda: not Path(f"/proc/{last}").exists(), what="the executor has ended")


def executor_of(spark: SparkSession) -> int:
    """Return the process id of the executor whose workers run Python tasks."""

    def seen(_: Any) -> Iterator[pa.RecordBatch]:
        # The worker is a copy of a daemon that the executor has started.
        (status,) = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2:]
        yield pa.RecordBatch.from_pydict({"pid": pa.array([int(status.split()[1])], pa.int64())})

    (row,) = map_arrow(spark.range(1).repartition(1), seen, "pid BIGINT").collect()
    pid: int = row["pid"]
    return pid


def driver_of(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm
    pid: int = jvm.java.lang.ProcessHandle.current().pid()
    return pid


def wait_for_another(spark: SparkSession, than: int) -> int:
    give_up_s = time.monotonic() + 60
    while True:
        try:
            if (pid := executor_of(spark)) != than:
                return pid
        except Py4JJavaError as error:
            with pytest.raises(ExecutorEndedError):
                check_executor(str(error))
        assert time.monotonic() < give_up_s, "there is no other executor"
        time.sleep(0.1)


def test_tasks_run_beside_the_driver_by_a_secret_that_no_command_line_has(
    spark: SparkSession,
) -> None:
    pid = executor_of(spark)
    assert pid != driver_of(spark)
    command = Path(f"/proc/{pid}/cmdline").read_text()
    assert "CoarseGrainedExecutorBackend" in command
    secret = spark.sparkContext.getConf().get("spark.authenticate.secret")
    assert secret is not None
    assert len(secret) == 64
    for process in (pid, driver_of(spark), os.getpid()):
        assert secret not in Path(f"/proc/{process}/cmdline").read_text()


@pytest.mark.parametrize("expression", [TOO_LONG, TOO_MUCH, TOO_MANY])
def test_what_takes_all_memory_ends_the_executor_and_the_next_job_is_well(
    spark: SparkSession, expression: str
) -> None:
    driver, pid = driver_of(spark), executor_of(spark)
    rows = spark.range(4).select(F.col("id").cast("string").alias("id"))
    with pytest.raises(Py4JJavaError) as failed:
        rows.select(F.max(F.octet_length(F.to_json(F.struct(F.expr(expression)))))).collect()
    with pytest.raises(ExecutorEndedError):
        check_executor(str(failed.value))
    assert wait_for_another(spark, pid)
    assert driver_of(spark) == driver


def test_an_executor_that_is_killed_is_followed_by_another(spark: SparkSession) -> None:
    driver, pid = driver_of(spark), executor_of(spark)
    (known,) = executors_of(spark.sparkContext)
    os.kill(pid, signal.SIGKILL)
    other = wait_for_another(spark, pid)
    (now,) = executors_of(spark.sparkContext)
    assert now != known
    assert other not in {pid, driver}
    assert driver_of(spark) == driver


def test_tasks_that_outlive_their_job_are_found_and_go_with_their_executor(
    spark: SparkSession,
) -> None:
    pid = executor_of(spark)
    assert left_tasks(spark) == []
    rows = spark.range(2).repartition(2).select(F.expr(ENDLESS))
    with pytest.raises(TookTooLongError), bounded(spark.sparkContext, "evil", 5):
        rows.collect()
    (left,) = left_tasks(spark)
    assert left == LeftTasks(left.stage, "evil", 2)
    # Other tasks get the remaining places.
    assert executor_of(spark) == pid
    assert left_tasks(spark) == [left]
    replace_executors(spark)
    # The ending executor gets no more tasks, so none fails with it.
    assert executor_of(spark) != pid
    wait_until(lambda: left_tasks(spark) == [], what="the tasks have ended with their executor")
