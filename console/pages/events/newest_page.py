"""The page of a stream's newest events, which the gateway finds in the log."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from console.control_session import OUTCOMES
from console.page_request import PageRequest
from console.parts.layout import Page, form, still_page
from console.parts.markup import NOTHING, Child, Safe, tag
from console.parts.pieces import (
    code,
    event_path,
    nothing_yet,
    pager,
    stream_choice,
    table,
)
from shared import wording

# The search fields, named as in the gateway's API.
_PICKED = ("destination", "outcome", "until", "key", "request", "contains")
# The longest text that the gateway searches for.
_TEXT_CHARS_MAX = 1_000
# The longest cursor of the gateway; it consists of numbers and dots.
_CURSOR_CHARS_MAX = 20_000


async def newest_page(asked: PageRequest) -> Page:
    stream, before = asked.field("stream"), asked.field("before")[:_CURSOR_CHARS_MAX]
    picked = {name: text for name in _PICKED if (text := asked.field(name)[:_TEXT_CHARS_MAX])}
    content: list[Child] = [
        tag("h1", "Newest events"),
        tag("p", "Events of one stream, newest first. Open one to see its content.",
            class_="lead"),
        _choice(asked, stream, picked),
    ]  # fmt: skip
    status = ""
    if stream:
        if stream not in asked.streams:
            raise HTTPException(404, "There is no such stream, or it is not yours.")
        # A search for a text reveals the content of events.
        if "contains" in picked and not asked.viewer.may_change:
            raise HTTPException(403, "Searching in events needs a key with the scope admin.")
        listing = await asked.control.newest(stream, before=before, picked=picked)
        status = f"{wording.plural(len(listing['events']), 'event')} shown"
        content += [_rows(stream, listing), _older(stream, picked, listing, is_first=not before)]
    return still_page("Newest events", "/events", "newest", content, status=status)


def _choice(asked: PageRequest, stream: str, picked: Mapping[str, str]) -> Safe:
    ours = asked.context.configuration.destinations_of(stream)
    names = sorted({each.name for each in ours} | {picked.get("destination", "")} - {""})

    def field(label: str, name: str, **more: str) -> Safe:
        made = tag("input", name=name, value=picked.get(name, ""), autocomplete="off",
                   spellcheck="false", **more)  # fmt: skip
        return tag("label", f"{label} ", made)

    return form(
        "get",
        "/events/newest",
        {},
        stream_choice(asked.streams, stream),
        _select("Destination", "destination", {name: name for name in names}, picked, first="any"),
        _select("Outcome", "outcome", {name: name for name in OUTCOMES}, picked,
                first="any"),
        field("Stored until (UTC)", "until", type="datetime-local"),
        field("Ordering key", "key", size="16"),
        field("Request id", "request", size="36"),
        field("Contains text", "contains", size="24") if asked.viewer.may_change
        else NOTHING,
        tag("button", "Show", type="submit"),
        tag("a", "Find an event by its id", href="/events"),
        class_="row card pad",
    )  # fmt: skip


def _select(
    label: str, name: str, values: Mapping[str, str], picked: Mapping[str, str], *, first: str
) -> Safe:
    options = [
        tag("option", says, value=value, selected=value == picked.get(name, ""))
        for value, says in {"": first, **values}.items()
    ]
    return tag("label", f"{label} ", tag("select", options, name=name))


def _rows(stream: str, found: dict[str, Any]) -> Safe:
    events, looked_at = found["events"], found["looked_at"]
    if not events:
        text = "No event found." if found["is_complete"] else "None so far; older events may match."
        if looked_at:
            text = f"No match among {wording.plural(looked_at, 'event')}."
        return nothing_yet(text)
    heads = ["Event", "Accepted at", "Event time", "Ordering key", "Place in the log"]
    is_told = "destinations" in events[0]
    heads += ["Outcomes"] if is_told else []
    rows: list[list[Child]] = [
        [
            tag("a", code(event["id"]), href=event_path(stream, event["id"])),
            wording.moment(event["accepted_at_ms"]),
            wording.moment(event["event_time_ms"]),
            code(event["key"]) if event["key"] is not None else wording.NONE,
            _place(event["place"]),
            *([_by_now(event["destinations"])] if is_told else []),
        ]
        for event in events
    ]
    caption = f"Newest events of {stream}"
    if is_told:
        caption += f", found among {wording.plural(looked_at, 'event')}"
    return table(heads, rows, caption=caption)


def _by_now(destinations: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{name}: {at['state']}" + (f" ({at['reason']})" if at.get("reason") else "")
        for name, at in destinations.items()
    )


def _place(text: str) -> str:
    partition, _, offset = text.partition(":")
    return f"partition {partition}, offset {offset}"


def _older(
    stream: str, picked: Mapping[str, str], found: dict[str, Any], *, is_first: bool
) -> Safe:
    newest = "/events/newest?" + urlencode({"stream": stream, **picked})
    older = ""
    if found["older"]:
        # The cursor says where to continue, so it replaces `until`.
        rest = {name: text for name, text in picked.items() if name != "until"}
        older = "/events/newest?" + urlencode({"stream": stream, **rest, "before": found["older"]})
    return pager([("" if is_first else "Newest", "" if is_first else newest), ("Older", older)],
                 "More events")  # fmt: skip
