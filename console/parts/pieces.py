"""The pieces that several pages share: verdicts, tables, books, links, forms."""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from shared import wording
from shared.event.topics import pipeline_of
from shared.glossary import hint_of, word_of
from shared.proof.balance import Balance
from shared.proof.overview import DestinationView, Quantiles, StreamVerdict


def badge(verdict: StreamVerdict) -> Safe:
    """Show the verdict as a word, a shape and a colour, in this order of importance."""
    kind = verdict.value.lower().replace(" ", "-")
    return tag("span", verdict.value, class_=f"word {kind}")


def term(name: str) -> Child:
    """Return a name with its meaning, which shows on hover and on keyboard focus."""
    word = word_of(name)
    if word is None:
        return name
    return tag("a", name, href=f"/words#{word.anchor}", title=hint_of(word), class_="term")


def path_of(view: DestinationView) -> str:
    """Return the path of a destination's or a pipeline's page."""
    pipeline = pipeline_of(view.destination_id)
    return f"/streams/{view.destination_id}" if pipeline is None else f"/pipelines/{pipeline}"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[Child]], *, caption: str, numbers_from: int = 99
) -> Safe:
    """Return a table; from `numbers_from` on, columns align right."""
    head = tag(
        "tr",
        [
            tag("th", term(name), scope="col", class_="number" if at >= numbers_from else None)
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


def newest_path(stream: str, **picked: str) -> str:
    """Return the path of a stream's newest events, or of those that match `picked`."""
    return "/events/newest?" + urlencode({"stream": stream, **picked}, errors="replace")


def event_path(stream: str, event_id: str) -> str:
    """Return the path of an event's trace."""
    # The sender chose the id: half of a surrogate pair in it must not break a page of others.
    return "/events?" + urlencode({"stream": stream, "id": event_id}, errors="replace")


def links_to(names: Iterable[str], below: str) -> Safe:
    """Return links to several things of a kind, in a line."""
    links = [tag("a", name, href=f"{below}/{name}") for name in names]
    return fragment([[", " if index else NOTHING, link] for index, link in enumerate(links)])


def ways(links: Iterable[tuple[str, str]]) -> Safe:
    """Return links to actions, in a line."""
    # A fixed blank keeps the dots on the line of their word.
    anchors = [tag("a", says.replace(" …", "\u00a0…"), href=path) for says, path in links]
    return fragment([[" · " if index else NOTHING, link] for index, link in enumerate(anchors)])


def dead_path(path: str = "/dead", /, **filters: str) -> str:
    """Return the path of some dead letters, grouped by cause."""
    asked = {name: value for name, value in filters.items() if value}
    # A destination's answer may end in half of a surrogate pair.
    query = urlencode(asked, safe=":", errors="replace")
    return f"{path}?{query}" if query else path


def letters_path(**filters: str) -> str:
    """Return the path of some dead letters, one by one."""
    return dead_path("/dead/letters", **filters)


def figure(says: str, path: str, *, kind: str = "") -> Safe:
    """Return a figure, with a link to the counted things if `path` is given."""
    if path:
        return tag("a", says, href=path, class_=f"figure {kind}".strip())
    return tag("span", says, class_=kind or None)


def books(
    destinations: Sequence[DestinationView],
    *,
    acked: int | None = None,
    paths: Mapping[str, str],
) -> Safe:
    """Show the sum of the books: acked = delivered + queued + waiting + dead + unaccounted.

    `acked`, for several destinations: the number of events, each of which counts once. `paths`:
    where to see the counted events, by the name of the count.
    """
    total = sum((view.balance for view in destinations), Balance())
    whole = [("acked", "acknowledged", total.acked, "whole")]
    if acked is not None:
        whole = [
            ("acked", "events acknowledged", acked, "whole"),
            ("due", "deliveries due", total.acked, ""),
        ]
    figures = (
        *whole,
        ("delivered", "delivered", total.delivered, ""),
        ("queued", "queued", total.queued, ""),
        ("waiting", "waiting for a retry", total.waiting, ""),
        ("dead", "dead letters", total.dead, "warn" if total.dead else ""),
        ("unaccounted", "unaccounted", total.unaccounted, "bad" if total.unaccounted else "good"),
    )
    return figures_list(
        [
            (name, number, paths.get(count, "") if number else "", kind)
            for count, name, number, kind in figures
        ],
        kind="" if acked is None else "many",
    )


def figures_list(figures: Sequence[tuple[str, int, str, str]], *, kind: str) -> Safe:
    """Show counts. Each has a name, a number, a path to the counted things, and a kind (colour)."""
    return tag(
        "dl",
        [
            tag("div", tag("dt", term(name)), tag("dd", figure(wording.count(number), path)),
                class_=kind or None)
            for name, number, path, kind in figures
        ],
        class_=f"figures {kind}".strip(),
    )  # fmt: skip


def facts_list(facts: Sequence[tuple[str, Child]]) -> Safe:
    return tag(
        "dl",
        [tag("div", tag("dt", term(name)), tag("dd", value)) for name, value in facts],
        class_="facts card",
    )


def hero(
    name: str,
    verdict: StreamVerdict,
    crumbs: Child,
    *lead: Child,
    views: Sequence[DestinationView],
    paths: Mapping[str, str],
    acked: int | None = None,
) -> Safe:
    """Return the top of a page about one thing: its breadcrumbs, its verdict and its books."""
    return tag(
        "section",
        tag("p", tag("a", "Overview", href="/"), " / ", crumbs, class_="crumbs"),
        tag("h1", name, " ", badge(verdict)),
        *lead,
        books(views, acked=acked, paths=paths),
        class_="hero",
    )


def done_note(says: str) -> Safe:
    """Return a note about the change just made; nothing when there was none."""
    return tag("p", says, class_="done", role="status") if says else NOTHING


def stream_choice(streams: Sequence[str], chosen: str, *, first: Child = None) -> Safe:
    """Return a field to choose the stream with."""
    return choice("Stream", "stream", streams, chosen, first=first)


def choice(
    says: str, name: str, values: Sequence[str], chosen: str, *, first: Child = None
) -> Safe:
    """Return a field to choose one of several values with."""
    options = [tag("option", each, value=each, selected=each == chosen) for each in values]
    return tag("label", f"{says} ", tag("select", first, options, name=name))


def pager(links: Sequence[tuple[str, str]], label: str) -> Safe:
    """Return links to neighbouring pages; links without a path are left out."""
    there = [tag("a", says, href=path) for says, path in links if path]
    return tag("nav", there, aria_label=label, class_="pager") if there else NOTHING


def p95(lag: Quantiles | None) -> str:
    return wording.duration(lag.p95_ms / 1000 if lag else None)


def section(title: str, *content: Child, note: str = "") -> Safe:
    remark = tag("p", note, class_="note") if note else NOTHING
    return tag("section", tag("h2", title), remark, *content)


def nothing_yet(says: str) -> Safe:
    return tag("p", says, class_="none")


def code(text: str) -> Safe:
    return tag("code", text)


def _cell(cell: Child, head: str, *, at: int, numbers_from: int) -> Safe:
    """Return a cell; phones show its `data-head` beside it, as they have no room for columns."""
    if at == 0:
        return tag("th", cell, scope="row")
    return tag("td", cell, data_head=head, class_="number" if at >= numbers_from else None)
