"""Measures how long this thread had a processor, and how long it had to wait for one."""

import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

# Linux says here, in nanoseconds, for how long a thread has run, and was ready to.
_SCHEDULED = Path("/proc/thread-self/schedstat")
_BYTES_MAX = 64


class ProcessorTime(NamedTuple):
    """Times since the thread began."""

    ran_s: float
    # It could have run, and others did. Always 0 where the system does not say.
    delayed_s: float

    @property
    def busy_s(self) -> float:
        """How long it had something to do."""
        return self.ran_s + self.delayed_s

    def since(self, before: "ProcessorTime") -> "ProcessorTime":
        return ProcessorTime(self.ran_s - before.ran_s, self.delayed_s - before.delayed_s)


def processor_time() -> ProcessorTime:
    """The times of the calling thread so far."""
    delayed_s = 0.0
    # Ask for the thread's own file: a forked process would read its parent's times.
    if (file := _file_of(threading.get_native_id())) is not None:
        delayed_s = int(os.pread(file, _BYTES_MAX, 0).split()[1]) / 1e9
    return ProcessorTime(time.thread_time(), delayed_s)


@cache
def _file_of(_: int) -> int | None:
    """The file with the calling thread's times, open for as long as the process lives."""
    try:
        return os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
