"""Charts over time for destinations: throughput, success, status codes, lag, backlog.

Each has a table with its numbers, and shows its newest step in words. A script shows any other step
that a pointer or the keyboard selects.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from urllib.parse import urlencode

from console.page_context import PageContext
from console.parts import axes, charts
from console.parts.axes import Measure
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import nothing_yet, section, table
from observe.series.series import Moment, Past
from observe.series.steps import RANGES, UNKNOWN, DestinationStep
from shared import wording
from shared.event.topics import is_pipelines
from shared.proof.overview import DestinationView

# The query parameters of a page with pictures.
ASKED = ("range", "table")
_NAMES = [each.name for each in RANGES]
_NOBODY = "not observed"
# Pages are built every second, but their charts change only every ten, so this many drawings are
# kept. They take some megabytes.
_DRAWN_MAX = 32
# Reading this many takes 20 ms, and is repeated at each step while somebody looks.
_TOGETHER_MAX = 200


@dataclass(frozen=True, slots=True)
class _Curve:
    """One line of a chart: its value at a moment, and its colour."""

    name: str
    value: Callable[[Moment], float]
    series: int


@dataclass(frozen=True, slots=True)
class _Picture:
    name: str
    title: str
    unit: Measure
    curves: Sequence[_Curve]
    is_stacked: bool = False
    # True: not shown for pipelines, which answer no requests.
    is_of_requests: bool = False
    note: str = ""
    # A further note for a chart of several destinations.
    of_several: str = ""


def _per_s(of: Callable[[DestinationStep], float], moment: Moment) -> float:
    taken = moment.taken
    return of(taken) / taken.covered_s if taken and taken.covered_s else UNKNOWN


def _accepted(moment: Moment) -> float:
    accepted = moment.accepted
    return accepted.accepted / accepted.covered_s if accepted and accepted.covered_s else UNKNOWN


def _plain(of: Callable[[DestinationStep], float], moment: Moment) -> float:
    return of(moment.taken) if moment.taken else UNKNOWN


def _status(name: str, field: str, series: int) -> _Curve:
    return _Curve(name, partial(_per_s, lambda taken: float(getattr(taken, field))), series)


_PICTURES = (
    _Picture(
        "throughput",
        "Throughput",
        axes.EVENTS_PER_S,
        (
            _Curve("accepted", _accepted, 5),
            _Curve("delivered", partial(_per_s, lambda taken: taken.delivered), 0),
        ),
        note="Events per second: what came in, and what went out.",
        of_several="An event counts as delivered once for each destination.",
    ),
    _Picture(
        "success",
        "Success rate",
        axes.PART,
        (_Curve("delivered", partial(_plain, lambda taken: taken.success), 1),),
        is_of_requests=True,
        note="Share of all outcomes; an event that waits for a retry counts each time.",
    ),
    _Picture(
        "status",
        "Status codes",
        axes.REQUESTS_PER_S,
        (
            _status("2xx", "taken", 1),
            _status("3xx and 4xx", "rejected", 3),
            _status("429", "limited", 2),
            _status("5xx", "broken", 4),
            _status("no answer", "unanswered", 5),
        ),
        is_stacked=True,
        is_of_requests=True,
        note="Requests per second, by status of the answer.",
    ),
    _Picture(
        "lag",
        "Lag",
        axes.SECONDS,
        (
            _Curve("p95 of delivered events", partial(_plain, lambda taken: taken.p95_s), 0),
            _Curve("oldest event", partial(_plain, lambda taken: taken.oldest_s), 4),
        ),
        note="Time since acceptance: of delivered events, and of the oldest without an outcome.",
        of_several="Each is the highest of all destinations.",
    ),
    _Picture(
        "backlog",
        "Backlog",
        axes.EVENTS,
        (_Curve("events that wait", partial(_plain, lambda taken: taken.backlog), 2),),
        note="Events without an outcome, queued or waiting for a retry.",
    ),
)


def pictures_section(
    views: Sequence[DestinationView],
    context: PageContext,
    path: str,
    asked: Mapping[str, str],
    *,
    streams: Sequence[str] = (),
) -> Safe:
    """Draw the past of one destination, or of several together, in the requested range.

    `streams`: the streams to include, even those without a destination.
    """
    if len(views) > _TOGETHER_MAX:
        note = f"Too many for one chart (over {_TOGETHER_MAX}): each has charts on its own page."
        return section("Over time", nothing_yet(note))
    level = _NAMES.index(asked["range"]) if asked.get("range") in _NAMES else 0
    past = _past_of(views, streams or sorted({view.stream for view in views}), context, level)
    if past is None or past.is_empty:
        return section("Over time", nothing_yet("Charts appear after the first 20 seconds."))
    has_requests = any(not is_pipelines(view.name) for view in views)
    drawn = _drawn(
        past,
        path,
        asked.get("table", ""),
        taker_count=min(len(views), 2),
        has_requests=has_requests,
    )
    return section("Over time", _ranges(path, level), drawn)


@lru_cache(maxsize=_DRAWN_MAX)
def _drawn(past: Past, path: str, open_table: str, *, taker_count: int, has_requests: bool) -> Safe:
    drawn = [
        _figure(picture, past, path, open_table, is_several=taker_count > 1)
        for picture in (_PICTURES if taker_count else _PICTURES[:1])
        if has_requests or not picture.is_of_requests
    ]
    return tag("div", drawn, class_="pictures")


def _past_of(
    views: Sequence[DestinationView], streams: Sequence[str], context: PageContext, level: int = 0
) -> Past | None:
    if context.series is None:
        return None
    takers = [view.destination_id for view in views]
    return context.series.past(streams, takers, level, now_ms=context.overview.at_ms)


def _ranges(path: str, level: int) -> Safe:
    links = [
        tag("a", each.says, href=f"{path}?{urlencode({'range': each.name})}#pictures",
            aria_current="true" if at == level else None)
        for at, each in enumerate(RANGES)
    ]  # fmt: skip
    return tag("nav", links, aria_label="Time range", class_="ranges")


def _figure(picture: _Picture, past: Past, path: str, open_table: str, *, is_several: bool) -> Safe:
    values = [[curve.value(moment) for moment in past.moments] for curve in picture.curves]
    shown = [
        charts.Line(curve.name, row, curve.series)
        for curve, row in zip(picture.curves, values, strict=True)
    ]
    sums = [sum(each for each in column if each > 0) for column in zip(*values, strict=True)]
    high = axes.highest_of([sums] if picture.is_stacked else values)
    ticks = axes.ticks(high, picture.unit)
    title = f"{picture.title}, last {past.shown.says}"
    highest = f"Highest {picture.unit.write(high)}" if high else "No data"
    draw = charts.columns if picture.is_stacked else charts.lines
    drawn = draw(shown, top=ticks[-1], title=title, says=highest)
    says = _says(picture, past, values)
    note = f"{picture.note} {picture.of_several}" if is_several else picture.note
    return tag(
        "figure",
        tag("h3", picture.title),
        tag("p", note, class_="note"),
        _framed(drawn, ticks, picture.unit, past, says),
        _legend(shown) if len(shown) > 1 else NOTHING,
        tag("p", _newest(says), class_="reading", data_own=True),
        _numbers(picture, past, values, path, open_table),
        id=f"past-{picture.name}",
    )


def _framed(
    drawn: Safe, ticks: Sequence[float], unit: Measure, past: Past, says: Sequence[str]
) -> Safe:
    """Draw a chart with its axes; a script shows the steps from `data-says` one at a time."""
    # A time of zero has no unit.
    written = (unit.write(each) if each or not unit.is_time else "0" for each in reversed(ticks))
    upwards = [tag("span", each) for each in written]
    along = [
        tag("text", name, x=f"{100 * part:.2f}%", y=12,
            text_anchor="start" if part < 0.02 else "middle")  # noqa: PLR2004 - it has no room
        for part, name in axes.times(past)
        if part < 0.97  # noqa: PLR2004 - as well
    ]  # fmt: skip
    return tag(
        "div",
        tag("div", upwards, class_="scale", aria_hidden="true"),
        tag("div", drawn, tag("div", class_="reader", data_own=True), class_="drawn"),
        tag("svg", along, class_="along", aria_hidden="true"),
        class_="over-time",
        data_says="\n".join(says),
        data_newest=_newest(says),
    )


def _says(picture: _Picture, past: Past, values: Sequence[Sequence[float]]) -> list[str]:
    """Describe each step in words."""
    write = picture.unit.write
    lines = []
    for at, moment in enumerate(past.moments):
        known = [
            f"{curve.name} {write(row[at])}"
            for curve, row in zip(picture.curves, values, strict=True)
            if not (math.isnan(row[at]) or (picture.is_stacked and not row[at]))
        ]
        nothing = _NOBODY if moment.taken is None and moment.accepted is None else "nothing"
        lines.append(f"{axes.moment_of(past, moment.at_ms)}: {', '.join(known) or nothing}")
    return lines


def _newest(says: Sequence[str]) -> str:
    """Return the newest step that was observed."""
    return next((each for each in reversed(says) if not each.endswith(_NOBODY)), says[-1])


def _legend(shown: Sequence[charts.Line]) -> Safe:
    items = [tag("li", swatch(line.series), line.name) for line in shown]
    return tag("ul", items, class_="legend")


def swatch(series: int) -> Safe:
    return tag("span", class_=f"swatch s{series}", aria_hidden="true")


def _numbers(
    picture: _Picture, past: Past, values: Sequence[Sequence[float]], path: str, open_table: str
) -> Safe:
    """Show the chart's numbers as a table if it is open, otherwise a link that opens it."""
    here = {"range": past.shown.name}
    if open_table != picture.name:
        link = f"{path}?{urlencode({**here, 'table': picture.name})}#past-{picture.name}"
        return tag("p", tag("a", f"{picture.title} as a table", href=link), class_="quiet")
    rows: list[list[Child]] = [
        [
            axes.moment_of(past, moment.at_ms),
            *(wording.NONE if math.isnan(row[at]) else picture.unit.write(row[at])
              for row in values),
        ]
        for at, moment in enumerate(past.moments)
    ]  # fmt: skip
    heads = ("Step from", *(curve.name for curve in picture.curves))
    listed = table(heads, rows[::-1], caption=f"{picture.title}, newest first", numbers_from=1)
    closed = tag("a", "Hide the table", href=f"{path}?{urlencode(here)}#past-{picture.name}")
    return fragment(tag("p", closed, class_="quiet"), listed)


def sparks(view: DestinationView, context: PageContext) -> Safe:
    """Draw a destination's last 15 minutes for a row of a list: events taken and not taken."""
    past = _past_of([view], (), context)
    if past is None or past.is_empty:
        return NOTHING
    lost = [_per_s(lambda taken: taken.outcomes - taken.delivered, each) for each in past.moments]
    went = [_per_s(lambda taken: taken.delivered, each) for each in past.moments]
    shown = [charts.Line("delivered", _thinned(went), 0)]
    says = f"Highest {axes.EVENTS_PER_S.write(axes.highest_of([went]))}"
    if highest := axes.highest_of([lost]):
        shown.append(charts.Line("not delivered", _thinned(lost), 4))
        says += f", not delivered {axes.EVENTS_PER_S.write(highest)}"
    return charts.sparkline(shown, title=f"Delivered, last {past.shown.says}", says=says)


def stream_spark(stream: str, context: PageContext) -> Safe:
    """Draw a stream's last 15 minutes for a row of a list: the events that it accepted."""
    past = _past_of((), [stream], context)
    if past is None or past.is_empty:
        return NOTHING
    came = [_accepted(each) for each in past.moments]
    says = f"Highest {axes.EVENTS_PER_S.write(axes.highest_of([came]))}"
    line = charts.Line("accepted", _thinned(came), 0)
    return charts.sparkline([line], title=f"Accepted, last {past.shown.says}", says=says)


def _thinned(values: Sequence[float]) -> list[float]:
    """Return only the highest of every three points: a list has no room for more."""
    return [axes.highest_of([three]) if any(not math.isnan(each) for each in three) else UNKNOWN
            for three in (values[at : at + 3] for at in range(0, len(values), 3))]  # fmt: skip
