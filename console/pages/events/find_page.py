"""The page that finds events by id, ordering key or request id, in one stream or in all."""

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from console.page_request import PageRequest
from console.parts.layout import Page, form, still_page
from console.parts.markup import NOTHING, Child, Safe, tag
from console.parts.pieces import (
    code,
    event_path,
    newest_path,
    nothing_yet,
    pager,
    stream_choice,
    table,
    ways,
)
from shared import wording
from shared.event.topics import stream_of
from shared.proof.acked import request_time_ms
from shared.runtime.kafka.lookup.key_search import EVENTS_MAX, KeyedEvents
from shared.runtime.kafka.lookup.streams_with_id import StreamsWithId

# The form's fields, and their labels.
_NAMES = {"id": "Event id", "key": "Ordering key", "request": "Request id"}
_OFF = (
    "The index of events is switched off, so choose a stream, or ask the operator to set"
    " HIFI_OBSERVE_INDEX_BYTES_MAX to more than 0."
)


def find_head(asked: PageRequest) -> list[Child]:
    """Return the title, and the form that asks for an id, a key or a request id."""
    fields = [
        tag("label", f"{says} ",
            tag("input", name=name, value=asked.field(name), autocomplete="off",
                spellcheck="false", size=36 if name == "request" else 24))
        for name, says in _NAMES.items()
    ]  # fmt: skip
    lead = (
        "Search by event id, ordering key or request id. The newest match is shown with every"
        " attempt."
    )
    return [
        tag("h1", "Find an event"),
        tag("p", lead, class_="lead"),
        form(
            "get",
            "/events",
            {},
            stream_choice(
                asked.streams, asked.field("stream"), first=tag("option", "all streams", value="")
            ),
            *fields,
            tag("button", "Find", type="submit"),
            class_="row card pad",
        ),
    ]


async def find_page(asked: PageRequest) -> Page | Response:
    """Show the results of a search; only the form if no field is filled in."""
    stream = asked.field("stream")
    match [name for name in _NAMES if asked.field(name)]:
        case []:
            return _page(asked)
        case ["id"]:
            return await _by_id(asked, asked.field("id"))
        case ["key" | "request" as name] if stream:
            path = newest_path(stream, **{name: asked.field(name)})
            return RedirectResponse(path, status_code=303)
        case ["key"]:
            return await _by_key(asked, asked.field("key"))
        case ["request"]:
            return await _by_request(asked, asked.field("request"))
        case _:
            return _page(asked, nothing_yet("Fill in only one of the three fields."))


async def _by_id(asked: PageRequest, event_id: str) -> Page | Response:
    """Show the streams in which the index has the id; if there is only one, the event itself."""
    streams = _left_streams(asked)
    async with asked.search_turn():
        known = await asked.sources.events.among(streams, event_id)
    if len(known.streams) == 1 and known.asked_count == len(asked.streams):
        return RedirectResponse(event_path(known.streams[0], event_id), status_code=303)
    links = [tag("li", tag("a", each, href=event_path(each, event_id))) for each in known.streams]
    return _page(
        asked,
        tag("ul", links) if links else NOTHING,
        tag("p", _said_of_all(known, "id"), class_="quiet" if links else "none"),
        _further(asked, known, streams, "id"),
        status=wording.plural(len(links), "stream") + " found",
    )


async def _by_key(asked: PageRequest, key: str) -> Page | Response:
    """Show the newest events of the key in all streams in which the index has it."""
    streams = _left_streams(asked)
    async with asked.search_turn():
        keyed = await asked.sources.events.of_key(streams, key)
    rows: list[list[Child]] = [
        [
            tag("a", code(event.event_id), href=event_path(event.stream, event.event_id)),
            event.stream,
            wording.moment(stored_at_ms),
            wording.moment(event.event_time_ms),
        ]
        for event, stored_at_ms in keyed.events
    ]
    heads = ("Event", "Stream", "Stored at", "Event time")
    return _page(
        asked,
        table(heads, rows, caption="Events of this key, newest first") if rows else NOTHING,
        tag("p", _said_of_all(keyed.told, "key"), class_="none" if not rows else "quiet"),
        _all_of_key(keyed, key),
        _further(asked, keyed.told, streams, "key"),
        status=wording.plural(len(rows), "event") + " found",
    )


def _all_of_key(found: KeyedEvents, key: str) -> Safe:
    """Link to all events of the key: this page reads only the newest that the index has."""
    named = sorted({event.stream for event, _ in found.events} | set(found.unread))
    if not named:
        return NOTHING
    note = f"These are the newest in the index, {EVENTS_MAX} at most. "
    if found.unread:
        note += "Some of them could not be read in time. "
    links = ways((stream, newest_path(stream, key=key)) for stream in named)
    return tag("p", note, "All events of this key, by stream: ", links, ".",
               class_="warn" if found.unread else "quiet")  # fmt: skip


async def _by_request(asked: PageRequest, request_id: str) -> Page | Response:
    """Go to the events of a request, on the page of newest events of their stream."""
    came_ms = request_time_ms(request_id)
    if came_ms is None:
        return _page(asked, nothing_yet("This is not a request_id. Answers contain it, as a UUID."))
    since_ms = max(came_ms, asked.number("from") or 0)
    async with asked.search_turn():
        request = await asked.sources.events.request(request_id, since_ms=since_ms)
    stream = stream_of(request.topic)
    if request.ids and stream in asked.streams:
        return RedirectResponse(newest_path(stream, request=request_id), status_code=303)
    if not request.ids and request.read_until_ms is not None:
        read_ms = request.read_until_ms
        text = f"Not in the ledger up to {wording.moment(read_ms)}; there is more to read."
        path = "/events?" + urlencode({"request": request_id, "from": read_ms})
        return _page(asked, nothing_yet(text), pager([("Read on", path)], "Ledger"))
    # The same text for requests of other tenants.
    text = (
        "No request with this id has brought events to a stream that you may see. The id may be"
        " wrong, all its events may have been refused, or it is older than the ledger. New requests"
        " are in the ledger within a second or two."
    )
    return _page(asked, nothing_yet(text))


def _left_streams(asked: PageRequest) -> list[str]:
    """Return the streams after those that the previous page has covered."""
    after = asked.field("after")
    return [each for each in asked.streams if each > after]


def _further(asked: PageRequest, told: StreamsWithId, streams: Sequence[str], name: str) -> Safe:
    """Link to the search in the streams that are not covered yet."""
    left = len(streams) - told.asked_count
    if not (left and told.asked_count):
        return NOTHING
    query = {name: asked.field(name), "after": streams[told.asked_count - 1]}
    path = "/events?" + urlencode(query, errors="replace")
    return pager([(f"Look in {wording.plural(left, 'further stream')}", path)], "Streams")


def _said_of_all(told: StreamsWithId, name: str) -> str:
    if not told.has_index:
        return _OFF
    sentence = f"Searched the index of {name}s in {wording.plural(told.asked_count, 'stream')}"
    if told.index_is_behind:
        sentence += ", which does not cover all events yet"
    if not told.streams:
        sentence += f": no event with this {name}. Choose a stream to search its log"
    return sentence + "."


def _page(asked: PageRequest, *content: Child, status: str = "") -> Page:
    return still_page(
        "Find an event", "/events", "event", *find_head(asked), *content, status=status
    )
