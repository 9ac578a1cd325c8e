"""The route that lists events of a stream: the newest, or those from some point on."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator

from gateway.control.lookup.receipts import acked_request, follow, unknown_receipt
from gateway.control.lookup.whereabouts import At, ShownWhereabouts
from gateway.control.requests import (
    ControlPlane,
    PathName,
    Plane,
    Reader,
    TimeMs,
    also,
    as_json,
)
from gateway.problems import Problem
from gateway.watchers import client_left
from shared.event.derived import restore_of
from shared.event.envelope import open_stream_record
from shared.event.payload import payload_of
from shared.event.places import Places
from shared.event.record import RecordIn
from shared.event.topics import destination_id, stream_and_name, stream_topic
from shared.runtime.kafka.lookup.stream_pages import Cursor, StreamPage, Wanted
from shared.runtime.serving.deadlines import stays

router = APIRouter()

_COUNT_DEFAULT, _COUNT_MAX = 100, 1_000
# Load balancers wait longer than this for an answer.
_WAIT_S_MAX = 20.0


CursorText: TypeAlias = Annotated[
    Cursor,
    PlainValidator(lambda text: Cursor.of(str(text))),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,18})*$"}),
]


class EventQuery(BaseModel):
    """The events to list, and how many of them."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    limit: Annotated[int, Field(ge=1, le=_COUNT_MAX)] = _COUNT_DEFAULT
    # Newest first: only events older than a page's.
    before: CursorText | None = None
    # In the order of the log: events after a page's, or since a time.
    after: CursorText | None = None
    since_ms: TimeMs | None = Field(default=None, alias="from")
    # Newest first: only events stored before this time.
    until_ms: TimeMs | None = Field(default=None, alias="until")
    # Seconds to wait for an event if there is none yet.
    wait_s: Annotated[float, Field(ge=0, le=_WAIT_S_MAX)] = 0.0
    event_id: str | None = Field(default=None, alias="id")
    key: str | None = None
    request_id: str | None = Field(default=None, alias="request")
    contains: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None
    # Newest first: shows events' states at this destination, or at all of them.
    destination: str | None = None
    outcome: At | None = None
    # False: read the log without asking the index.
    by_index: bool = True

    @model_validator(mode="after")
    def _one_beginning(self) -> "EventQuery":
        given = [self.before, self.after, self.since_ms, self.until_ms]
        if sum(each is not None for each in given) > 1:
            raise ValueError("`before`, `until`, `after` and `from` exclude each other")
        if self.wait_s and self.is_newest:
            raise ValueError("wait_s needs after or from")
        if not self.is_newest and not {self.request_id, self.destination, self.outcome} <= {None}:
            raise ValueError("request, destination and outcome cannot be used with after or from")
        return self

    @property
    def is_newest(self) -> bool:
        return self.after is None and self.since_ms is None

    def wanted(self) -> Wanted:
        """Return a test for the wanted records."""
        tests: list[Callable[[RecordIn], bool]] = []
        if self.event_id is not None:
            tests.append(lambda record: open_stream_record(record).event_id == self.event_id)
        if self.key is not None:
            key = self.key.encode()
            tests.append(lambda record: record.key == key)
        if self.contains is not None:
            text = self.contains.encode()
            tests.append(lambda record: text in record.value)
        return lambda record: all(test(record) for test in tests)


IndexWord: TypeAlias = Literal["found", "none", "behind", "away"]


class StoredEvent(BaseModel):
    """An event as it is stored in the stream."""

    place: str = Field(description="The event's Kafka partition and offset.")
    id: str
    key: str | None
    stored_at_ms: int
    accepted_at_ms: int
    event_time_ms: int
    restored_by: str | None = Field(
        default=None,
        description="The restore that put the event back, at `stored_at_ms`; omitted if none did.",
    )
    destinations: dict[str, ShownWhereabouts] | None = Field(
        default=None, description="Its states, if the query has `destination` or `outcome`."
    )
    data: Any = Field(default=None, description="The event.")
    data_base64: str | None = Field(default=None, description="The event's bytes, if not JSON.")


class EventPage(BaseModel):
    """Some events, and where to continue."""

    events: list[StoredEvent]
    looked_at: int = Field(description="Number of events whose outcomes were looked up.")
    newer: str = Field(description="Pass it as `after` to get later events.")
    older: str | None = Field(description="Pass it as `before` to get earlier events.")
    is_complete: bool = Field(description="False: time ran out; continue from here.")
    index: IndexWord | None = Field(
        default=None,
        description="The index's answer to a search by id or key. `found`: it has these events;"
        " `none`, `behind`, `away`: it has none, is behind, or does not answer, so the search read"
        " the parts of the log that are not in the index. Null: no index, or no such search.",
    )


@router.get(
    "/v1/streams/{stream}/events",
    response_model=EventPage,
    openapi_extra=also(
        *("bad_query", "overloaded", "too_many_watchers", "kafka_unavailable"),
        *(
            "bad_request_id",
            "unknown_destination",
            "unknown_receipt",
            "receipt_not_yet",
            "search_unfinished",
        ),
    ),
)
async def list_events(
    request: Request,
    stream: PathName,
    caller: Reader,
    plane: Plane,
    query: Annotated[EventQuery, Query()],
) -> Response:
    """List the newest events of a stream, or those from some point on."""
    caller.stream(stream, plane.configuration)
    # A key that may only send must not see the events of others.
    caller.check("read")
    topic, pages, wanted = stream_topic(stream), plane.stream_pages, query.wanted()
    start = query.after if query.after is not None else query.since_ms
    index: IndexWord | None = None
    shown: list[dict[str, Any]] | None = None
    is_told = True
    async with plane.event_turns.of(caller.tenant):
        if start is None:
            page, index = await _newest(plane, topic, query)
            if query.destination is not None or query.outcome is not None:
                shown, is_told = await _by_outcome(plane, stream, page, query)
        else:
            page = await pages.since(topic, start, count=query.limit, wanted=wanted)
    if query.wait_s and page.is_complete and not page.records:
        # Waiting needs no turn: it reads only new events.
        with plane.waiting.place(caller.tenant):
            coming = pages.coming(
                topic, page.newer, count=query.limit, wanted=wanted, wait_s=query.wait_s
            )
            page = await _while_they_wait(request, coming)
    return as_json(
        {
            "events": [_shown_event(each) for each in page.records] if shown is None else shown,
            "looked_at": len(page.records),
            "newer": str(page.newer),
            "older": None if page.older is None else str(page.older),
            "is_complete": page.is_complete and is_told,
            "index": index,
        }
    )


async def _newest(
    plane: ControlPlane, topic: str, query: EventQuery
) -> tuple[StreamPage, IndexWord | None]:
    """Return the newest wanted events, and the answer of the index."""
    wanted = query.wanted()
    before = query.until_ms if query.before is None else query.before
    newest = partial(plane.stream_pages.newest, topic, count=query.limit, before=before)
    if query.request_id is not None:
        request = await acked_request(plane.receipts, query.request_id)
        if request.topic != topic:
            # The request may be another tenant's, so answer as for an unknown one.
            raise unknown_receipt()
        among = Places(tuple((number, at, at + 1) for number, at in request.ids)).of(topic)
        return await newest(wanted=wanted, among=among), None
    is_by_name = query.event_id is not None or query.key is not None
    if not (is_by_name and query.by_index and plane.places.can_be_asked):
        return await newest(wanted=wanted), None
    places = await plane.places.of(topic, event_id=query.event_id, key=query.key)
    if places is not None and places.stretches:
        # An id belongs to one event; a key may have older events, which must be read too.
        goes_on = query.event_id is None
        page = await newest(wanted=wanted, among=places.of(topic), goes_on=goes_on)
        if page.records or not page.is_complete:
            return page, "found"
    word: IndexWord = "away" if places is None else "behind" if places.is_behind else "none"
    return await newest(wanted=wanted, besides=places if query.event_id is not None else None), word


async def _while_they_wait(request: Request, coming: Coroutine[Any, Any, StreamPage]) -> StreamPage:
    """Return the page; stop waiting once the caller has disconnected."""
    if not stays(request.scope["state"]):
        coming.close()
        raise Problem("body_timeout", "The client disconnected.")
    there = asyncio.ensure_future(client_left(request.receive))
    task = asyncio.ensure_future(coming)
    try:
        await asyncio.wait([task, there], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Problem("body_timeout", "The client disconnected.")
        return await task
    finally:
        for each in (task, there):
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each


async def _by_outcome(
    plane: ControlPlane, stream: str, page: StreamPage, query: EventQuery
) -> tuple[list[dict[str, Any]], bool]:
    """Return the page's events with the wanted outcome, and whether all records could be read."""
    if not page.records:
        return [], True
    since_ms = min(record.timestamp_ms for record in page.records)
    origins = [record.origin for record in page.records]
    trail, places = await follow(plane, stream, origins, since_ms=since_ms)
    if query.destination is not None:
        asked = destination_id(stream, query.destination)
        if asked not in places:
            raise Problem("unknown_destination", f"{stream!r} has no {query.destination!r}.")
        places = {asked: places[asked]}
    shown = []
    for record in page.records:
        now = {stream_and_name(who)[1]: at[record.origin] for who, at in places.items()}
        if query.outcome in {None, *(where.state for where in now.values())}:
            destinations = {name: where.fields() for name, where in now.items()}
            shown.append({**_shown_event(record), "destinations": destinations})
    return shown, trail.is_whole


def _shown_event(record: RecordIn) -> dict[str, Any]:
    envelope, payload = open_stream_record(record), payload_of(record.value)
    if "data" in payload:
        # Return the bytes as sent: parsing and writing a number could change it.
        payload["data"] = msgspec.Raw(record.value)
    if restore_id := restore_of(record.headers):
        payload["restored_by"] = restore_id
    return {
        "place": f"{record.origin.partition}:{record.origin.offset}",
        "id": envelope.event_id,
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "stored_at_ms": record.timestamp_ms,
        "accepted_at_ms": envelope.accepted_at_ms,
        "event_time_ms": envelope.event_time_ms,
        **payload,
    }
