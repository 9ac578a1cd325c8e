"""The processor time that a thread has had, according to this machine."""

import subprocess
import sys
import time
from os import cpu_count
from pathlib import Path

import pytest

from shared.runtime.spark import processor_time as module
from shared.runtime.spark.processor_time import ProcessorTime, processor_time

BUSY_S = 0.05
_TELLS = Path("/proc/thread-self/schedstat").exists()


def run_for(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def test_who_computes_has_had_a_processor_and_who_sleeps_has_not() -> None:
    before = processor_time()
    run_for(BUSY_S)
    had = processor_time().since(before)
    assert had.ran_s >= BUSY_S
    assert had.busy_s == had.ran_s + had.delayed_s
    before = processor_time()
    time.sleep(BUSY_S)
    assert processor_time().since(before).ran_s < BUSY_S / 2


@pytest.mark.skipif(not _TELLS, reason="only Linux counts how long a thread was ready to run")
def test_who_could_run_and_others_do_is_delayed() -> None:
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (cpu_count() or 1))
    ]
    try:
        before, end_s = processor_time(), time.monotonic() + 30
        while processor_time().since(before).delayed_s < BUSY_S and time.monotonic() < end_s:
            run_for(BUSY_S)
        assert processor_time().since(before).delayed_s >= BUSY_S
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_where_nobody_says_so_nothing_is_delayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_SCHEDULED", tmp_path / "none")
    module._file_of.cache_clear()
    try:
        assert processor_time().delayed_s == 0.0
    finally:
        module._file_of.cache_clear()


def test_times_are_told_apart() -> None:
    assert ProcessorTime(3.0, 2.0).since(ProcessorTime(1.0, 0.5)) == (2.0, 1.5)
