"""An executor is judged by its collectors' threads, however early it was first seen."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.runtime.spark.memory_watch import _BUSY_S_MIN, _LOOKS, ExecutorWatch, _Executor
from shared.runtime.spark.processes import processor_s

# A process whose threads get the names of a JVM's collector only after a moment.
_LATE = """
import ctypes, threading, time
def collect():
    ctypes.CDLL(None).prctl(15, b"VM Thread", 0, 0, 0)
    while True:
        pass
time.sleep(0.5)
threading.Thread(target=collect, daemon=True).start()
time.sleep(30)
"""


@contextmanager
def process_with(source: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", source]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_collectors_that_start_after_the_first_look_are_found() -> None:
    with process_with(_LATE) as process:
        executor, give_up_s = _Executor(process.pid), time.monotonic() + 60
        assert not executor.has_no_memory()
        assert executor.collectors == []
        while not executor.has_no_memory():
            # Wait by processor time, however little of it the process gets.
            until_s = processor_s(Path(f"/proc/{process.pid}")) + _BUSY_S_MIN / _LOOKS + 0.2
            while processor_s(Path(f"/proc/{process.pid}")) < until_s:
                assert time.monotonic() < give_up_s
                time.sleep(0.05)
        assert len(executor.collectors) == 1
    assert not _Executor(os.getpid()).has_no_memory()


def test_jobs_are_late_through_collectors_that_have_most_of_the_processor_time() -> None:
    watch = ExecutorWatch()
    assert watch.trouble_since(0) == "", "the watch has not looked yet"
    with process_with(_LATE) as process:
        give_up_s, at_ms = time.monotonic() + 60, 0
        watch.look([process.pid], at_ms=at_ms)
        while not watch.trouble_since(0):
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
            watch.look([process.pid], at_ms=(at_ms := at_ms + 1))
        assert "garbage most of the time" in watch.trouble_since(0)
        # A job that began later has not seen that trouble; a process that hardly runs is not busy.
        assert watch.trouble_since(at_ms) == ""
        watch.look([process.pid], at_ms=10_000_000)
        assert watch.trouble_since(0) == ""


def test_an_executor_that_has_ended_is_counted_and_another_process_is_not() -> None:
    watch = ExecutorWatch()
    with process_with(_LATE) as process, process_with("import time; time.sleep(30)") as other:
        give_up_s = time.monotonic() + 60
        while not watch._known or not watch._known[process.pid].collectors:
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
            watch.look([process.pid, other.pid], at_ms=1_000)
        assert watch.ended == 0
    watch.look([], at_ms=2_000)
    assert watch.ended == 1
    assert watch.trouble_since(1_500) == "an executor has ended meanwhile"
    assert watch.trouble_since(2_000) == ""
