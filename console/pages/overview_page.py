"""The overview: first the worst trouble, then each stream's verdict, then lag and loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from console.page_context import PageContext, worst_first
from console.parts.first_use import first_steps, is_first_use
from console.parts.lag_pieces import lag_section
from console.parts.layout import Page, Region
from console.parts.loss_pieces import loss_section
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pictures import pictures_section
from console.parts.pieces import (
    badge,
    books,
    dead_path,
    figure,
    nothing_yet,
    p95,
    path_of,
    section,
    table,
)
from console.parts.search_list import ROWS_MAX, more_note
from observe.lag.time_shares import time_shares
from shared import wording
from shared.proof.overview import (
    DestinationView,
    Overview,
    RemovedView,
    StreamVerdict,
    StreamView,
    UnknownView,
)

# The link of each figure on the first screen.
_PATHS = {
    "acked": "/streams",
    "due": "/destinations",
    "delivered": "/destinations",
    "queued": "/destinations",
    "waiting": "/destinations",
    "dead": dead_path(),
    "unaccounted": "#loss",
}


def overview_page(
    context: PageContext, asked: Mapping[str, str], *, may_change: bool = False
) -> Page:
    overview = context.overview
    sentence = headline(overview)
    ordered = worst_first(overview.takers)
    return Page(
        title="Overview",
        here="/",
        status=f"{overview.verdict.value}: {sentence}",
        regions=(
            Region("headline", _hero(context, sentence)),
            Region("streams", _streams(context, ordered, may_change=may_change)),
            Region("removed", _removed(overview.removed)),
            Region("unknown", _unknown(overview.unknown)),
            Region("pictures", pictures_section(ordered, context, "/", asked)),
            Region("lag", lag_section(overview.takers)),
            Region("loss", loss_section(ordered, now_ms=overview.at_ms)),
        ),
    )


def headline(overview: Overview) -> str:
    """Return the one sentence that somebody who was just woken up must read."""
    streams = overview.streams
    if not streams:
        return overview.problem.capitalize() + "." if overview.problem else "No stream yet."
    everybody = overview.takers
    unaccounted = sum(view.balance.unaccounted for view in everybody)
    if unaccounted:
        where = _list([view.destination_id for view in everybody if view.balance.unaccounted])
        is_are = "is" if unaccounted == 1 else "are"
        return f"{wording.plural(unaccounted, 'event')} {is_are} unaccounted for in {where}."
    acked = sum(stream.acked for stream in streams) + overview.removed_acked
    verdict = overview.verdict
    if verdict is not StreamVerdict.OK:
        bad = [view.destination_id for view in everybody if view.verdict is verdict] or [
            stream.name for stream in streams if stream.verdict is verdict
        ]
        sentence = f"{_list(bad)} {_SAYS[verdict][len(bad) > 1]}"
        reasons = [view.reason for view in everybody if view.verdict is verdict]
        # The sentence has room for a single cause.
        return f"{sentence}: {reasons[0]}." if len(reasons) == 1 and reasons[0] else f"{sentence}."
    if not acked:
        return "Everything is ready. No event has arrived yet."
    return f"All {wording.plural(acked, 'acknowledged event')} are accounted for." if (
        acked != 1
    ) else "The one acknowledged event is accounted for."  # fmt: skip


_SAYS = {
    StreamVerdict.LOSING: ("has lost events", "have lost events"),
    StreamVerdict.DISABLED: ("is disabled", "are disabled"),
    StreamVerdict.REJECTING: ("refuses its events", "refuse their events"),
    StreamVerdict.FAILING: ("is failing", "are failing"),
    StreamVerdict.HELD: ("is held", "are held"),
    StreamVerdict.CANNOT_TELL: ("cannot be judged now", "cannot be judged now"),
    StreamVerdict.STALLED: ("is stalled", "are stalled"),
    StreamVerdict.RATE_LIMITED: ("is rate-limited", "are rate-limited"),
    StreamVerdict.SLOW: ("is slow", "are slow"),
    StreamVerdict.PAUSED: ("is paused", "are paused"),
}


def destinations_table(
    destinations: Sequence[DestinationView], *, caption: str, path: str = "/destinations"
) -> Safe:
    """Return a table of the first destinations; the page at `path` lists all."""
    heads = (
        "Stream → destination", "Verdict", "Why", "p95", "Oldest",
        "Queued", "Waiting", "Dead", "Unaccounted",
    )  # fmt: skip
    rows: list[list[Child]] = [
        [
            tag("a", view.stream, " → ", view.name, href=path_of(view)),
            badge(view.verdict),
            tag("span", view.reason, class_="why") if view.reason else "",
            p95(view.since_accepted),
            wording.duration(view.oldest_age_s),
            wording.count(view.balance.queued),
            wording.count(view.balance.waiting),
            figure(
                wording.count(view.balance.dead),
                dead_path(stream=view.stream, destination=view.name) if view.balance.dead else "",
            ),
            figure(
                wording.count(view.balance.unaccounted),
                f"{path_of(view)}#loss" if view.balance.unaccounted else "",
                kind="bad" if view.balance.unaccounted else "",
            ),
        ]
        for view in destinations[:ROWS_MAX]
    ]
    others = more_note(len(destinations) - ROWS_MAX, "all destinations", path)
    return fragment(table(heads, rows, caption=caption, numbers_from=3), others)


def _hero(context: PageContext, said: str) -> Safe:
    overview = context.overview
    troubles = [
        trouble
        for trouble in (overview.problem, overview.audit.problem)
        if trouble and overview.streams
    ]
    troubles += context.ailing
    return tag(
        "section",
        tag("p", badge(overview.verdict), tag("span", wording.clock(overview.at_ms), class_="at"),
            class_="verdict"),
        tag("h1", said),
        tag("ul", [tag("li", wording.sentence(trouble)) for trouble in troubles], class_="troubles")
        if troubles
        else NOTHING,
        books(
            overview.takers,
            acked=sum(stream.acked for stream in overview.streams),
            paths=_PATHS,
        ),
        class_="hero",
    )  # fmt: skip


def _streams(context: PageContext, ordered: Sequence[DestinationView], *, may_change: bool) -> Safe:
    overview = context.overview
    streams = overview.streams
    # If there is a problem, unreadable events may exist, so this may not be the first use.
    steps = NOTHING
    if is_first_use(overview) and not overview.problem:
        has_key = bool(context.configuration.keys)
        steps = first_steps(overview, has_key=has_key, may_change=may_change)
    if not streams:
        return steps or section("Streams", nothing_yet("No stream is known yet."))
    taken = {view.stream for view in ordered}
    lonely = [stream for stream in streams if stream.name not in taken]
    listed = section(
        "Streams",
        destinations_table(ordered, caption="Verdict of each stream, worst first")
        if ordered
        else NOTHING,
        _without(lonely),
    )
    return fragment(steps, listed)


def _without(lonely: Sequence[StreamView]) -> Safe:
    """Return links to a few streams without a destination, and to the page with the others."""
    if not lonely:
        return NOTHING
    named: list[Child] = []
    for stream in lonely[:3]:
        named += [", ", tag("a", stream.name, href=f"/streams/{stream.name}")]
    if len(lonely) > 3:  # noqa: PLR2004 - as said
        more = f"{len(lonely) - 3:,} more"
        named += [" and ", tag("a", more, href="/streams?only=unwanted")]
    return tag("p", "Without a destination: ", named[1:], ".", class_="note")


def _removed(removed: Sequence[RemovedView]) -> Safe:
    """Return the books of removed destinations."""
    if not removed:
        return NOTHING
    heads = ("Stream → destination", "Removed", "Acknowledged", "Delivered", "Waiting", "Dead",
             "Unaccounted")  # fmt: skip
    rows: list[list[Child]] = [
        [
            tag("span", gone.stream, " → ", gone.name),
            wording.clock(gone.removed_at_ms),
            *(
                wording.count(count)
                for count in (
                    gone.balance.acked,
                    gone.balance.delivered,
                    gone.balance.waiting,
                    gone.balance.dead,
                    gone.balance.unaccounted,
                )
            ),
        ]
        for gone in removed
    ]
    caption = "Outcomes of events up to the position of each destination when it was removed"
    return section("Removed", table(heads, rows, caption=caption, numbers_from=2))


def _unknown(unknown: Sequence[UnknownView]) -> Safe:
    """Return the events that wait for unknown destinations; usually there are none."""
    if not unknown:
        return NOTHING
    rows: list[list[Child]] = [
        [tag("span", each.stream, " → ", each.name), wording.count(each.waiting_events)]
        for each in unknown
    ]
    caption = "Events that wait for unknown destinations"
    why = (
        "A newer release may have created these destinations, or their records cannot be read here."
        " Their events are sent once the destination is known. At their deadline they become dead"
        " letters."
    )
    listed = table(("Stream → destination", "Waiting"), rows, caption=caption, numbers_from=1)
    return section("Unknown destinations", listed, tag("p", why, class_="note"))


def _list(names: Sequence[str]) -> str:
    """Join at most three names for a sentence, and count the others."""
    if len(names) > 3:  # noqa: PLR2004 - as said
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1] if names else ""]))


def as_json(overview: Overview) -> dict[str, Any]:
    """Return the overview for programs: fields by name, enums as words, the headline first."""
    members = msgspec.to_builtins(overview, str_keys=True)
    for stream, view in zip(members["streams"], overview.streams, strict=True):
        for destination, shown in zip(stream["destinations"], view.destinations, strict=True):
            destination["time_shares"] = dict(time_shares(shown))
    for pipeline, through in zip(members["pipelines"], overview.pipelines, strict=True):
        if through.lane is not None:
            pipeline["lane"]["time_shares"] = dict(time_shares(through.lane))
    return {"verdict": overview.verdict.value, "headline": headline(overview), **members}
