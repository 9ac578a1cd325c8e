"""Ends an executor that does hardly anything but look for memory.

A JVM whose heap is nearly full collects garbage again and again before it says that there is none
left: half a minute, or several on a busy machine, in which all who share it wait.
"""

import os
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import structlog

from shared.runtime.spark.processes import children, processor_s

log = structlog.get_logger()

# The largest share of an executor's processor time that its collectors may take, over this many
# looks.
_SHARE_MAX, _LOOKS = 0.7, 3
# An executor that ran for less than this between them is not judged.
_BUSY_S_MIN = 1.0
_LOOK_S = 1.0
# The threads in which the JVM's collectors work, by how their names begin.
_COLLECTORS = ("VM Thread", "GC Thread", "G1 ")


@dataclass(slots=True)
class _Executor:
    pid: int
    # The threads of its collectors; none while the JVM is still starting.
    collectors: list[Path] = field(default_factory=list)
    # How long all of its threads, and these, have run.
    seen: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_LOOKS + 1))

    def has_no_memory(self) -> bool:
        if not self.collectors:
            threads = Path(f"/proc/{self.pid}/task").iterdir()
            self.collectors = [it for it in threads if _named(it).startswith(_COLLECTORS)]
        collecting_s = sum(map(processor_s, self.collectors))
        self.seen.append((processor_s(Path(f"/proc/{self.pid}")), collecting_s))
        ran_s, collected_s = (
            now - before for now, before in zip(self.seen[-1], self.seen[0], strict=True)
        )
        is_told = len(self.seen) > _LOOKS and ran_s >= _BUSY_S_MIN
        return is_told and collected_s > _SHARE_MAX * ran_s


@contextmanager
def memory_watched(driver_pid: int) -> Iterator[None]:
    """The executors that this driver has started, for as long as the block lasts."""
    is_over = Event()
    thread = Thread(target=_watch, args=(driver_pid, is_over), name="memory-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _watch(driver_pid: int, is_over: Event) -> None:
    known: dict[int, _Executor] = {}
    while not is_over.wait(_LOOK_S):
        with suppress(OSError):
            known = {it: known.get(it) or _Executor(it) for it in children(driver_pid)}
        for executor in known.values():
            # It may have ended meanwhile.
            with suppress(OSError):
                if executor.has_no_memory():
                    os.kill(executor.pid, signal.SIGKILL)
                    log.warning("executor.without_memory", pid=executor.pid)
                    executor.seen.clear()


def _named(thread: Path) -> str:
    return (thread / "comm").read_text()
