"""Measures how long this thread has run, and how long it has waited for a processor."""

import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

# Linux's file with the nanoseconds that a thread has run, and has been ready to run.
_SCHEDULED = Path("/proc/thread-self/schedstat")
_BYTES_MAX = 64


class ProcessorTime(NamedTuple):
    """Times since the thread began."""

    ran_s: float
    # The wait for a processor; always 0 if the system does not report it.
    delayed_s: float

    @property
    def busy_s(self) -> float:
        """The time during which the thread had work."""
        return self.ran_s + self.delayed_s

    def since(self, before: "ProcessorTime") -> "ProcessorTime":
        return ProcessorTime(self.ran_s - before.ran_s, self.delayed_s - before.delayed_s)


def processor_time() -> ProcessorTime:
    """Return the times of the calling thread so far."""
    delayed_s = 0.0
    # Ask for the thread's own file: a forked process would read its parent's times.
    if (file := _file_of(threading.get_native_id())) is not None:
        delayed_s = int(os.pread(file, _BYTES_MAX, 0).split()[1]) / 1e9
    return ProcessorTime(time.thread_time(), delayed_s)


@cache
def _file_of(_: int) -> int | None:
    """Return the file with the calling thread's times, which stays open until the process ends."""
    try:
        return os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
