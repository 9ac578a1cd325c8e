"""Counts events in steps of ten seconds, by name or by lateness, and forgets old steps."""

from collections import Counter
from dataclasses import dataclass, field

from observe.series.steps import STEP_MS
from shared.proof.log_buckets import LogBuckets


@dataclass(slots=True)
class StepCounts:
    _steps: dict[int, Counter[str]] = field(default_factory=dict)

    def at(self, at_ms: int) -> Counter[str]:
        """Return the counts of the step that contains this moment, for the caller to add to."""
        return self._steps.setdefault(at_ms // STEP_MS, Counter())

    def of(self, step: int) -> Counter[str]:
        """Return the counts of one step."""
        return self._steps.get(step, Counter())

    def read(self, *, now_ms: int, span_ms: int, kept_ms: int = 0) -> Counter[str]:
        """Return the counts of the last `span_ms`; drop counts older than both limits."""
        oldest = now_ms // STEP_MS - span_ms // STEP_MS
        forgotten = min(oldest, now_ms // STEP_MS - kept_ms // STEP_MS)
        self._steps = {step: counts for step, counts in self._steps.items() if step > forgotten}
        total: Counter[str] = Counter()
        for step, counts in self._steps.items():
            if step > oldest:
                total.update(counts)
        return total


@dataclass(slots=True)
class StepLags:
    """The lags of events in the newest steps."""

    _kept: int
    _steps: dict[int, LogBuckets] = field(default_factory=dict)

    def merge(self, lags: LogBuckets, *, at_ms: int) -> None:
        step = at_ms // STEP_MS
        if step not in self._steps:
            while len(self._steps) >= self._kept:
                del self._steps[min(self._steps)]
            self._steps[step] = LogBuckets()
        self._steps[step].merge(lags)

    def of(self, step: int) -> LogBuckets:
        return self._steps.get(step, LogBuckets())
