"""Draws charts as SVG: a pie, stacked bars, stacked columns over time, a heat-map of minutes.

Each has a title and a description for those who do not see it, and stands beside a table with the
same numbers. Colours are classes, so that the style sheet gives them for light and for dark.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from observe.console.parts.markup import NOTHING, Safe, fragment, tag

# Ten minutes of columns of ten seconds.
SLOTS_MIN = 60


@dataclass(frozen=True, slots=True)
class Part:
    """One node's share. `series` chooses the colour, the same on every page."""

    name: str
    value: float
    series: int


def pie(parts: Sequence[Part], *, middle: str, title: str, says: str) -> Safe:
    """A ring of shares with the whole written in its middle; 200 units wide."""
    total = sum(part.value for part in parts)
    drawn: list[Safe] = []
    begin = 0.0
    for part in parts:
        share = part.value / total if total > 0 else 0.0
        if share > 0:
            drawn.append(_ring(part, begin, begin + share))
        begin += share
    if not drawn:
        drawn = [tag("circle", cx=100, cy=100, r=74, class_="empty-ring")]
    drawn.append(tag("text", middle, x=100, y=107, text_anchor="middle", class_="middle"))
    return drawing(title, says, "0 0 200 200", "pie", drawn)


def columns(
    shown: Sequence[tuple[str, Sequence[Part]]], *, top: float, title: str, says: str
) -> Safe:
    """Stacked columns (label, parts) over time, newest right; one as high as `top` is 160 units."""
    drawn: list[Safe] = [
        tag("line", x1=0, x2=720, y1=160 - y, y2=160 - y, class_="grid") for y in (0, 80, 160)
    ]
    # From the right, so that the first minutes after a start do not fill the width.
    slots = max(len(shown), SLOTS_MIN)
    step = 720 / slots
    for place, (label, parts) in enumerate(shown, start=slots - len(shown)):
        y = 160.0
        boxes: list[Safe] = []
        for part in parts:
            height = min(160 * part.value / top, y) if top > 0 else 0.0
            y -= height
            if height >= 0.05:  # noqa: PLR2004 - as above
                boxes.append(
                    tag(
                        "rect",
                        x=place * step,
                        y=y,
                        width=max(step - 1, 0.5),
                        height=height,
                        class_=f"s{part.series}",
                    )
                )
        if boxes:
            drawn.append(tag("g", tag("title", label), *boxes))
    return drawing(title, says, "0 0 720 160", "columns", drawn, stretch=True)


def heat_row(cells: Sequence[tuple[str, str]], *, title: str, says: str) -> Safe:
    """One row of minutes, oldest left: of each how bad it is, and in words."""
    boxes = [
        tag("rect", tag("title", words), x=place * 12, y=0, width=10, height=18, rx=2,
            class_=f"heat {level}")
        for place, (level, words) in enumerate(cells)
    ]  # fmt: skip
    box = f"0 0 {max(len(cells), 1) * 12} 18"
    return drawing(title, says, box, "heat-row", boxes, stretch=True)


def _ring(part: Part, begin: float, end: float) -> Safe:
    """A piece of the ring from one share of the turn to another, clockwise from the top."""
    around = 2 * math.pi * 74
    return tag(
        "circle",
        tag("title", f"{part.name}: {100 * (end - begin):.0f} %"),
        cx=100,
        cy=100,
        r=74,
        fill="none",
        stroke_width=36,
        stroke_dasharray=f"{max((end - begin) * around - 2, 0.5):.2f} {around:.2f}",
        stroke_dashoffset=f"{-begin * around:.2f}",
        transform="rotate(-90 100 100)",
        class_=f"ring s{part.series}",
    )


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
    """What is drawn, with a name and words for those who do not see it."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", says) if says else NOTHING,
        fragment(*drawn),
        viewBox=box,
        # What is an image has nothing inside that could be followed.
        role="group" if has_links else "img",
        aria_label=f"{title}. {says}" if says else title,
        class_=f"chart {kind}",
        preserveAspectRatio="none" if stretch else None,
    )
