"""Draws lag: over time stacked by node, as a pie of where time goes, and as numbers beside it."""

from collections.abc import Sequence

from observe.console.lag_history import STEP_MS, Moment, Nodes
from observe.console.page_context import PageContext, slowest
from observe.console.parts import charts, wording
from observe.console.parts.markup import NOTHING, Child, Safe, fragment, tag
from observe.console.parts.pieces import nothing_yet, section, table
from observe.lag.time_shares import time_shares
from shared.proof.overview import DestinationView, Node, Quantiles

# In the order of the way; and of their colours, in which pipelines came last.
_NODES = tuple(node.value for node in Node)
_COLOURS = (*(node for node in _NODES if node != Node.PIPELINE.value), Node.PIPELINE.value)


def lag_section(destinations: list[DestinationView], context: PageContext) -> Safe:
    """Everything there is to see of the lag of one destination, or of the slowest of several."""
    shown = slowest(destinations)
    moments = context.lag_history.of([view.destination_id for view in destinations])
    if shown is None and not any(moment.nodes for moment in moments):
        return section("Lag", nothing_yet("Lag shows here once an event has been delivered."))
    is_one = len(destinations) == 1
    there = {node for moment in moments for node, _ in moment.nodes}
    over_time = tag(
        "figure",
        _columns(moments),
        tag(
            "figcaption",
            "Mean time at each node"
            if is_one
            else "Mean time at each node, of the slowest destination at each moment",
        ),
        _legend([node for node in _NODES if node in there]),
    )
    return fragment(
        section("Lag over time", over_time),
        _shares(shown, is_one=is_one) if shown else NOTHING,
    )


def _shares(shown: DestinationView, *, is_one: bool) -> Safe:
    shares = time_shares(shown)
    if not shares:
        return NOTHING
    total_ms = sum(mean_ms for _, mean_ms in shares)
    parts = _parts(shares)
    says = ", ".join(f"{part.name} {_percent(part.value, total_ms)}" for part in parts)
    middle = wording.duration(total_ms / 1000)
    drawn = charts.pie(parts, middle=middle, title="Where an event's time goes", says=says)
    figure = tag("figure", drawn, _times(shown, shares), class_="beside")
    note = "Of the mean time from acceptance to delivery."
    if not is_one:
        note = f"Of the slowest destination now, {shown.destination_id}."
    return section("Where time goes", figure, note=note)


def _times(shown: DestinationView, shares: Nodes) -> Safe:
    """What the pie shows, as numbers."""
    process = {lag.node.value: lag.process for lag in shown.nodes}
    total_ms = sum(mean_ms for _, mean_ms in shares)
    rows: list[list[Child]] = [
        [
            fragment(_swatch(name), name),
            _percent(mean_ms, total_ms),
            *_quantiles(process.get(name)),
        ]
        for name, mean_ms in shares
    ]
    for name, whole in (
        ("since accepted", shown.since_accepted),
        ("since the event's own time", shown.end_to_end),
    ):
        if whole is not None:
            rows.append([name, "", *_quantiles(whole)])
    heads = ("Node", "Share", "Mean", "p50", "p95", "p99")
    return table(heads, rows, caption="Time at each node", numbers_from=1)


def _quantiles(quantiles: Quantiles | None) -> list[str]:
    if quantiles is None:
        return [wording.NONE] * 4
    times_ms = (quantiles.mean_ms, quantiles.p50_ms, quantiles.p95_ms, quantiles.p99_ms)
    return [wording.duration(time_ms / 1000) for time_ms in times_ms]


def _columns(moments: Sequence[Moment]) -> Safe:
    top_ms = max((moment.total_ms for moment in moments), default=0.0)
    shown = [
        (
            f"{wording.clock(moment.at_ms)}: {wording.duration(moment.total_ms / 1000)}"
            + (f", {moment.destination_id}" if moment.destination_id else ""),
            _parts(moment.nodes),
        )
        for moment in moments
    ]
    newest_ms = moments[-1].total_ms if moments else 0.0
    says = f"now {wording.duration(newest_ms / 1000)}, highest {wording.duration(top_ms / 1000)}"
    drawn = charts.columns(shown, top=top_ms, title="Lag by node over time", says=says)
    scale = [tag("span", wording.duration(top_ms / 1000) if top_ms else ""), tag("span", "0")]
    begin_ms = moments[-1].at_ms - max(len(moments), charts.SLOTS_MIN) * STEP_MS if moments else 0
    under = [tag("span", wording.clock(begin_ms) if moments else ""), tag("span", "now")]
    return tag(
        "div",
        tag("div", scale, class_="scale", aria_hidden="true"),
        tag("div", drawn, tag("div", under, class_="under", aria_hidden="true"), class_="drawn"),
        class_="over-time",
    )


def _legend(nodes: Sequence[str]) -> Safe:
    return tag("ul", [tag("li", _swatch(node), node) for node in nodes], class_="legend")


def _swatch(node: str) -> Safe:
    return tag("span", class_=f"swatch s{_series(node)}", aria_hidden="true")


def _parts(shares: Nodes) -> list[charts.Part]:
    return [charts.Part(node, mean_ms, _series(node)) for node, mean_ms in shares]


def _series(node: str) -> int:
    return _COLOURS.index(node)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else wording.NONE
