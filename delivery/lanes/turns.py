"""Says when the next job may start: few when there is little to do, and none beside too many."""

from collections import Counter
from dataclasses import dataclass, field

from delivery.lanes.units import JobKind

# At the same time. A job waits for its slowest destination, while the others of it are free: when
# many begin to hang at once, each of these may be held up for as long as a request can take.
_JOBS_MAX = {JobKind.SHARED: 10, JobKind.FOLLOWING: 10, JobKind.APART: 10, JobKind.ALONE: 8}
# A job costs Spark 20 ms of processor time, so few strands are worth waiting for: with many, more
# of them share one. Each job that still waits makes the next one wait a bit longer, too.
_LEAST_S, _STRAND_S, _MOST_S = 0.03, 0.002, 0.4
_RUNNING_S = 0.05


@dataclass(slots=True)
class Turns:
    """The jobs of one process, by kind."""

    running: Counter[JobKind] = field(default_factory=Counter)
    _next_s: dict[JobKind, float] = field(default_factory=dict)

    def may_start(self, kind: JobKind, *, now_s: float) -> bool:
        return self.running[kind] < _JOBS_MAX[kind] and now_s >= self._next_s.get(kind, 0.0)

    def start(self, kind: JobKind, count: int, *, strand_count: int, now_s: float) -> None:
        """So many jobs, of so many strands in all."""
        if kind is not JobKind.ALONE:
            wait_s = min(_MOST_S, _LEAST_S + _STRAND_S * strand_count)
            self._next_s[kind] = now_s + wait_s + _RUNNING_S * self.running[kind]
        self.running[kind] += count

    def end(self, kind: JobKind) -> None:
        self.running[kind] -= 1
