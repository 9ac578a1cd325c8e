"""Kills an executor that spends most of its time collecting garbage, and counts ended executors.

A JVM with a nearly full heap collects garbage repeatedly before it reports that no memory is left.
For 30 s, or for minutes on a busy machine, all jobs in it wait.
"""

import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import structlog

from shared.runtime.clock import now_ms
from shared.runtime.spark.processes import children, processor_s

log = structlog.get_logger()

# The largest share of an executor's processor time for its collectors, over this many checks.
_SHARE_MAX, _LOOKS = 0.7, 3
# An executor that ran for less than this during these checks is not judged.
_BUSY_S_MIN = 1.0
_LOOK_S = 1.0
# Keep the results of this many checks: as long as the longest jobs take.
_KNOWN_LOOKS = 600
# A job is late because of the collectors if they had more than this share of its executor's
# processor time; an executor with less than the second share of a processor was idle.
_COLLECTED_MOST, _BUSY_MIN = 0.5, 0.1
# The beginnings of the names of the JVM's collector threads.
_COLLECTORS = ("VM Thread", "GC Thread", "G1 ")


@dataclass(slots=True)
class _Executor:
    pid: int
    # Its collector threads; none while the JVM is still starting.
    collectors: list[Path] = field(default_factory=list)
    # The run times of all its threads, and of the collectors.
    seen: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_LOOKS + 1))
    last: tuple[float, float] = (0.0, 0.0)

    def has_no_memory(self) -> bool:
        if not self.collectors:
            threads = Path(f"/proc/{self.pid}/task").iterdir()
            self.collectors = [
                thread for thread in threads if _named(thread).startswith(_COLLECTORS)
            ]
        collecting_s = sum(map(processor_s, self.collectors))
        self.last = processor_s(Path(f"/proc/{self.pid}")), collecting_s
        self.seen.append(self.last)
        ran_s, collected_s = (
            now - before for now, before in zip(self.seen[-1], self.seen[0], strict=True)
        )
        is_told = len(self.seen) > _LOOKS and ran_s >= _BUSY_S_MIN
        return is_told and collected_s > _SHARE_MAX * ran_s


class _Times(NamedTuple):
    at_ms: int
    # The number of ended executors.
    ended: int
    # The run times of the present executors' threads, and of their collectors' threads.
    ran_s: float
    collected_s: float


class ExecutorWatch:
    """Looks at the executors of a driver once a second."""

    def __init__(self) -> None:
        self.ended = 0
        self._known: dict[int, _Executor] = {}
        self._looks: deque[_Times] = deque(maxlen=_KNOWN_LOOKS)

    @contextmanager
    def watching(self, driver_pid: int) -> Iterator[None]:
        """Watch the executors of this driver during the block."""
        is_over = Event()

        def watch() -> None:
            while not is_over.wait(_LOOK_S):
                with suppress(OSError):
                    self.look([*children(driver_pid)], at_ms=now_ms())

        thread = Thread(target=watch, name="memory-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def look(self, there: Sequence[int], *, at_ms: int) -> None:
        """Check the existing executors once."""
        gone = self._known.keys() - there
        self.ended += sum(bool(self._known[pid].collectors) for pid in gone)
        self._known = {pid: self._known.get(pid) or _Executor(pid) for pid in there}
        for executor in self._known.values():
            # It may have ended meanwhile.
            with suppress(OSError):
                if executor.has_no_memory():
                    os.kill(executor.pid, signal.SIGKILL)
                    log.warning("executor.without_memory", pid=executor.pid)
                    executor.seen.clear()
        ran = [executor.last for executor in self._known.values()]
        ran_s, collected_s = (sum(times) for times in zip((0.0, 0.0), *ran, strict=True))
        self._looks.append(_Times(at_ms, self.ended, ran_s, collected_s))

    def trouble_since(self, at_ms: int) -> str:
        """Return what has delayed all jobs since a time; empty if nothing has."""
        looks = [*self._looks]
        before = max(
            (look for look in looks if look.at_ms <= at_ms), default=looks[0] if looks else None
        )
        if before is None:
            return ""
        now = looks[-1]
        if now.ended > before.ended:
            return "an executor has ended meanwhile"
        ran_s, collected_s = now.ran_s - before.ran_s, now.collected_s - before.collected_s
        is_busy = ran_s > _BUSY_MIN * (now.at_ms - before.at_ms) / 1000
        if is_busy and collected_s > _COLLECTED_MOST * ran_s:
            return "its executor has collected garbage most of the time"
        return ""


def _named(thread: Path) -> str:
    return (thread / "comm").read_text()
