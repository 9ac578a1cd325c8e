"""The page of the newest events of a stream, as the gateway finds them in the log."""

from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from observe.console.page_request import PageRequest
from observe.console.parts import wording
from observe.console.parts.layout import Page, form, still_page
from observe.console.parts.markup import NOTHING, Child, Safe, tag
from observe.console.parts.pieces import (
    code,
    event_path,
    newest_path,
    nothing_yet,
    pager,
    stream_choice,
    table,
)

# As long as the gateway looks for.
_TEXT_CHARS_MAX = 1_000
# The gateway's cursors are numbers and dots; what is longer is none.
_CURSOR_CHARS_MAX = 20_000


async def newest_page(asked: PageRequest) -> Page:
    stream, text = asked.field("stream"), asked.field("contains")[:_TEXT_CHARS_MAX]
    before = asked.field("before")[:_CURSOR_CHARS_MAX]
    content: list[Child] = [
        tag("h1", "Newest events"),
        tag("p", "Of one stream, the newest first. What an event says stands on its own page.",
            class_="lead"),
        _choice(asked, stream, text),
    ]  # fmt: skip
    status = ""
    if stream:
        if stream not in asked.streams:
            raise HTTPException(404, "There is no such stream, or it is not yours.")
        # Whoever looks for a text sees what events say.
        if text and not asked.viewer.may_change:
            raise HTTPException(403, "Looking into events needs a key with the scope admin.")
        found = await asked.control.newest(stream, before=before, contains=text)
        status = f"{wording.plural(len(found['events']), 'event')} shown"
        content += [_rows(stream, found), _older(stream, text, found, is_first=not before)]
    return still_page("Newest events", "/events", "newest", content, status=status)


def _choice(asked: PageRequest, stream: str, text: str) -> Safe:
    field = tag("input", name="contains", value=text, size=24, autocomplete="off",
                spellcheck="false")  # fmt: skip
    return form(
        "get",
        "/events/newest",
        {},
        stream_choice(asked.streams, stream),
        tag("label", "With this text in it ", field) if asked.viewer.may_change else NOTHING,
        tag("button", "Show", type="submit"),
        tag("a", "Find one by its id", href="/events"),
        class_="row card pad",
    )


def _rows(stream: str, found: dict[str, Any]) -> Safe:
    events = found["events"]
    if not events:
        said = (
            "No event." if found["is_complete"] else "None so far; there is more to look through."
        )
        return nothing_yet(said)
    heads = ("Event", "Accepted at", "Event time", "Ordering key", "Place in the log")
    rows: list[list[Child]] = [
        [
            tag("a", code(event["id"]), href=event_path(stream, event["id"])),
            wording.moment(event["accepted_at_ms"]),
            wording.moment(event["event_time_ms"]),
            code(event["key"]) if event["key"] is not None else wording.NONE,
            _place(event["place"]),
        ]
        for event in events
    ]
    return table(heads, rows, caption=f"Newest events of {stream}")


def _place(text: str) -> str:
    partition, _, offset = text.partition(":")
    return f"partition {partition}, offset {offset}"


def _older(stream: str, text: str, found: dict[str, Any], *, is_first: bool) -> Safe:
    newest = newest_path(stream)
    if text:
        newest += "&" + urlencode({"contains": text})
    older = f"{newest}&{urlencode({'before': found['older']})}" if found["older"] else ""
    return pager([("" if is_first else "Newest", "" if is_first else newest), ("Older", older)],
                 "More events")  # fmt: skip
