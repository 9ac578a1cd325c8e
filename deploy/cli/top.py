"""`hifi top`: the console's overview in the terminal, live: verdict, lag, books, loss."""

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deploy.cli import options
from deploy.cli.overview import ConsoleClient, verdict_text
from deploy.cli.printing import Form, harmless, out, print_data
from shared import wording
from shared.event.times import MINUTE_MS, minute_of
from shared.glossary import COUNTS
from shared.proof.overview import MinuteState, Stage
from shared.runtime.setup_error import UsageError

# The sampler makes a new overview every second.
_STEP_S = 1.0
# The bar shows each stage by a letter and a colour, so it can be read without colours.
_STAGES = {
    Stage.GATEWAY.value: ("g", "blue"),
    Stage.QUEUE.value: ("q", "cyan"),
    Stage.DELIVERY.value: ("d", "magenta"),
    Stage.PIPELINE.value: ("p", "green"),
    Stage.RETRY_TIER.value: ("t", "yellow"),
    Stage.RETRIER.value: ("r", "red"),
    Stage.DEAD_LETTERS.value: ("x", "bright_black"),
}
_MINUTES = {
    MinuteState.CHECKED.value: ("■", "green"),
    MinuteState.UNCHECKED.value: ("·", "bright_black"),
    MinuteState.CANNOT_TELL.value: ("?", "bold"),
    MinuteState.LOSS.value: ("✗", "bold red"),
}
_GAP = 2
_BAR_CHARS = 16
_MINUTES_SHOWN = 15


class _Column(NamedTuple):
    head: str
    # The order in which columns are dropped on a narrow terminal; 0 is never dropped.
    goes: int = 0
    justify: Literal["left", "right"] = "right"


_COLUMNS = (
    _Column("destination", justify="left"),
    _Column("verdict", justify="left"),
    _Column("lag by stage", goes=6, justify="left"),
    _Column("p95"),
    _Column("oldest", goes=1),
    _Column("acked", goes=4),
    _Column("delivered", goes=3),
    _Column("queued", goes=2),
    _Column("waiting"),
    _Column("dead"),
    _Column("unaccounted"),
    _Column(f"last {_MINUTES_SHOWN} minutes", goes=5, justify="left"),
)


@options.made_of(form=options.form)
def top(
    *,
    console: options.Console = options.CONSOLE_DEFAULT,
    api_key: options.ApiKey = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit.")] = False,
    form: Form | None,
) -> None:
    """Show every stream's verdict, lag, books and loss, live, until Ctrl-C.

    hifi top

    hifi top --once --json
    """
    with ConsoleClient(console, api_key) as client:
        if form == "name":
            for row in _rows(client.overview()):
                out.print(harmless(row["destination_id"]))
            return
        if form not in {None, "table"}:
            print_data(form, client.overview())
            return
        if once or not out.is_terminal:
            out.print(screen(client.overview(), width=out.width))
            return
        with Live(console=out.console, auto_refresh=False, screen=True) as live:
            live.update(screen(client.overview(), width=out.width), refresh=True)
            while True:
                time.sleep(_STEP_S)
                try:
                    live.update(screen(client.overview(), width=out.width), refresh=True)
                except UsageError as error:
                    # The console may come back. Until then old figures must not look current.
                    live.update(Text(f"  {error}", style="red"), refresh=True)


def screen(overview: Mapping[str, Any], *, width: int) -> Group:
    """Lay out the overview for people, `width` columns wide."""
    verdict = overview["verdict"]
    head = Text("  ").append_text(verdict_text(f" {verdict} "))
    head.append(f"  {harmless(overview['headline'])}", style="bold")
    head.append(f"  {wording.clock(overview['at_ms'])} UTC", style="dim")
    troubles = [
        Text(f"  {harmless(trouble)}", style="yellow")
        for trouble in (overview["problem"], overview["audit"]["problem"])
        if trouble
    ]
    rows = _rows(overview)
    parts: list[Text | Table] = [Text(), head, *troubles, Text()]
    if rows:
        parts.append(_table(rows, now_ms=overview["at_ms"], width=width))
        parts.append(Text())
        parts += [
            Text(
                f"  {harmless(row['destination_id'])}: {harmless(row['reason'])}",
                style="yellow",
            )
            for row in rows
            if row["reason"]
        ]
        parts.append(_legend())
    return Group(*parts)


def _rows(overview: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each destination, and one for each pipeline's reading of its stream."""
    rows = [row for stream in overview["streams"] for row in stream["destinations"]]
    # An observer of an older release reports no pipelines.
    lanes = (pipeline.get("lane") for pipeline in overview.get("pipelines", ()))
    return rows + [lane for lane in lanes if lane]


def _table(rows: list[dict[str, Any]], *, now_ms: int, width: int) -> Table:
    """Return a table of the columns that fit whole: a cut-off number would be a wrong number."""
    longest_ms = max(map(_mean_ms, rows))
    cells = [_cells(row, longest_ms=longest_ms, now_ms=now_ms) for row in rows]
    shown = list(zip(_COLUMNS, zip(*cells, strict=True), strict=True))
    while sum(map(_width, shown)) > width:
        least = max(shown, key=lambda column: column[0].goes)
        if not least[0].goes:
            break
        shown.remove(least)
    table = Table(box=None, header_style="dim", padding=(0, _GAP, 0, 0), pad_edge=True)
    for column, _ in shown:
        table.add_column(column.head, justify=column.justify, no_wrap=True)
    for row_cells in zip(*(column_cells for _, column_cells in shown), strict=True):
        table.add_row(*row_cells)
    return table


def _width(shown: tuple[_Column, tuple[Text, ...]]) -> int:
    column, cells = shown
    return max(len(column.head), *(cell.cell_len for cell in cells)) + _GAP


def _cells(row: dict[str, Any], *, longest_ms: float, now_ms: int) -> list[Text]:
    """Return the cells of a destination, one for each column."""
    counts = {name: Text(wording.count(count)) for name, count in row["balance"].items()}
    counts["unaccounted"].style = "bold red" if row["balance"]["unaccounted"] else "green"
    p95_s = row["since_accepted"] and row["since_accepted"]["p95_ms"] / 1000
    return [
        Text(harmless(row["destination_id"])),
        verdict_text(row["verdict"]),
        _bar(row, longest_ms),
        Text(wording.duration(p95_s)),
        Text(wording.duration(row["oldest_age_s"])),
        *(counts[name] for name in COUNTS),
        _minutes(row, now_ms),
    ]


def _mean_ms(row: dict[str, Any]) -> float:
    return sum(map(float, row["time_shares"].values()))


def _bar(row: dict[str, Any], longest_ms: float) -> Text:
    """Return a bar: each stage's letter, repeated by mean time; the slowest row's bar is full."""
    bar = Text()
    for stage, mean_ms in row["time_shares"].items():
        if longest_ms > 0:
            letter, style = _STAGES[stage]
            bar.append(letter * round(_BAR_CHARS * mean_ms / longest_ms), style=style)
    return bar


def _minutes(row: dict[str, Any], now_ms: int) -> Text:
    states = {minute["minute_ms"]: minute["state"] for minute in row["minutes"]}
    newest_ms = minute_of(now_ms)
    line = Text()
    for back in reversed(range(_MINUTES_SHOWN)):
        sign, style = _MINUTES.get(states.get(newest_ms - back * MINUTE_MS, ""), (" ", ""))
        line.append(sign, style=style)
    return line


def _legend() -> Text:
    stages = "  ".join(f"{letter} {stage}" for stage, (letter, _) in _STAGES.items())
    minutes = "  ".join(f"{sign} {state}" for state, (sign, _) in _MINUTES.items())
    return Text(f"\n  {stages}\n  {minutes}", style="dim")
