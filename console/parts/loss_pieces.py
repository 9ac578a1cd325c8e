"""Shows loss: a heat-map with a row for each destination and a cell for each minute; a table."""

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

from console.page_context import worst_first
from console.parts import charts
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import code, event_path, path_of, section, table
from shared import wording
from shared.event.times import MINUTE_MS, minute_of
from shared.proof.overview import DestinationView, MinuteBooks, MinuteState

# People look back an hour.
MINUTES_SHOWN = 60
# With more rows than this, each run of similar minutes becomes one cell.
_EACH_MAX = 10
# The maximum number of destinations with a row, worst first.
_ROWS_MAX = 50
# The alert's threshold for a large loss.
_MUCH = 0.01
_LEVELS = (
    ("empty", "no events"),
    ("checked", "nothing lost"),
    ("waiting", "nothing lost; some wait or are dead"),
    ("unchecked", "not checked yet"),
    ("blind", "cannot tell"),
    ("some", "loss"),
    ("much", "loss over 1 %"),
)
_LEVEL_OF = {
    MinuteState.CHECKED: "checked",
    MinuteState.UNCHECKED: "unchecked",
    MinuteState.CANNOT_TELL: "blind",
    MinuteState.LOSS: "some",
}

# The level, its description, and the number of minutes.
_Cell: TypeAlias = tuple[str, str, int]


def loss_section(destinations: Sequence[DestinationView], *, now_ms: int) -> Safe:
    if not destinations:
        return NOTHING
    newest_ms = minute_of(now_ms)
    wanted_ms = [newest_ms - back * MINUTE_MS for back in reversed(range(MINUTES_SHOWN))]
    shown = _worst(destinations, wanted_ms[0])
    rows: list[list[Child]] = []
    for view in shown:
        by_minute = {books.minute_ms: books for books in view.minutes}
        cells = [_heat_cell(by_minute.get(at_ms), at_ms) for at_ms in wanted_ms]
        if len(shown) > _EACH_MAX:
            cells = _runs(cells, wanted_ms)
        lost = _lost(view, wanted_ms[0])
        says = f"{wording.plural(lost, 'event')} lost in the last hour"
        rows.append(
            [
                tag("a", view.destination_id, href=path_of(view)),
                charts.heat_row(
                    tuple(cells), title=f"Loss by minute, {view.destination_id}", says=says
                ),
                wording.count(lost),
            ]
        )
    span = f"{wording.minute(wanted_ms[0])} to {wording.minute(newest_ms)}"
    heads = ("Destination", f"Minutes of event time, {span}", "Lost")
    keys = [
        tag("li", tag("span", class_=f"heat-key {level}", aria_hidden="true"), says)
        for level, says in _LEVELS
    ]
    return section(
        "Loss by minute",
        table(heads, rows, caption="Loss by minute", numbers_from=2),
        tag("ul", keys, class_="legend"),
        note="Sets of event ids, compared stage by stage once a minute is checked."
        + (f" {_ROWS_MAX} of {len(destinations):,} are shown: by events lost, then by verdict."
           if len(destinations) > _ROWS_MAX else ""),
    )  # fmt: skip


def _worst(destinations: Sequence[DestinationView], since_ms: int) -> Sequence[DestinationView]:
    if len(destinations) <= _ROWS_MAX:
        return destinations
    ordered = sorted(worst_first(destinations), key=lambda view: -_lost(view, since_ms))
    return ordered[:_ROWS_MAX]


def _lost(view: DestinationView, since_ms: int) -> int:
    minutes = (books for books in view.minutes if (books.minute_ms or 0) >= since_ms)
    return sum(books.lost_count for books in minutes)


def _runs(cells: Sequence[_Cell], minutes_ms: Sequence[int]) -> list[_Cell]:
    """Join each run of similar minutes into one cell."""
    runs: list[_Cell] = []
    for level, alike in groupby(range(len(cells)), key=lambda at: cells[at][0]):
        first, *others = alike
        words = cells[first][1]
        if others:
            begin, end = wording.minute(minutes_ms[first]), wording.minute(minutes_ms[others[-1]])
            words = f"{begin} to {end}: {dict(_LEVELS)[level]}"
        runs.append((level, words, 1 + len(others)))
    return runs


def minutes_table(view: DestinationView) -> Safe:
    """Show the missing events by id, and the heat-map's numbers in a table that opens on demand."""
    if not view.minutes:
        return NOTHING
    rows: list[list[Child]] = [
        [
            "implausible event times" if books.minute_ms is None
            else wording.moment(books.minute_ms)[:16],
            books.state.value,
            _where_lost(books) or books.problem or "",
            *map(wording.count, (books.acked, books.delivered, books.waiting, books.dead)),
            wording.count(books.lost_count),
        ]
        for books in view.minutes
    ]  # fmt: skip
    heads = ("Minute (UTC)", "State", "Why", "Acknowledged", "Delivered", "Waiting", "Dead", "Lost")
    missing = [event for books in view.minutes for event in books.missing]
    listed = [
        [
            _event_link(view.stream, event.event_id),
            event.stage.value,
            tag("code", f"{event.topic}, partition {event.partition}, offset {event.offset}"),
        ]
        for event in missing[:100]
    ]
    return fragment(
        section(
            "Lost events",
            table(("Event id", "Stage", "Place in the log"), listed, caption="Lost events"),
        )
        if listed
        else NOTHING,
        tag(
            "details",
            tag("summary", "Minutes as a table"),
            table(heads, rows, caption=f"Minutes of {view.destination_id}", numbers_from=3),
            id="minutes-table",
        ),
    )


def _event_link(stream: str, event_id: str) -> Safe:
    if not event_id:
        return tag("span", "(its id is lost too)", class_="quiet")
    return tag("a", code(event_id), href=event_path(stream, event_id))


def heat_level(books: MinuteBooks | None) -> str:
    """Return the colour of a minute; an unknown state is never green."""
    if books is None:
        return "empty"
    if books.lost_count:
        return "much" if books.lost_part > _MUCH else "some"
    if books.state is MinuteState.CHECKED and books.waiting + books.dead:
        # Nothing is lost, but not all events have arrived.
        return "waiting"
    return _LEVEL_OF[books.state]


def _heat_cell(books: MinuteBooks | None, at_ms: int) -> _Cell:
    level = heat_level(books)
    when = wording.minute(at_ms)
    if books is None:
        return level, f"{when}: no events", 1
    what = _where_lost(books) or dict(_LEVELS)[level]
    return level, f"{when}: {what}, of {wording.plural(books.acked, 'event')}", 1


def _where_lost(books: MinuteBooks) -> str:
    return ", ".join(
        f"{wording.count(number)} lost at {stage.value}"
        for stage, number in books.lost.items()
        if number
    )
