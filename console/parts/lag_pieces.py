"""Shows where an event spends its time: the share of each stage, and its times as numbers."""

from collections.abc import Sequence

from console.page_context import slowest
from console.parts import charts
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pictures import swatch
from console.parts.pieces import section, table, term
from observe.lag.time_shares import time_shares
from shared import wording
from shared.proof.overview import DestinationView, Quantiles, Stage

# The stages in the order that events pass them, and in the order of their colours, in which the
# stage of pipelines is last because it was added last.
_STAGES = tuple(stage.value for stage in Stage)
_COLOURS = (*(stage for stage in _STAGES if stage != Stage.PIPELINE.value), Stage.PIPELINE.value)


def lag_section(destinations: Sequence[DestinationView]) -> Safe:
    """Show where time goes for one destination, or for the slowest of several."""
    shown = slowest(destinations)
    shares = time_shares(shown) if shown else ()
    if shown is None or not shares:
        return NOTHING
    total_ms = sum(mean_ms for _, mean_ms in shares)
    parts = [
        charts.Part(f"{stage} {_percent(mean_ms, total_ms)}", mean_ms, _COLOURS.index(stage))
        for stage, mean_ms in shares
    ]
    says = ", ".join(part.name for part in parts)
    drawn = charts.bar(parts, title="Where an event's time goes", says=says)
    note = f"Shares of the mean time to delivery, {wording.duration(total_ms / 1000)}."
    if len(destinations) > 1:
        note += f" This is the slowest destination now, {shown.destination_id}."
    return section("Where time goes", tag("figure", drawn, _times(shown)), note=note)


def _times(shown: DestinationView) -> Safe:
    """Show the bar's figures in a table."""
    shares = time_shares(shown)
    process = {lag.stage.value: lag.process for lag in shown.stages}
    total_ms = sum(mean_ms for _, mean_ms in shares)
    rows: list[list[Child]] = [
        [
            fragment(swatch(_COLOURS.index(name)), term(name)),
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
    heads = ("Stage", "Share", "Mean", "p50", "p95", "p99")
    return table(heads, rows, caption="Time at each stage", numbers_from=1)


def _quantiles(quantiles: Quantiles | None) -> list[str]:
    if quantiles is None:
        return [wording.NONE] * 4
    times_ms = (quantiles.mean_ms, quantiles.p50_ms, quantiles.p95_ms, quantiles.p99_ms)
    return [wording.duration(time_ms / 1000) for time_ms in times_ms]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else wording.NONE
