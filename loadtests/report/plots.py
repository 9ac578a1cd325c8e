"""Draws lines over axes as SVG; colours come from the page's style, by the class of each part."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

Point = tuple[float, float]
Scale = Literal["linear", "log", "nines"]

_WIDTH, _HEIGHT = 680, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 20, 56
_X_END, _Y_END = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
_TICKS = 5
# Ticks of a percentile axis, which is linear in the number of nines.
_NINES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99)
# The width of a letter in a label.
_LETTER = 6.6


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    scale: Scale = "linear"
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plot; `look` is its class: due, service, age, offered, got, law, met, broken."""

    label: str
    points: Sequence[Point]
    look: str
    is_dotted: bool = False
    # Draw separate points instead of a line.
    is_scattered: bool = False


@dataclass(frozen=True, slots=True)
class Guide:
    """A straight line at a value of one axis, with a label."""

    label: str
    value: float
    axis: Literal["x", "y"]
    look: str


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    x: Axis,
    y: Axis,
    guides: Sequence[Guide] = (),
    band: Sequence[tuple[float, float, float]] = (),
) -> str:
    """Return one plot as SVG. `band`: the range of a value at each x."""
    xs = [px for line in lines for px, _ in line.points] + [row[0] for row in band]
    ys = [py for line in lines for _, py in line.points] + [v for row in band for v in row[1:]]
    xs += [guide.value for guide in guides if guide.axis == "x"]
    ys += [guide.value for guide in guides if guide.axis == "y"]
    x_low, x_high, x_ticks = _span(x, xs)
    y_low, y_high, y_ticks = _span(y, ys)
    at_x = _placer(x.scale, x_low, x_high, (_LEFT, _X_END))
    at_y = _placer(y.scale, y_low, y_high, (_Y_END, _TOP))
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in y_ticks:
        parts.append(_straight("grid", _LEFT, _X_END, at_y(tick), at_y(tick)))
        parts.append(_text(_LEFT - 8, at_y(tick) + 4, number(tick), "end"))
    for tick in x_ticks:
        parts.append(_straight("tick", at_x(tick), at_x(tick), _Y_END, _Y_END + 5))
        parts.append(_text(at_x(tick), _Y_END + 20, number(tick), "middle"))
    parts.append(_straight("axis", _LEFT, _X_END, _Y_END, _Y_END))
    parts.append(_text((_LEFT + _X_END) / 2, _HEIGHT - 12, x.label, "middle", look="label"))
    parts.append(
        f'<text class="label" text-anchor="middle"'
        f' transform="translate(16 {(_TOP + _Y_END) / 2}) rotate(-90)">{escape(y.label)}</text>'
    )
    if band:
        around = [(at_x(px), at_y(high)) for px, _, high in band]
        around += [(at_x(px), at_y(low)) for px, low, _ in reversed(band)]
        parts.append(f'<polygon class="band" points="{_joined(around)}"/>')
    parts += [_guide(guide, at_x, at_y) for guide in guides]
    parts += [_line(line, [(at_x(px), at_y(py)) for px, py in line.points]) for line in lines]
    return "".join([*parts, "</svg>", _legend(lines)])


def _line(line: Line, placed: Sequence[Point]) -> str:
    if line.is_scattered:
        return "".join(
            f'<circle class="{line.look}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>' for x, y in placed
        )
    dash = ' stroke-dasharray="5 4"' if line.is_dotted else ""
    return f'<polyline class="{line.look}" points="{_joined(placed)}"{dash}/>'


def _guide(guide: Guide, at_x: Callable[[float], float], at_y: Callable[[float], float]) -> str:
    look = f"{guide.look} said"
    if guide.axis == "y":
        at = at_y(guide.value)
        across = _straight(guide.look, _LEFT, _X_END, at, at)
        return across + _text(_LEFT + 6, at - 6, guide.label, "start", look=look)
    at = at_x(guide.value)
    # The label goes to the side that has room for it.
    fits = at + 6 + _LETTER * len(guide.label) < _X_END
    beside, anchor = (at + 6, "start") if fits else (at - 6, "end")
    return _straight(guide.look, at, at, _TOP, _Y_END) + _text(
        beside, _TOP + 12, guide.label, anchor, look=look
    )


def _straight(look: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{look}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _legend(lines: Sequence[Line]) -> str:
    named = [line for line in lines if line.label]
    items = "".join(
        f'<li><span class="key {line.look}{" dotted" if line.is_dotted else ""}"></span>'
        f"{escape(line.label)}</li>"
        for line in named
    )
    return f'<ul class="legend">{items}</ul>' if named else ""


def _text(x: float, y: float, text: str, anchor: str, *, look: str = "") -> str:
    named = f' class="{look}"' if look else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _joined(points: Iterable[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _placer(scale: Scale, low: float, high: float, ends: Point) -> Callable[[float], float]:
    place = {"linear": float, "log": math.log10, "nines": nines}[scale]
    first, last = place(low), place(high)
    width = (last - first) or 1.0

    def at(value: float) -> float:
        share = (place(min(max(value, low), high)) - first) / width
        return ends[0] + share * (ends[1] - ends[0])

    return at


def nines(percentile: float) -> float:
    """Return the number of nines of a percentile."""
    return -math.log10(max(1e-9, 1 - percentile / 100))


def _span(axis: Axis, values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Return the range of an axis and its ticks."""
    if axis.scale == "nines":
        most = max(values, default=99.99)
        ticks = [tick for tick in _NINES if tick <= most] or [0.0]
        return 0.0, max(most, 50.0), ticks
    if axis.scale == "log":
        positive = [value for value in values if value > 0] or [1.0]
        low = 10 ** math.floor(math.log10(min(positive)))
        high = 10 ** math.ceil(math.log10(max(positive) * 1.05))
        return low, max(high, low * 10), _log_ticks(low, max(high, low * 10))
    low = axis.low if axis.low is not None else min(values, default=0.0)
    high = axis.high if axis.high is not None else max(values, default=1.0) * 1.05
    step = nice_step((high - low) / _TICKS)
    low = math.floor(low / step + 1e-9) * step
    high = math.ceil(high / step - 1e-9) * step
    count = round((high - low) / step)
    return low, high, [low + index * step for index in range(count + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(round(math.log10(low)), round(math.log10(high)) + 1)
    few = len(decades) <= 3  # noqa: PLR2004 - room for 2 and 5 between them
    steps = (1, 2, 5) if few else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def nice_step(about: float) -> float:
    """Return the smallest of 1, 2 or 5 times a power of ten that is at least `about`."""
    if about <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(about))
    return next(nice * power for nice in (1, 2, 5, 10) if nice * power >= about * (1 - 1e-9))


def number(value: float) -> str:
    """Return a short form of a number: 1.5k, 300k, 2M, 0.5."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"
