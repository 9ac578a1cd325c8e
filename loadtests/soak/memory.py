"""Records the memory of processes, and reports which have grown since their first minutes."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

# A process's memory may grow for this long, until it has done all its kinds of work once.
SETTLED_S = 300.0
GROWTH_MAX = 0.10
# Seconds between two readings.
_EVERY_S = 5.0
# Part of the command line of Spark's Python workers and their daemons.
_WORKER = "daemon"

# By name: the numbers of the started process and all its descendants.
Families = Callable[[], Mapping[str, Sequence[int]]]


@dataclass
class ProcessMemory:
    """One process; its points are seconds since the soak began, and resident MB."""

    name: str
    pid: int
    points: list[tuple[float, float]] = field(default_factory=list)

    @property
    def lived_s(self) -> float:
        return self.points[-1][0] - self.points[0][0]

    @property
    def first_mb(self) -> float:
        """The maximum memory in its first minutes."""
        return max(mb for at_s, mb in self.points if at_s - self.points[0][0] <= SETTLED_S)

    @property
    def later_mb(self) -> float | None:
        """The maximum memory after its first minutes; None if the process ended earlier."""
        later = [mb for at_s, mb in self.points if at_s - self.points[0][0] > SETTLED_S]
        return max(later, default=None)

    @property
    def growth(self) -> float | None:
        return None if self.later_mb is None else self.later_mb / self.first_mb - 1

    @property
    def told(self) -> dict[str, Any]:
        """The process's entry in the soak's file."""
        return {
            "name": self.name,
            "pid": self.pid,
            "lived_s": round(self.lived_s, 1),
            "first_mb": self.first_mb,
            "later_mb": self.later_mb,
            "growth": self.growth,
            "has_grown": self.growth is not None and self.growth > GROWTH_MAX,
            "points": self.points,
        }


class Scale:
    """Records the memory of all processes every few seconds, in a separate thread."""

    def __init__(self, families: Families, now_s: Callable[[], float]) -> None:
        self._families, self._now_s = families, now_s
        self.weighed: dict[int, ProcessMemory] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scale", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.weigh()

    def weigh(self) -> None:
        at_s = round(self._now_s(), 1)
        for name, pids in self._families().items():
            for pid in pids:
                mb = _resident_mb(pid)
                if not mb:
                    continue
                one = self.weighed.get(pid) or ProcessMemory(f"{name}{_role(name, pid)}", pid)
                one.points.append((at_s, mb))
                self.weighed[pid] = one


def _resident_mb(pid: int) -> float:
    try:
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(match[1]) / 1_000 if match else 0.0


def _role(name: str, pid: int) -> str:
    """Return the role of a process within its service; empty for Kafka, which is only Java."""
    process = Path(f"/proc/{pid}")
    try:
        program, command = (process / "exe").resolve().name, (process / "cmdline").read_text()
    except OSError:
        return ""
    if program == "java":
        return "" if name.startswith("broker") else ", Java"
    return ", workers" if _WORKER in command or "pyspark" in command else ""
