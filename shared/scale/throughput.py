"""Models of several instances' throughput: in proportion, by a table, or by the USL."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from shared.scale.scale_error import ScaleError

# A fit of four points once "predicted" that 32 workers would do less than 16, because it knows only
# the measured range. Predictions end at twice the largest measured number.
BEYOND_MAX = 2


class Throughput(Protocol):
    """A model of the throughput of instances."""

    def of(self, count: int) -> float:
        """Return the events/s of `count` instances."""
        ...


@dataclass(frozen=True, slots=True)
class Proportional:
    """Each instance adds the same: they share only Kafka."""

    rating: float

    def of(self, count: int) -> float:
        return self.rating * count


@dataclass(frozen=True, slots=True)
class Usl:
    """The universal scalability law: costs of contention (sigma) and of coherency (kappa)."""

    rating: float
    sigma: float
    kappa: float
    measured_max: int

    def of(self, count: float) -> float:
        _check_measured(count, self.measured_max)
        slowed = 1 + self.sigma * (count - 1) + self.kappa * count * (count - 1)
        return self.rating * count / slowed


class MeasuredThroughput:
    """Interpolates linearly in a table of counts and their throughput."""

    def __init__(self, points: Mapping[int, float]) -> None:
        self._points = [(0, 0.0), *sorted(points.items())]

    def of(self, count: int) -> float:
        _check_measured(count, self._points[-1][0])
        # Beyond the last point, continue the line between the last two points.
        spans = list(pairwise(self._points))
        place = bisect_right([upper[0] for _, upper in spans], count - 1)
        (lower, low), (upper, high) = spans[min(place, len(spans) - 1)]
        return low + (high - low) * (count - lower) / (upper - lower)


def _check_measured(count: float, measured_max: int) -> None:
    if count > BEYOND_MAX * measured_max:
        raise ScaleError(
            f"{count:g} instances are more than twice the largest measured number, {measured_max}:"
            " rate more of them, or plan with fewer."
        )
