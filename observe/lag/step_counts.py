"""Counts what came in each ten seconds, by name, and forgets what is old."""

from collections import Counter
from dataclasses import dataclass, field

STEP_MS = 10_000


@dataclass(slots=True)
class StepCounts:
    _steps: dict[int, Counter[str]] = field(default_factory=dict)

    def at(self, at_ms: int) -> Counter[str]:
        """The counts of the step in which this moment is, to be added to."""
        return self._steps.setdefault(at_ms // STEP_MS, Counter())

    def read(self, *, now_ms: int, span_ms: int, kept_ms: int = 0) -> Counter[str]:
        """All of the last `span_ms`; what is older than that and than `kept_ms` is forgotten."""
        oldest = now_ms // STEP_MS - span_ms // STEP_MS
        forgotten = min(oldest, now_ms // STEP_MS - kept_ms // STEP_MS)
        self._steps = {step: counts for step, counts in self._steps.items() if step > forgotten}
        total: Counter[str] = Counter()
        for step, counts in self._steps.items():
            if step > oldest:
                total.update(counts)
        return total
