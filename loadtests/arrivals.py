"""Makes the moments at which requests are due, from a plan that does not depend on answers.

A plan is a sequence of pieces in which the rate changes linearly. Arrivals are drawn at a rate of 1
and stretched over the plan, so every kind of plan is exact with every kind of spacing.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Self

Spacing = Literal["poisson", "even"]
# Returns a new random number of at least 0 and less than 1.
Roll = Callable[[], float]

# The linear pieces of a day differ from its curve by at most 0.3 % of the swing.
_PIECES = 48
# A spike has three parts of equal length.
_SPIKE_SHARE = 3
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_HELP = (
    "a plan is hold:RATE:TIME, ramp:FROM-TO:TIME, spike:RATE-PEAK:TIME or diurnal:LOW-HIGH:TIME,"
    " or several of them, separated by commas, such as ramp:0-500:30s,hold:500:5m"
)


class PlanError(ValueError):
    """The text is not a plan; the message says how to write one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A span of time in which the rate changes linearly from one value to another."""

    duration_s: float
    rate_from: float
    rate_to: float

    @property
    def count(self) -> float:
        """The expected number of arrivals in this piece."""
        return self.duration_s * (self.rate_from + self.rate_to) / 2

    def moment(self, count: float) -> float:
        """Return the time of the `count`-th expected arrival, in seconds from the beginning."""
        if count <= 0:
            return 0.0
        slope = (self.rate_to - self.rate_from) / self.duration_s
        root = math.sqrt(max(0.0, self.rate_from**2 + 2 * slope * count))
        return min(self.duration_s, 2 * count / (self.rate_from + root))


@dataclass(frozen=True, slots=True)
class RatePlan:
    """The planned arrivals per second at each moment."""

    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        for piece in self.pieces:
            values = (piece.duration_s, piece.rate_from, piece.rate_to)
            if not all(map(math.isfinite, values)) or min(values) < 0 or piece.duration_s == 0:
                raise PlanError(f"rates must be 0 or more, and times longer than 0: {_HELP}")

    @property
    def duration_s(self) -> float:
        return sum(piece.duration_s for piece in self.pieces)

    @property
    def count(self) -> float:
        """The expected number of arrivals in the whole plan."""
        return sum(piece.count for piece in self.pieces)

    def rate_at(self, second: float) -> float:
        """Return the arrivals per second at a moment; 0 before and after the plan."""
        for piece in self.pieces:
            if 0 <= second < piece.duration_s:
                share = second / piece.duration_s
                return piece.rate_from + share * (piece.rate_to - piece.rate_from)
            second -= piece.duration_s
        return 0.0

    def scaled(self, factor: float) -> Self:
        """Return the same plan with `factor` times the arrivals."""
        return type(self)(
            tuple(
                Piece(each.duration_s, each.rate_from * factor, each.rate_to * factor)
                for each in self.pieces
            )
        )

    def then(self, other: Self) -> Self:
        return type(self)(self.pieces + other.pieces)


def hold(rate: float, duration_s: float) -> RatePlan:
    return RatePlan((Piece(duration_s, rate, rate),))


def ramp(rate_from: float, rate_to: float, duration_s: float) -> RatePlan:
    return RatePlan((Piece(duration_s, rate_from, rate_to),))


def spike(rate: float, peak: float, duration_s: float) -> RatePlan:
    """Return a plan of three equal parts: the usual rate, a sudden peak, the usual rate."""
    part_s = duration_s / _SPIKE_SHARE
    return hold(rate, part_s).then(hold(peak, part_s)).then(hold(rate, part_s))


def diurnal(low: float, high: float, duration_s: float) -> RatePlan:
    """Return a day of `duration_s`, which begins at its lowest rate and peaks in the middle."""

    def rate(nth: int) -> float:
        return low + (high - low) * (1 - math.cos(2 * math.pi * nth / _PIECES)) / 2

    rates = [rate(number) for number in range(_PIECES + 1)]
    return RatePlan(tuple(Piece(duration_s / _PIECES, *both) for both in pairwise(rates)))


def trace(points: Iterable[tuple[float, float]]) -> RatePlan:
    """Return a recorded plan: each point is a second, and the rate from then on.

    The last point ends the plan; its rate is ignored.
    """
    ordered = sorted(points)
    if len(ordered) < 2:  # noqa: PLR2004 - a beginning and an end
        raise PlanError("a trace needs at least two lines: seconds,rate")
    return RatePlan(
        tuple(
            Piece(until_s - from_s, rate, rate)
            for (from_s, rate), (until_s, _) in pairwise(ordered)
            if until_s > from_s
        )
    )


def trace_lines(text: str) -> RatePlan:
    """Read a recorded trace: `seconds,rate` on each line, with or without a heading."""
    points: list[tuple[float, float]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        first, _, second = line.partition(",")
        try:
            points.append((float(first), float(second)))
        except ValueError:
            if number > 1 and line.strip():
                raise PlanError(
                    f"line {number} of the trace is not seconds,rate: {line!r}"
                ) from None
    return trace(points)


def plan_of(text: str) -> RatePlan:
    """Read a plan as it is typed; PlanError describes the form of a plan."""
    plans = [_stage_of(stage.strip()) for stage in text.split(",")]
    whole = plans[0]
    for plan in plans[1:]:
        whole = whole.then(plan)
    return whole


def seconds_of(text: str) -> float:
    """Read a time as it is typed: 90, 90s, 1.5m, 1h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise PlanError(f"{text!r} is not a time: write 90s, 5m or 1h")
    return float(match[1]) * _UNITS_S[match[2]]


def _stage_of(text: str) -> RatePlan:
    kind, *rest = text.split(":")
    try:
        if kind == "hold" and len(rest) == 2:  # noqa: PLR2004 - rate and time
            return hold(float(rest[0]), seconds_of(rest[1]))
        low, high = (float(rate) for rate in rest[0].split("-"))
        return {"ramp": ramp, "spike": spike, "diurnal": diurnal}[kind](
            low, high, seconds_of(rest[1])
        )
    except PlanError:
        raise
    except (ValueError, KeyError, IndexError):
        raise PlanError(f"{text!r} is not a part of a plan: {_HELP}") from None


def due_times(
    plan: RatePlan, spacing: Spacing, roll: Roll, *, worker: int = 0, workers: int = 1
) -> Iterator[float]:
    """Yield the times at which this worker's requests are due, in seconds from the beginning.

    Workers that share a plan need no coordination: a sum of Poisson processes is one too, and the
    even arrivals of N workers interleave evenly.
    """
    passed_s, passed_count = 0.0, 0.0
    counts = _counts(spacing, roll, first=(worker + 0.5) / workers)
    due = next(counts)
    for piece in plan.scaled(1 / workers).pieces:
        while due - passed_count < piece.count:
            yield passed_s + piece.moment(due - passed_count)
            due = next(counts)
        passed_s, passed_count = passed_s + piece.duration_s, passed_count + piece.count


def _counts(spacing: Spacing, roll: Roll, *, first: float) -> Iterator[float]:
    """Yield arrivals at a rate of 1."""
    if spacing == "even":
        while True:
            yield first
            first += 1.0
    total = 0.0
    while True:
        total -= math.log(1.0 - roll())
        yield total
