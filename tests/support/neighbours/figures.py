"""Compares a neighbour's waits before and beside a worst tenant, and judges them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

# The promise: at most this many times the former wait, or this much more.
TIMES_MAX, MORE_MS_MAX = 1.5, 20.0
# How late a pipeline may be when the executor that works on it is ended.
EXECUTOR_ENDED_MS_MAX = 15_000.0
# With fewer samples a 99th percentile is just the slowest one.
SAMPLES_MIN = 100
_COLUMNS = ("what the worst tenant does", "the neighbour's", "before", "during", "most", "")


def quantile(samples: Sequence[float], part: float) -> float:
    """Return the smallest sample that at least this part of the samples does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Window:
    """How long each request or event of a span took, by probe."""

    took_ms: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Round:
    before: Window
    during: Window


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table: p99 before and during, in ms.

    Each p99 is the median of the rounds' p99s. If a round has few samples, it is the p99 of the
    samples of all rounds together.
    """

    worst: str
    probe: str
    before_ms: float
    during_ms: float
    # The longest time of any request during any round.
    most_ms: float
    # The least number of samples.
    samples: int
    has_ended_executors: bool

    @property
    def is_kept(self) -> bool:
        if self.samples < SAMPLES_MIN:
            return False
        if self.probe == "pipeline" and self.has_ended_executors:
            return self.most_ms <= EXECUTOR_ENDED_MS_MAX
        most = max(TIMES_MAX * self.before_ms, self.before_ms + MORE_MS_MAX)
        return self.during_ms <= most

    @property
    def says(self) -> str:
        if self.samples < SAMPLES_MIN:
            return f"only {self.samples} samples"
        return "" if self.is_kept else "TOO MUCH"

    def to_json(self) -> dict[str, Any]:
        return {
            "worst": self.worst,
            "probe": self.probe,
            "before_p99_ms": round(self.before_ms, 1),
            "during_p99_ms": round(self.during_ms, 1),
            "during_most_ms": round(self.most_ms, 1),
            "samples_min": self.samples,
            "has_ended_executors": self.has_ended_executors,
            "is_kept": self.is_kept,
        }


def verdicts(
    worst: str, rounds: Sequence[Round], *, has_ended_executors: bool = False
) -> list[Verdict]:
    """Return one verdict for each probe."""
    found = []
    for probe in rounds[0].before.took_ms:
        before, of_before = _p99([each.before for each in rounds], probe)
        during, of_during = _p99([each.during for each in rounds], probe)
        most = max(ms for each in rounds for ms in each.during.took_ms[probe])
        samples = min(of_before, of_during)
        found.append(Verdict(worst, probe, before, during, most, samples, has_ended_executors))
    return found


def _p99(windows: Sequence[Window], probe: str) -> tuple[float, int]:
    """Return the 99th percentile in ms, and the number of its samples."""
    least = min(len(window.took_ms[probe]) for window in windows)
    if least >= SAMPLES_MIN:
        return median(quantile(window.took_ms[probe], 0.99) for window in windows), least
    together = [ms for window in windows for ms in window.took_ms[probe]]
    return quantile(together, 0.99), len(together)


def table(lines: Sequence[Verdict]) -> str:
    """Format a table for people, with each worst tenant's description once."""
    rows, last = [_COLUMNS], ""
    for each in lines:
        name, last = ("" if each.worst == last else each.worst), each.worst
        told = (each.before_ms, each.during_ms, each.most_ms)
        before, during, most = (f"{ms:,.0f} ms" for ms in told)
        rows.append((name, each.probe, before, during, most, each.says))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if nth in {0, 1, 5} else cell.rjust(width)
        for nth, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
