"""`hifi top`: the console's overview in the terminal, live: verdict, lag, books, loss."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import httpx
import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deploy.cli import options
from deploy.cli.printing import harmless, out, print_json
from observe.console.parts import wording
from shared.event.times import MINUTE_MS, minute_of
from shared.proof.overview import MinuteState, Node, StreamVerdict
from shared.runtime.setup_error import UsageError

# The sampler makes a new overview every second.
_STEP_S = 1.0
# Loopback answers in a few ms; a busy machine in a second.
_TIMEOUT_S = 5.0
_STYLES = {
    StreamVerdict.OK.value: "green",
    StreamVerdict.SLOW.value: "yellow",
    StreamVerdict.CANNOT_TELL.value: "bold white on grey35",
    StreamVerdict.STALLED.value: "bold red",
    StreamVerdict.LOSING.value: "bold white on red",
}
# Colours of the bar; each node's letter stands in it, so that no colour is needed to read it.
_NODES = {
    Node.GATEWAY.value: ("g", "blue"),
    Node.KAFKA.value: ("k", "cyan"),
    Node.DELIVERY.value: ("d", "magenta"),
    Node.RETRY_TIER.value: ("t", "yellow"),
    Node.RETRIER.value: ("r", "red"),
    Node.DEAD_LETTERS.value: ("x", "bright_black"),
}
_MINUTES = {
    MinuteState.COMPLETE.value: ("■", "green"),
    MinuteState.OPEN.value: ("·", "bright_black"),
    MinuteState.CANNOT_TELL.value: ("?", "bold"),
    MinuteState.LOSING.value: ("✗", "bold red"),
}
_GAP = 2
_BAR_CHARS = 16
_MINUTES_SHOWN = 15


def top(
    console: Annotated[
        str, typer.Option(envvar="HIFI_CONSOLE", metavar="URL", help="The console.")
    ] = options.CONSOLE_DEFAULT,
    api_key: options.ApiKey = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show every stream's verdict, lag, books and loss, live, until Ctrl-C.

    hifi top

    hifi top --once --json
    """
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=console, headers=headers, timeout=_TIMEOUT_S) as client:
        if as_json:
            print_json(_read(client))
            return
        if once or not out.is_terminal:
            out.print(screen(_read(client), width=out.width))
            return
        with Live(console=out, auto_refresh=False, screen=True) as live:
            live.update(screen(_read(client), width=out.width), refresh=True)
            while True:
                time.sleep(_STEP_S)
                try:
                    live.update(screen(_read(client), width=out.width), refresh=True)
                except UsageError as error:
                    # It may come back; until then nobody must take old figures for new ones.
                    live.update(Text(f"  {error}", style="red"), refresh=True)


def screen(overview: Mapping[str, Any], *, width: int) -> Group:
    """The overview as a person sees it, on so many columns."""
    verdict = overview["verdict"]
    head = Text("  ")
    head.append(f" {verdict} ", style=_STYLES[verdict])
    head.append(f"  {harmless(overview['headline'])}", style="bold")
    head.append(f"  {wording.clock(overview['at_ms'])} UTC", style="dim")
    troubles = [
        Text(f"  {harmless(trouble)}", style="yellow")
        for trouble in (overview["problem"], overview["audit"]["problem"])
        if trouble
    ]
    rows = [row for stream in overview["streams"] for row in stream["destinations"]]
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


def _read(client: httpx.Client) -> dict[str, Any]:
    try:
        answer = client.get("/api/overview")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UsageError(
            f"No console answers at {client.base_url} ({error}):"
            " start one with `hifi up`, or name another with --console URL."
        ) from error
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise UsageError(
            f"The console at {client.base_url} asks for a key:"
            " name one with --api-key or HIFI_API_KEY."
        )
    try:
        answer.raise_for_status()
        overview: dict[str, Any] = answer.json()
    except (httpx.HTTPStatusError, ValueError) as error:
        raise UsageError(
            f"What answers at {client.base_url} is no console of Hifi ({error}):"
            " name it with --console URL."
        ) from error
    return overview


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    cells: list[Text]
    is_number: bool = True
    # What goes first when a terminal is narrow; 0 never goes.
    goes: int = 0

    @property
    def width(self) -> int:
        return max(len(self.head), *(cell.cell_len for cell in self.cells)) + _GAP


def _table(rows: list[dict[str, Any]], *, now_ms: int, width: int) -> Table:
    """As many columns as fit whole: half a number would be another number."""
    shown = _columns(rows, now_ms)
    while sum(column.width for column in shown) > width:
        least = max(shown, key=lambda column: column.goes)
        if not least.goes:
            break
        shown.remove(least)
    table = Table(box=None, header_style="dim", padding=(0, _GAP, 0, 0), pad_edge=True)
    for column in shown:
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        table.add_column(column.head, justify=justify, no_wrap=True)
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*row)
    return table


def _columns(rows: list[dict[str, Any]], now_ms: int) -> list[_Column]:
    longest_ms = max((_mean_ms(row) for row in rows), default=0.0)

    def books(name: str) -> list[Text]:
        return [Text(wording.count(row["balance"][name])) for row in rows]

    unaccounted = [
        Text(str(cell), style="green" if cell.plain == "0" else "bold red")
        for cell in books("unaccounted")
    ]
    p95 = [row["since_accepted"] and row["since_accepted"]["p95_ms"] / 1000 for row in rows]
    return [
        _Column(
            "destination",
            [Text(harmless(row["destination_id"])) for row in rows],
            is_number=False,
        ),
        _Column(
            "verdict",
            [Text(row["verdict"], style=_STYLES[row["verdict"]]) for row in rows],
            is_number=False,
        ),
        _Column(
            "lag by node",
            [_bar(row, longest_ms) for row in rows],
            is_number=False,
            goes=6,
        ),
        _Column("p95", [Text(wording.duration(seconds)) for seconds in p95]),
        _Column(
            "oldest",
            [Text(wording.duration(row["oldest_age_s"])) for row in rows],
            goes=1,
        ),
        _Column("acked", books("acked"), goes=4),
        _Column("delivered", books("delivered"), goes=3),
        _Column("on the way", books("pending"), goes=2),
        _Column("waiting", books("waiting")),
        _Column("dead", books("dead")),
        _Column("unaccounted", unaccounted),
        _Column(
            f"last {_MINUTES_SHOWN} minutes",
            [_minutes(row, now_ms) for row in rows],
            is_number=False,
            goes=5,
        ),
    ]


def _mean_ms(row: dict[str, Any]) -> float:
    return sum(map(float, row["time_shares"].values()))


def _bar(row: dict[str, Any], longest_ms: float) -> Text:
    """Letters as long as the mean time at each node, the slowest destination's fill the width."""
    bar = Text()
    for node, mean_ms in row["time_shares"].items():
        if longest_ms > 0:
            letter, style = _NODES[node]
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
    nodes = "  ".join(f"{letter} {node}" for node, (letter, _) in _NODES.items())
    minutes = "  ".join(f"{sign} {state}" for state, (sign, _) in _MINUTES.items())
    return Text(f"\n  {nodes}\n  {minutes}", style="dim")
