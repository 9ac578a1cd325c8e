"""Models a day of traffic: the events that arrive in each second, in exact whole counts."""

import csv
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import TypeAlias

from shared.scale.scale_error import ScaleError

# Entry t is the number of events before second t; there is one more entry than seconds.
Curve: TypeAlias = Sequence[int]

DAY_S = 86_400
_HOUR_S = 3_600
# A typical day of people: 50 % more traffic in the evening, 50 % less before dawn.
_SWING = 0.5
_PEAK_AT_S = 20 * _HOUR_S
# The spikes of a spiky day: the hour, the factor, and the length in seconds.
_SPIKES = ((2.0, 3.0, 120), (7.5, 2.0, 900), (12.0, 5.0, 60), (16.0, 4.0, 300), (20.5, 2.0, 1_800))
# A crowd after a push message or a goal comes within a minute, and halves every 15 minutes.
_CROWD_AT_S = 19 * _HOUR_S
_CROWD_FACTOR = 8.0
_CROWD_RISE_S = 60
_CROWD_HALF_LIFE_S = 900.0
# The last rate holds as long as the rate before it, so two rows are necessary.
_POINTS_MIN = 2
# A week of seconds; a longer trace is usually a mistake in the first column.
TRACE_S_MAX = 7 * DAY_S


def curve_of(rates: Iterable[float]) -> Curve:
    """Convert rates to counts of whole events; fractions are carried over, so none is lost."""
    return array("q", [0, *map(int, accumulate(rates))])


def steady(at_s: int) -> float:
    """Return the same factor all day."""
    del at_s
    return 1.0


def diurnal(at_s: int) -> float:
    """Return a factor that is high in the evening and low before dawn; 1 on average."""
    return 1 + _SWING * math.cos(2 * math.pi * (at_s - _PEAK_AT_S) / DAY_S)


def spiky(at_s: int) -> float:
    """Return the factor of a diurnal day with five spikes: 2 to 5 times, 1 to 30 minutes each."""
    hour = at_s % DAY_S / _HOUR_S
    height = max(
        (factor for at, factor, hold_s in _SPIKES if at <= hour < at + hold_s / _HOUR_S),
        default=1.0,
    )
    return height * diurnal(at_s)


def flash_crowd(at_s: int) -> float:
    """Return the factor of a diurnal day with a crowd that comes at once and leaves slowly."""
    since_s = at_s % DAY_S - _CROWD_AT_S
    if since_s < 0:
        more = 0.0
    elif since_s < _CROWD_RISE_S:
        more = since_s / _CROWD_RISE_S
    else:
        more = 0.5 ** ((since_s - _CROWD_RISE_S) / _CROWD_HALF_LIFE_S)
    return (1 + (_CROWD_FACTOR - 1) * more) * diurnal(at_s)


# The shapes that people can ask for by name.
SHAPES: Mapping[str, Callable[[int], float]] = {
    "steady": steady,
    "diurnal": diurnal,
    "spiky": spiky,
    "flash-crowd": flash_crowd,
}


def rates_of(shape: str, *, mean: float, length_s: int = DAY_S) -> Iterator[float]:
    """Return the events/s of a shape in each second; `mean` is the day's average without spikes."""
    return (mean * SHAPES[shape](at_s) for at_s in range(length_s))


def noisy(rates: Iterable[float], deviation: float, normal: Callable[[], float]) -> Iterator[float]:
    """Add noise to each rate; `normal` returns numbers with mean 0 and deviation 1."""
    return (max(0.0, rate * (1 + deviation * normal())) for rate in rates)


def rates_in(text: str) -> list[float]:
    """Return the events/s in each second of a trace: CSV of time and rate, a row for each change.

    Times are in seconds (from any beginning) or in ISO 8601; a first row of titles is skipped. A
    rate holds until the next row, and the last one as long as the one before it.
    """
    points = _points(text)
    if len(points) < _POINTS_MIN:
        raise ScaleError("The trace needs at least two rows of time and rate.")
    for (before, _), (after, _) in pairwise(points):
        if after <= before:
            raise ScaleError(f"The trace goes back in time, from {before:g} to {after:g}: sort it.")
    times = [at_s - points[0][0] for at_s, _ in points]
    length_s = round(times[-1] + times[-1] - times[-2])
    if length_s > TRACE_S_MAX:
        raise ScaleError(
            f"The trace spans {length_s / DAY_S:,.1f} days; {TRACE_S_MAX // DAY_S} are allowed: cut"
            " it. (Are its times in milliseconds? They must be seconds or ISO 8601.)"
        )
    return [points[bisect_right(times, at_s) - 1][1] for at_s in range(length_s)]


def _points(text: str) -> list[tuple[float, float]]:
    points = []
    for number, row in enumerate(csv.reader(text.splitlines()), start=1):
        if not row or (number == 1 and not _is_number(row[-1])):
            continue
        try:
            at, rate = row
            points.append((_seconds(at), float(rate)))
        except ValueError as error:
            raise ScaleError(
                f"Row {number} of the trace is {','.join(row)!r} but must be a time (seconds or"
                " ISO 8601) and a rate, separated by a comma."
            ) from error
        if not 0 <= points[-1][1] < math.inf:
            raise ScaleError(
                f"Row {number} of the trace has the rate {rate}: it must be 0 or more."
            )
    return points


def _seconds(text: str) -> float:
    return float(text) if _is_number(text) else datetime.fromisoformat(text).timestamp()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
