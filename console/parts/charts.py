"""Draws charts as SVG: lines and stacked columns over time, one stacked bar, a heat-map of minutes.

Each has a title and a description for people who cannot see it, and a table with the same numbers
beside it. Colours are classes, which the style sheet defines for light and for dark mode.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from console.parts.markup import NOTHING, Safe, fragment, tag

# Width and height of a chart in its own units; the page stretches it.
WIDTH, HEIGHT = 720, 160
# A sparkline's step per point, and its height; nobody can see fractions of these units.
_SPARK_STEP, _SPARK_HEIGHT = 6, 40


@dataclass(frozen=True, slots=True)
class Part:
    """One stage's share. `series` chooses the colour, the same on every page."""

    name: str
    value: float
    series: int


@dataclass(frozen=True, slots=True)
class Line:
    """Values over time, oldest first; NaN for unknown ones."""

    name: str
    values: Sequence[float]
    series: int


def bar(parts: Sequence[Part], *, title: str, says: str) -> Safe:
    """Draw a bar with the shares of a whole, side by side."""
    total = sum(part.value for part in parts)
    drawn: list[Safe] = []
    begin = 0.0
    for part in parts:
        width = WIDTH * part.value / total if total > 0 else 0.0
        if width > 0:
            drawn.append(
                tag("rect", tag("title", part.name), x=begin, y=0, width=max(width - 1, 0.5),
                    height=24, class_=f"s{part.series}")
            )  # fmt: skip
        begin += width
    return drawing(title, says, f"0 0 {WIDTH} 24", "bar", drawn, stretch=True)


def lines(shown: Sequence[Line], *, top: float, title: str, says: str) -> Safe:
    """Draw lines, each value in the middle of its step; a value of `top` reaches the upper edge."""
    drawn = [
        tag("path", d=_path(line.values, WIDTH, HEIGHT, top), class_=f"line l{line.series}")
        for line in shown
    ]
    box = f"0 0 {WIDTH} {HEIGHT}"
    return drawing(title, says, box, "plot", [_grid(), *drawn], stretch=True)


def columns(shown: Sequence[Line], *, top: float, title: str, says: str) -> Safe:
    """Draw stacked columns, the first line's at the bottom."""
    count = max((len(line.values) for line in shown), default=0)
    step = WIDTH / max(count, 1)
    floors = [0.0] * count
    drawn: list[Safe] = []
    for line in shown:
        boxes = []
        for at, value in enumerate(line.values):
            height = HEIGHT * value / top if top > 0 and value > 0 else 0.0
            if height >= 0.05:  # noqa: PLR2004 - smaller columns are invisible
                y = HEIGHT - floors[at] - height
                boxes.append(f"M{at * step:.1f} {y:.1f}h{max(step - 0.8, 0.5):.1f}v{height:.1f}"
                             f"h-{max(step - 0.8, 0.5):.1f}z")  # fmt: skip
                floors[at] += height
        if boxes:
            drawn.append(tag("path", d="".join(boxes), class_=f"s{line.series}"))
    box = f"0 0 {WIDTH} {HEIGHT}"
    return drawing(title, says, box, "plot", [_grid(), *drawn], stretch=True)


def sparkline(shown: Sequence[Line], *, title: str, says: str) -> Safe:
    """Draw lines without axes for a row of a table, with short markup, as there are many rows."""
    top = max((value for line in shown for value in line.values if value > 0), default=1.0)
    width = _SPARK_STEP * max((len(line.values) for line in shown), default=1)
    drawn = [
        tag("path", d=_spark_path(line.values, top), class_=f"line l{line.series}")
        for line in shown
    ]
    return tag(
        "svg",
        fragment(*drawn),
        viewBox=f"0 -2 {width} {_SPARK_HEIGHT + 4}",
        role="img",
        aria_label=f"{title}. {says}",
        class_="chart spark",
    )


def _spark_path(values: Sequence[float], top: float) -> str:
    drawn: list[str] = []
    for begin, run in _runs(values):
        heights = [round(_SPARK_HEIGHT * (1 - min(value / top, 1))) for value in run]
        drawn.append(f"M{begin * _SPARK_STEP + _SPARK_STEP // 2} {heights[0]}h0")
        for before, height in pairwise(heights):
            up = height - before
            drawn.append(f"l{_SPARK_STEP} {up}" if up else f"h{_SPARK_STEP}")
    return "".join(drawn)


def _grid() -> Safe:
    lines_at = (0, HEIGHT // 4, HEIGHT // 2, 3 * HEIGHT // 4, HEIGHT)
    return tag("path", d="".join(f"M0 {y}h{WIDTH}" for y in lines_at), class_="grid")


def _path(values: Sequence[float], width: int, height: int, top: float) -> str:
    """Return a path with gaps for unknown values; a value between two gaps is a dot."""
    step = width / max(len(values), 1)
    drawn: list[str] = []
    for begin, run in _runs(values):
        points = [
            f"{(begin + at + 0.5) * step:.1f} {height - height * min(value / top, 1):.1f}"
            for at, value in enumerate(run)
        ]
        drawn.append(f"M{'L'.join(points)}" + ("h0" if len(points) == 1 else ""))
    return "".join(drawn)


def _runs(values: Sequence[float]) -> Iterator[tuple[int, list[float]]]:
    """Yield the runs of known values between the gaps, and the index where each begins."""
    run: list[float] = []
    for at, value in enumerate(values):
        if math.isnan(value):
            if run:
                yield at - len(run), run
            run = []
        else:
            run.append(value)
    if run:
        yield len(values) - len(run), run


# A row takes 10 kB and changes once a minute, but pages are built every second.
@lru_cache(maxsize=256)
def heat_row(cells: tuple[tuple[str, str, int], ...], *, title: str, says: str) -> Safe:
    """Draw a row of minutes, oldest left; a cell is a level, a text and a number of minutes."""
    boxes: list[Safe] = []
    place = 0
    for level, words, minutes in cells:
        boxes.append(
            tag("rect", tag("title", words), x=place * 12, y=0, width=minutes * 12 - 2, height=18,
                rx=2, class_=f"heat {level}")
        )  # fmt: skip
        place += minutes
    box = f"0 0 {max(place, 1) * 12} 18"
    return drawing(title, says, box, "heat-row", boxes, stretch=True)


def drawing(
    title: str,
    says: str,
    box: str,
    kind: str,
    drawn: Sequence[Safe],
    *,
    stretch: bool = False,
    has_links: bool = False,
) -> Safe:
    """Return the drawing, with a name and a description for people who cannot see it."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", says) if says else NOTHING,
        fragment(*drawn),
        viewBox=box,
        # Assistive technology would not offer links inside an `img`.
        role="group" if has_links else "img",
        aria_label=f"{title}. {says}" if says else title,
        class_=f"chart {kind}",
        preserveAspectRatio="none" if stretch else None,
    )
