"""Fits the universal scalability law (shared/scale/throughput.py) to ratings, with an interval.

X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1)). N / X is linear in the unknowns, which
gives a first guess. From there the Gauss-Newton method finds the least squares of the throughput.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.scale.throughput import BEYOND_MAX, Usl

Point = tuple[float, float]
Row = tuple[float, float, float]

# Three unknowns, and one more point to check the fit.
POINTS_MIN = 4
_ROUNDS = 50
_RESAMPLES = 200
_TAIL = 0.025
# Points of the drawn curve.
_CURVE = 40


class FitError(ValueError):
    """The law cannot be fitted; the text says why."""


@dataclass(frozen=True, slots=True)
class Fit:
    law: Usl
    # Intervals of 95 % confidence.
    sigma: tuple[float, float]
    kappa: tuple[float, float]
    # Numbers of workers, each with the lower and upper bound of its throughput.
    throughput: tuple[tuple[float, float, float], ...]


def fit(points: Sequence[Point], *, by: Literal["share", "absolute"] = "share") -> Usl:
    """Fit the law to points; `by`: errors are relative to the measured rates, or absolute."""
    if len({workers for workers, _ in points}) < POINTS_MIN:
        raise FitError(f"a fit needs at least {POINTS_MIN} different numbers of workers")
    weights = [1 / rate if by == "share" else 1.0 for _, rate in points]
    # Scaling is never better than linear, so negative parameters are set to 0.
    rest = _fitted(points, weights, (0, 1, 2))
    if min(rest) < 0:
        fits = (_fitted(points, weights, kept) for kept in ((0, 2), (0, 1), (0,)))
        allowed = [row for row in fits if min(row) >= 0]
        rest = min(allowed, key=lambda row: _squares(points, weights, row))
    largest = round(max(workers for workers, _ in points))
    return Usl(1 / rest[0], rest[1] / rest[0], rest[2] / rest[0], largest)


def fit_between(points: Sequence[Point], roll: Callable[[], float]) -> Fit:
    """Return the law and its intervals, from refits with resampled errors."""
    law = fit(points)
    shares = [rate / law.of(workers) for workers, rate in points]
    # Three fitted unknowns absorb a part of the errors, so the remaining errors are scaled up.
    wider = math.sqrt(len(points) / max(1, len(points) - 3))

    def again() -> Usl:
        drawn = [
            (
                workers,
                law.of(workers) * max(0.01, 1 + (shares[int(roll() * len(shares))] - 1) * wider),
            )
            for workers, _ in points
        ]
        return fit(drawn)

    laws = [again() for _ in range(_RESAMPLES)]
    counts = [1 + step * (BEYOND_MAX * law.measured_max - 1) / _CURVE for step in range(_CURVE + 1)]
    curve = tuple((count, *_middle([each.of(count) for each in laws])) for count in counts)
    return Fit(
        law, _middle([each.sigma for each in laws]), _middle([each.kappa for each in laws]), curve
    )


def _middle(values: list[float]) -> tuple[float, float]:
    """Return the ends of the interval without the tails."""
    ordered = sorted(values)
    cut = int(_TAIL * len(ordered))
    return ordered[cut], ordered[-1 - cut]


def _row(workers: float) -> Row:
    return (1.0, workers - 1, workers * (workers - 1))


def _fitted(points: Sequence[Point], weights: Sequence[float], kept: Sequence[int]) -> Row:
    """Return the least-squares solution for the `kept` unknowns; the others are 0."""
    rows = [_row(workers) for workers, _ in points]
    # N / X of each point, weighted like its throughput.
    sought = [workers / rate for workers, rate in points]
    scales = [
        weight * rate**2 / workers for (workers, rate), weight in zip(points, weights, strict=True)
    ]
    guess = _solved(rows, sought, scales, kept)
    best, best_squares = guess, _squares(points, weights, guess)
    for _ in range(_ROUNDS):
        denominators = [_dot(row, guess) for row in rows]
        if min(denominators) <= 0:
            break
        scales = [
            weight * workers / below**2
            for (workers, _), weight, below in zip(points, weights, denominators, strict=True)
        ]
        # The targets, with throughput linearised around the last guess.
        sought = [
            below + (workers / below - rate) * below**2 / workers
            for (workers, rate), below in zip(points, denominators, strict=True)
        ]
        guess = _solved(rows, sought, scales, kept)
        squares = _squares(points, weights, guess)
        if not squares < best_squares * (1 - 1e-9):
            break
        best, best_squares = guess, squares
    return best


def _squares(points: Sequence[Point], weights: Sequence[float], found: Row) -> float:
    total = 0.0
    for (workers, rate), weight in zip(points, weights, strict=True):
        below = _dot(_row(workers), found)
        total += math.inf if below <= 0 else (weight * (rate - workers / below)) ** 2
    return total


def _dot(row: Row, found: Row) -> float:
    return sum(one * other for one, other in zip(row, found, strict=True))


def _solved(
    rows: Sequence[Row], sought: Sequence[float], scales: Sequence[float], kept: Sequence[int]
) -> Row:
    """Solve weighted linear least squares by the normal equations, which are at most 3 by 3."""
    # Scale the columns to similar size: N (N - 1) is some ten thousand times the first.
    sizes = [max(abs(row[column]) for row in rows) for column in kept]
    matrix = [
        [
            sum(
                scale**2 * row[one] * row[other] / (sizes[i] * sizes[j])
                for row, scale in zip(rows, scales, strict=True)
            )
            for j, other in enumerate(kept)
        ]
        + [
            sum(
                scale**2 * row[one] * value / sizes[i]
                for row, value, scale in zip(rows, sought, scales, strict=True)
            )
        ]
        for i, one in enumerate(kept)
    ]
    values = [value / size for value, size in zip(_eliminated(matrix), sizes, strict=True)]
    whole = dict(zip(kept, values, strict=True))
    return (whole.get(0, 0.0), whole.get(1, 0.0), whole.get(2, 0.0))


def _eliminated(matrix: list[list[float]]) -> list[float]:
    size = len(matrix)
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(matrix[row][at]))
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        for row in range(size):
            if row != at:
                factor = matrix[row][at] / matrix[at][at]
                matrix[row] = [
                    one - factor * other for one, other in zip(matrix[row], matrix[at], strict=True)
                ]
    return [matrix[at][-1] / matrix[at][at] for at in range(size)]
