"""Many small jobs of a Python function on a Spark of Hifi."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PythonException

from shared.runtime.spark.session import SparkSettings, running_spark
from shared.runtime.spark.task_jobs import TaskJobs
from shared.runtime.spark.worker_daemon import LANES_BYTES_MAX

_MANY = 1_000_000


def told(tasks: Iterable[bytes | int]) -> Iterator[tuple[int, str, int]]:
    """Report which process of which environment had how many bytes to work on."""
    for task in tasks:
        if isinstance(task, int) and task > _MANY:
            bytearray(task)
        if isinstance(task, int):
            raise TypeError(f"there is no task {task}")
        yield os.getpid(), os.environ.get("HIFI_WORKER", ""), len(task)


@pytest.fixture(scope="module")
def jobs(
    tmp_path_factory: pytest.TempPathFactory, no_spark: None
) -> Iterator[TaskJobs[tuple[int, str, int]]]:
    del no_spark
    folder = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(
        "test", "delivery.lanes.worker_daemon", folder, task_places=8, heap_mb=512
    )
    with running_spark(settings) as spark:
        yield TaskJobs(spark.sparkContext, told)


def test_each_task_has_what_it_is_to_do_whatever_runs_beside_it(
    jobs: TaskJobs[tuple[int, str, int]],
) -> None:
    """Each thread that runs a job has the job's data: two must not read each other's."""
    asked = [[b"x" * (50_000 * job + task) for task in range(job % 4 + 1)] for job in range(12)]
    with ThreadPoolExecutor(6) as threads:
        runs = [threads.submit(jobs.run, tasks, pool="p") for tasks in asked]
        found = [[size for _, _, size in run.result()] for run in runs]
    assert found == [[len(task) for task in tasks] for tasks in asked]


def test_jobs_of_an_environment_have_processes_of_their_own_which_are_used_again(
    jobs: TaskJobs[tuple[int, str, int]],
) -> None:
    names = ["a", "b", "a", "b", "a"]
    found = [jobs.run([b"x"], pool="p", environment={"HIFI_WORKER": name}) for name in names]
    (ends,) = zip(*found, strict=True)
    assert [name for _, name, _ in ends] == names
    assert len({pid for pid, _, _ in ends}) == len({*names})


def test_what_goes_wrong_in_a_task_is_said_to_who_asked_and_to_nobody_else(
    jobs: TaskJobs[tuple[int, str, int]],
) -> None:
    with ThreadPoolExecutor(2) as threads:
        bad, good = (threads.submit(jobs.run, [task], pool="p") for task in (3, b"xyz"))
        with pytest.raises(PythonException, match="there is no task 3"):
            bad.result()
        assert [size for _, _, size in good.result()] == [3]
    assert [size for _, _, size in jobs.run([b"xy"], pool="p")] == [2]


def test_what_was_made_for_executors_that_are_gone_is_forgotten(
    jobs: TaskJobs[tuple[int, str, int]],
) -> None:
    for executor in ("1", "2"):
        jobs.keep_for(["1", "2"])
        jobs._template({}, executor, 1)
    first = jobs._templates.keys() - {("[]", "1", 1)}
    jobs.keep_for(["2", "3"])
    assert jobs._templates.keys() == first
    # Templates without an executor stay, and those of the remaining executor are used again.
    assert jobs._template({}, "2", 1) is jobs._templates["[]", "2", 1]
    assert [size for _, _, size in jobs.run([b"xy"], pool="p")] == [2]


def test_spark_keeps_nothing_of_jobs_that_are_done(jobs: TaskJobs[tuple[int, str, int]]) -> None:
    jobs.run([b"x"], pool="p")
    kept = jobs.context._jsc.sc().statusStore().jobsList(None)
    assert kept.isEmpty()


def test_a_task_that_wants_all_memory_fails_and_takes_none_from_others(
    jobs: TaskJobs[tuple[int, str, int]],
) -> None:
    with pytest.raises(PythonException, match="MemoryError"):
        jobs.run([2 * LANES_BYTES_MAX], pool="p")
    assert [size for _, _, size in jobs.run([b"xyz"], pool="p")] == [3]
