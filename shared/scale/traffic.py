"""Draws a day of traffic: how many events arrive in each second, as counts that add up exactly."""

import csv
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import TypeAlias

from shared.scale.scale_error import ScaleError

# Entry t: how many events had arrived when second t began; one entry more than there are seconds.
Curve: TypeAlias = Sequence[int]

DAY_S = 86_400
_HOUR_S = 3_600
# People's days: half again as much in the evening, half of it before dawn.
_SWING = 0.5
_PEAK_AT_S = 20 * _HOUR_S
# When a spiky day has its spikes, in hours; how many times the traffic; for how many seconds.
_SPIKES = ((2.0, 3.0, 120), (7.5, 2.0, 900), (12.0, 5.0, 60), (16.0, 4.0, 300), (20.5, 2.0, 1_800))
# A crowd comes within a minute and halves every quarter of an hour: a push message, a goal.
_CROWD_AT_S = 19 * _HOUR_S
_CROWD_FACTOR = 8.0
_CROWD_RISE_S = 60
_CROWD_HALF_LIFE_S = 900.0
# How long the last rate holds follows from the row before it.
_POINTS_MIN = 2
# A week of seconds; a longer trace is a mistake in its first column more often than not.
TRACE_S_MAX = 7 * DAY_S


def curve_of(rates: Iterable[float]) -> Curve:
    """Counts of whole events out of rates: fractions are carried on, and none is lost."""
    return array("q", [0, *map(int, accumulate(rates))])


def steady(at_s: int) -> float:
    """The same all day."""
    del at_s
    return 1.0


def diurnal(at_s: int) -> float:
    """Up in the evening, down before dawn; 1 on the average."""
    return 1 + _SWING * math.cos(2 * math.pi * (at_s - _PEAK_AT_S) / DAY_S)


def spiky(at_s: int) -> float:
    """A diurnal day with five spikes of twice to five times, from a minute to half an hour."""
    hour = at_s % DAY_S / _HOUR_S
    height = max(
        (factor for at, factor, hold_s in _SPIKES if at <= hour < at + hold_s / _HOUR_S),
        default=1.0,
    )
    return height * diurnal(at_s)


def flash_crowd(at_s: int) -> float:
    """A diurnal day in which everybody comes at once, and leaves slowly."""
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
    """Events/s of a named shape in each second; `mean` is the average of its day without spikes."""
    return (mean * SHAPES[shape](at_s) for at_s in range(length_s))


def noisy(rates: Iterable[float], deviation: float, normal: Callable[[], float]) -> Iterator[float]:
    """The same with noise on each second; `normal` gives numbers of mean 0 and deviation 1."""
    return (max(0.0, rate * (1 + deviation * normal())) for rate in rates)


def rates_in(text: str) -> list[float]:
    """Events/s in each second of a recorded trace: CSV of time and rate, a row at each change.

    Time is in seconds (since anything) or ISO 8601; a first row of titles is passed by. A rate
    holds until the next row, and the last as long as the one before it.
    """
    points = _points(text)
    if len(points) < _POINTS_MIN:
        raise ScaleError("The trace has fewer than two rows of time and rate: there is no traffic.")
    for (before, _), (after, _) in pairwise(points):
        if after <= before:
            raise ScaleError(f"The trace goes back in time, from {before:g} to {after:g}: sort it.")
    times = [at_s - points[0][0] for at_s, _ in points]
    length_s = round(times[-1] + times[-1] - times[-2])
    if length_s > TRACE_S_MAX:
        raise ScaleError(
            f"The trace spans {length_s / DAY_S:,.1f} days and may span {TRACE_S_MAX // DAY_S}:"
            " cut it. (Are its times in milliseconds? They must be seconds or ISO 8601.)"
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
                f"Row {number} of the trace is {','.join(row)!r} and must be a time (seconds or"
                " ISO 8601) and a rate, with a comma between them."
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
