"""A session's later worker daemons are copies of its first: quickly there, and just as good."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shared.runtime.spark.session import SparkSettings, running_spark
from shared.runtime.spark.task_jobs import TaskJobs
from tests.support.deploy.stack_fixtures import wait_until

pytestmark = pytest.mark.integration


class TaskView(NamedTuple):
    """The process in which a task runs."""

    worker: int
    daemon: int
    name: str
    niceness: int


def look(_: Iterable[Any]) -> Iterator[TaskView]:
    yield TaskView(os.getpid(), os.getppid(), os.environ["HIFI_WORKER"], os.nice(0))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, no_spark: None) -> Iterator[TaskJobs[TaskView]]:
    del no_spark
    # Longer than the path of a socket may be.
    folder = tmp_path_factory.mktemp("spark") / ("a" * 100)
    settings = SparkSettings(
        "test", "delivery.lanes.worker_daemon", folder, task_places=4, heap_mb=512
    )
    with running_spark(settings) as session:
        found = TaskJobs(session.sparkContext, look)
        yield found
        left = [seen(found, name).daemon for name in ("shared-0", "any", "shared-1")]
    wait_until(lambda: not any(map(is_there, left)), what="all daemons have ended")


def seen(jobs: TaskJobs[TaskView], name: str) -> TaskView:
    (found,) = jobs.run([b""], pool="p", environment={"HIFI_WORKER": name})
    return found


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def private_kb(pid: int) -> int:
    said = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in said if line.startswith("Private_"))


def test_later_daemons_have_loaded_nothing_and_serve_by_their_own_name(
    jobs: TaskJobs[TaskView],
) -> None:
    first = seen(jobs, "shared-0")
    copies = [seen(jobs, name) for name in ("any", "shared-1")]
    own = os.nice(0)
    assert [it.name for it in copies] == ["any", "shared-1"]
    assert [it.niceness for it in (first, *copies)] == [own, own + 5, own]
    assert len({first.daemon, *(it.daemon for it in copies)}) == 3
    # Loaded modules are in memory once (50 MB).
    assert sum(private_kb(it.daemon) for it in (first, *copies)) < 20_000
    for it in copies:
        assert processor_s(it.daemon) < processor_s(first.daemon) / 4


def test_a_copy_that_ends_is_followed_by_another(jobs: TaskJobs[TaskView]) -> None:
    before = seen(jobs, "any")
    for pid in (before.daemon, before.worker):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_there(before.daemon), what="the daemon has ended")
    give_up_s = time.monotonic() + 60
    while True:
        try:
            again = seen(jobs, "any")
        except Exception:  # noqa: BLE001 - Spark notices by the next task
            assert time.monotonic() < give_up_s, "there is no other daemon"
        else:
            break
    assert (again.name, again.niceness) == ("any", os.nice(0) + 5)
    assert again.daemon != before.daemon


def test_if_nobody_makes_copies_any_more_the_next_one_loads_and_does(
    jobs: TaskJobs[TaskView],
) -> None:
    maker = parent_of(seen(jobs, "any").daemon)
    os.kill(maker, signal.SIGKILL)
    wait_until(lambda: not is_there(maker), what="the daemon has ended")
    next_one, copy = (seen(jobs, name) for name in ("shared-2", "shared-3"))
    assert parent_of(copy.daemon) not in {maker, parent_of(next_one.daemon)}
    assert processor_s(copy.daemon) < processor_s(next_one.daemon) / 4
