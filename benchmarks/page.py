"""Writes the figures of docs/benchmarks.md: tables of the newest figures, and plots of past ones.

Each part of the page between `<!-- figures: BENCH -->` and `<!-- end -->` is written from the rows.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from benchmarks.catalogue import BENCHES, Figure
from benchmarks.rows import Row, machine, newest

_PART = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PICTURES = "pictures/benchmarks"
# A plot has at least this many points, and a picture at most this many plots.
_POINTS_MIN, _PLOTS_MAX = 3, 3
_WIDTH, _HEIGHT = 240, 120
_LEFT, _TOP, _RIGHT, _BOTTOM = 10, 30, 230, 96
# These colours are readable on white and on black.
_COLOURS = {"EPYC, 2 cores": "#3b82d6", "Xeon, 2 cores": "#d9780f"}
_GREY = "#8a8a8a"


def filled(page: str, rows: Sequence[Row]) -> str:
    """Return the page with the tables and pictures of these rows filled in."""
    return _PART.sub(lambda part: f"{part[1]}\n{_figures(part[2], rows)}\n{part[3]}", page)


def pictures(rows: Sequence[Row]) -> Mapping[str, str]:
    """Return the drawings of benches with enough past figures, by path from docs/."""
    drawn = {bench: _picture(bench, rows) for bench in BENCHES if _plotted(bench, rows)}
    return {f"{_PICTURES}/{bench}.svg": text for bench, text in drawn.items()}


def _figures(bench: str, rows: Sequence[Row]) -> str:
    lines, above = ["| figure | newest | measured |", f"|{'---|' * 3}"], ""
    for figure in BENCHES[bench]:
        if row := newest(_of(bench, rows), figure):
            origin = f"{row['date'][:10]}, {row['commit']}, {machine(row)}"
            cells = f"`{figure.name}`: {figure.meaning} | **{row[figure.name]:,}**{_target(figure)}"
            lines.append(f"| {cells} | {'' if origin == above else origin} |")
            above = origin
    if _plotted(bench, rows):
        lines += ["", f"![The past figures of the bench {bench}]({_PICTURES}/{bench}.svg)"]
    return "\n".join([*lines, ""])


def _of(bench: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["bench"] == bench]


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f" ({'≥' if figure.is_more_better else '≤'} {figure.target:,})"


def _plotted(bench: str, rows: Sequence[Row]) -> list[tuple[Figure, list[Row]]]:
    pasts = [
        (figure, [row for row in _of(bench, rows) if figure.name in row])
        for figure in BENCHES[bench]
    ]
    return [(figure, past) for figure, past in pasts if len(past) >= _POINTS_MIN][:_PLOTS_MAX]


def _picture(bench: str, rows: Sequence[Row]) -> str:
    plots = _plotted(bench, rows)
    machines = sorted({machine(row) for _, past in plots for row in past})
    drawn = [
        f'<g transform="translate({place * _WIDTH} 0)">{"".join(_plot(figure, past))}</g>'
        for place, (figure, past) in enumerate(plots)
    ]
    legend = [
        f'<text x="{_LEFT + place * 130}" y="{_HEIGHT + 14}" fill="{_colour(kind)}">'
        f"● {escape(kind)}</text>"
        for place, kind in enumerate(machines)
    ]
    size = f'width="{_PLOTS_MAX * _WIDTH}" height="{_HEIGHT + 22}"'
    look = f'font-family="sans-serif" font-size="11" fill="{_GREY}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {look}>'
    title = f"<title>The past figures of the bench {bench}</title>"
    return "\n".join([head, title, *drawn, *legend, "</svg>\n"])


def _plot(figure: Figure, past: Sequence[Row]) -> Iterator[str]:
    """Draw the values from 0 up in the order of time, with a line for each kind of machine."""
    values = [row[figure.name] for row in past]
    top = 1.1 * max(values) or 1

    def y(value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * value / top, 1)

    xs = [round(_LEFT + (_RIGHT - _LEFT) * n / (len(past) - 1), 1) for n in range(len(past))]
    points = [(x, y(value), machine(row)) for x, value, row in zip(xs, values, past, strict=True)]
    yield f'<text x="{_LEFT}" y="14">{figure.name}: {values[-1]:,}</text>'
    yield f'<path d="M{_LEFT} {_BOTTOM}H{_RIGHT}" stroke="{_GREY}"/>'
    if figure.target and figure.target <= top:
        dashed = f'stroke="{_GREY}" stroke-dasharray="4 4"'
        yield f'<path d="M{_LEFT} {y(figure.target)}H{_RIGHT}" {dashed}/>'
    for kind in dict.fromkeys(kind for _, _, kind in points):
        line = " ".join(f"{x},{height}" for x, height, its in points if its == kind)
        yield f'<polyline points="{line}" fill="none" stroke="{_colour(kind)}"/>'
    for x, height, kind in points:
        yield f'<circle cx="{x}" cy="{height}" r="2.5" fill="{_colour(kind)}"/>'
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{past[0]["date"][:10]}</text>'
    yield f'<text x="{_RIGHT}" y="{_HEIGHT - 8}" text-anchor="end">{past[-1]["date"][:10]}</text>'


def _colour(kind: str) -> str:
    return _COLOURS.get(kind, _GREY)
