"""Chooses the axes of charts over time: round values on the vertical one, round times below."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from observe.series.series import Past
from shared import wording

# The number of equal intervals between a chart's grid lines.
_INTERVALS = 4
# Round values for a quarter of the height, for counts and for time in seconds.
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_ROUND_S = (
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
)
# The distance between times on the axis, by range: every 3 min of 15 min, and so on.
_EVERY_MS = {"15m": 180_000, "1h": 600_000, "6h": 3_600_000, "24h": 14_400_000, "7d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Measure:
    """How to write the values of a chart, and the least height of its axis."""

    write: Callable[[float], str]
    is_time: bool = False
    least: float = 0.0


def _rate(per_s: float) -> str:
    """Three figures: 0.25, 12.5, 1,200."""
    if per_s and per_s < 9.995:  # noqa: PLR2004 - what rounds to ten needs no hundredths
        return f"{per_s:.2f}".rstrip("0").rstrip(".")
    return f"{per_s:,.1f}".removesuffix(".0") if per_s < 99.95 else f"{per_s:,.0f}"  # noqa: PLR2004


EVENTS_PER_S = Measure(lambda value: f"{_rate(value)}/s")
REQUESTS_PER_S = EVENTS_PER_S
EVENTS = Measure(lambda value: f"{value:,.0f}", least=4.0)
SECONDS = Measure(wording.duration, is_time=True)
PART = Measure(lambda value: f"{math.floor(1000 * value) / 10:g} %", least=1.0)


def ticks(highest: float, unit: Measure) -> list[float]:
    """Return evenly spaced round values from zero to the highest value or above."""
    highest = max(highest, unit.least)
    if highest <= 0:
        highest = 1.0
    interval = highest / _INTERVALS
    longer = [each for each in _ROUND_S if each >= interval]
    if unit.is_time and interval > _ROUND[-1] and longer:
        each = float(longer[0])
    else:
        scale = 10.0 ** math.floor(math.log10(interval))
        each = next(scale * part for part in _ROUND if scale * part >= interval * (1 - 1e-9))
    return [each * at for at in range(_INTERVALS + 1)]


def times(past: Past) -> list[tuple[float, str]]:
    """Return round times, each with its position as a part of the width."""
    every_ms = _EVERY_MS[past.shown.name]
    begin_ms = past.moments[0].at_ms
    whole_ms = past.shown.steps * past.shown.step_ms
    first_ms = -(-begin_ms // every_ms) * every_ms
    named = range(first_ms, begin_ms + whole_ms, every_ms)
    write = _day if past.shown.name == "7d" else wording.minute
    return [((at_ms - begin_ms) / whole_ms, write(at_ms)) for at_ms in named]


def moment_of(past: Past, at_ms: int) -> str:
    """Return when a step begins, as exactly as its length needs."""
    if past.shown.name in {"24h", "7d"}:
        return f"{_day(at_ms)} {wording.minute(at_ms)}"
    return wording.clock(at_ms)


def _day(at_ms: int) -> str:
    return time.strftime("%b %d", time.gmtime(at_ms / 1000))


def highest_of(values: Sequence[Sequence[float]]) -> float:
    return max((each for row in values for each in row if not math.isnan(each)), default=0.0)
