"""Draws the pieces that several pages share: the verdict word, tables, books."""

from collections.abc import Sequence

from observe.console.parts import wording
from observe.console.parts.markup import NOTHING, Child, Safe, tag
from shared.event.topics import pipeline_of
from shared.proof.balance import Balance
from shared.proof.overview import DestinationView, Quantiles, StreamVerdict


def badge(verdict: StreamVerdict) -> Safe:
    """The verdict: a word, a shape and a colour, in this order of importance."""
    kind = verdict.value.lower().replace(" ", "-")
    return tag("span", verdict.value, class_=f"word {kind}")


def path_of(view: DestinationView) -> str:
    """Where the page of a destination is, or of a pipeline."""
    pipeline = pipeline_of(view.destination_id)
    return f"/streams/{view.destination_id}" if pipeline is None else f"/pipelines/{pipeline}"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[Child]], *, caption: str, numbers_from: int = 99
) -> Safe:
    """A table with heads for rows and columns; from `numbers_from` on, columns stand right."""
    head = tag(
        "tr",
        [
            tag("th", name, scope="col", class_="number" if at >= numbers_from else None)
            for at, name in enumerate(heads)
        ],
    )
    body = [
        tag("tr", [_cell(cell, heads[at], at=at, numbers_from=numbers_from)
                   for at, cell in enumerate(row)])
        for row in rows
    ]  # fmt: skip
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))
    # Focusable, so that a keyboard can scroll it too.
    return tag("div", inner, class_="card scroll", role="region", aria_label=caption, tabindex="0")


def books(destinations: Sequence[DestinationView], *, acked: int | None = None) -> Safe:
    """What adds up: acked = delivered + on their way + waiting + dead + unaccounted.

    `acked` for several destinations: an event counts once, and is due to each of them.
    """
    total = sum((view.balance for view in destinations), Balance())
    whole = [("acknowledged", total.acked, "whole")]
    if acked is not None:
        whole = [("events acknowledged", acked, "whole"), ("deliveries due", total.acked, "")]
    return tag(
        "dl",
        [
            tag("div", tag("dt", name), tag("dd", wording.count(number)), class_=kind or None)
            for name, number, kind in (
                *whole,
                ("delivered", total.delivered, ""),
                ("on their way", total.pending, ""),
                ("waiting for a retry", total.waiting, ""),
                ("dead letters", total.dead, "warn" if total.dead else ""),
                ("unaccounted", total.unaccounted, "bad" if total.unaccounted else "good"),
            )
        ],
        class_="figures" if acked is None else "figures many",
    )


def facts_list(facts: Sequence[tuple[str, Child]]) -> Safe:
    return tag(
        "dl",
        [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts],
        class_="facts card",
    )


def hero(
    name: str,
    verdict: StreamVerdict,
    crumbs: Child,
    *lead: Child,
    views: Sequence[DestinationView],
    acked: int | None = None,
) -> Safe:
    """The top of a page about one thing: where it is, how it is, and its books."""
    return tag(
        "section",
        tag("p", tag("a", "Overview", href="/"), " / ", crumbs, class_="crumbs"),
        tag("h1", name, " ", badge(verdict)),
        *lead,
        books(views, acked=acked),
        class_="hero",
    )


def done_note(says: str) -> Safe:
    """What has just been done; nothing when nothing was."""
    return tag("p", says, class_="done", role="status") if says else NOTHING


def stream_choice(streams: Sequence[str], chosen: str, *, first: Child = None) -> Safe:
    """The field of a form that says which stream is meant."""
    options = [tag("option", name, value=name, selected=name == chosen) for name in streams]
    return tag("label", "Stream ", tag("select", first, options, name="stream"))


def p95(lag: Quantiles | None) -> str:
    return wording.duration(lag.p95_ms / 1000 if lag else None)


def section(title: str, *content: Child, note: str = "") -> Safe:
    said = tag("p", note, class_="note") if note else NOTHING
    return tag("section", tag("h2", title), said, *content)


def nothing_yet(says: str) -> Safe:
    return tag("p", says, class_="none")


def code(text: str) -> Safe:
    return tag("code", text)


def _cell(cell: Child, head: str, *, at: int, numbers_from: int) -> Safe:
    """`data-head` is what a phone writes beside the cell when there is no room for columns."""
    if at == 0:
        return tag("th", cell, scope="row")
    return tag("td", cell, data_head=head, class_="number" if at >= numbers_from else None)
