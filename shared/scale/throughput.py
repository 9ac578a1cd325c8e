"""The events/s of several instances together: in proportion, by a table, or by USL."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from shared.scale.scale_error import ScaleError

# A fit of four points once "predicted" that 32 workers do less than 16 (it knows only the measured
# scale): beyond twice the largest measured, nobody knows.
BEYOND_MAX = 2


class Throughput(Protocol):
    """The throughput of `count` instances."""

    def of(self, count: int) -> float:
        """Events/s."""
        ...


@dataclass(frozen=True, slots=True)
class Proportional:
    """Each does the same: instances that share nothing but Kafka."""

    rating: float

    def of(self, count: int) -> float:
        return self.rating * count


@dataclass(frozen=True, slots=True)
class Usl:
    """The universal scalability law: the cost of waiting for a turn (sigma), for others (kappa)."""

    rating: float
    sigma: float
    kappa: float
    measured_max: int

    def of(self, count: float) -> float:
        _check_measured(count, self.measured_max)
        slowed = 1 + self.sigma * (count - 1) + self.kappa * count * (count - 1)
        return self.rating * count / slowed


class MeasuredThroughput:
    """Follows a table of counts and their throughput; between two of them in a straight line."""

    def __init__(self, points: Mapping[int, float]) -> None:
        self._points = [(0, 0.0), *sorted(points.items())]

    def of(self, count: int) -> float:
        _check_measured(count, self._points[-1][0])
        # Beyond the last point, as from the one before it to it.
        spans = list(pairwise(self._points))
        place = bisect_right([upper[0] for _, upper in spans], count - 1)
        (lower, low), (upper, high) = spans[min(place, len(spans) - 1)]
        return low + (high - low) * (count - lower) / (upper - lower)


def _check_measured(count: float, measured_max: int) -> None:
    if count > BEYOND_MAX * measured_max:
        raise ScaleError(
            f"{count:g} instances were never measured, nor half as many ({measured_max} were):"
            " rate more of them, or plan with fewer."
        )
