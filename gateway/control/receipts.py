"""The route that follows a request: by the id of its answer to each event and destination.

The ledger says which events it was; receipts, retry tiers and dead letters what became of them.
What could not be read in time is told as unknown, and never as not being there.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.callers import Caller
from gateway.control.receipt_store import ReceiptStore
from gateway.control.requests import (
    ControlPlane,
    PlaceText,
    Plane,
    Reader,
    TimeMs,
    also,
    as_json,
)
from gateway.control.whereabouts import At, ByDestination, ShownWhereabouts, counts_of, whereabouts
from gateway.problems import Problem
from shared.config.configuration import Configuration
from shared.event.record import Origin
from shared.event.times import MINUTE_MS, rfc3339
from shared.event.topics import STREAM_RETENTION_MS, stream_and_name, stream_of
from shared.proof.acked import REQUEST_ID, AckedRequest, request_time_ms
from shared.proof.trail import Trail
from shared.retry.dead_letter import Place
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms

router = APIRouter()

# Events of a page; with three destinations each, half a megabyte.
_COUNT_DEFAULT, COUNT_MAX = 1_000, 5_000
# An answer waits so long for a ledger that is written each second, and Kafka's report on it.
_WAIT_S = 2.5
# Until then an id that is nowhere may still be on its way: a body takes 30 s to come at most,
# Kafka's report 10 s, and the ledger its second.
_YOUNG_MS = MINUTE_MS
# The stream's log has no older events for sure; the ledger is kept for longer, for the audit.
_EXPIRED_MS = STREAM_RETENTION_MS
_SOON = ((b"retry-after", b"1"),)


class ReceiptQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    event: str | None = None
    limit: Annotated[int, Field(ge=1, le=COUNT_MAX)] = _COUNT_DEFAULT
    after: PlaceText = Place(0, 0)
    from_ms: TimeMs = Field(default=0, alias="from")


class ShownEvent(BaseModel):
    id: str
    partition: int
    offset: int
    destinations: dict[str, ShownWhereabouts]


class ShownReceipt(BaseModel):
    request_id: str
    stream: str
    accepted_at_ms: int
    count: int = Field(description="How many events of the request Hifi took.")
    is_complete: bool = Field(
        description="Whether all of them were found, and all that is said of them read."
    )
    destinations: dict[str, dict[At, int]] = Field(
        description="By name, how many of the events are where."
    )
    events: list[ShownEvent]
    next: str | None


@router.get(
    "/v1/receipts/{request_id}",
    response_model=ShownReceipt,
    openapi_extra=also(
        *("bad_request_id", "bad_query", "stream_forbidden", "unknown_receipt", "receipt_not_yet"),
        *("overloaded", "kafka_unavailable", "search_unfinished"),
    ),
)
async def show_receipt(
    request_id: Annotated[str, Path(json_schema_extra={"pattern": f"^{REQUEST_ID.pattern}$"})],
    caller: Reader,
    plane: Plane,
    query: Annotated[ReceiptQuery, Query()],
) -> Response:
    """Follow the events of a request to each destination."""
    came_ms = request_time_ms(request_id)
    if came_ms is None:
        raise Problem("bad_request_id", "It is not the request_id of an answer: a UUID.")
    async with plane.search_turns.of(caller.tenant):
        request = await _find(plane.receipts, request_id, came_ms, since_ms=query.from_ms)
        stream = _stream(request, caller, plane.configuration)
        trail, places = await _follow(plane, request, stream)
    wanted = [
        (origin, event)
        for origin, event in _events(request)
        if query.event in {None, event} and _place(origin) >= query.after
    ]
    page, more = wanted[: query.limit], wanted[query.limit :]
    return as_json(
        {
            "request_id": request_id,
            "stream": stream,
            "accepted_at_ms": request.accepted_at_ms,
            "count": max(request.count, len(request.ids)),
            "is_complete": request.is_complete and trail.is_whole,
            "destinations": {_name(who): counts_of(events) for who, events in places.items()},
            "events": [_event(places, *each) for each in page],
            "next": str(_place(more[0][0])) if more else None,
        }
    )


async def _find(
    store: ReceiptStore, request_id: str, came_ms: int, *, since_ms: int
) -> AckedRequest:
    """The request's events by the ledger; Problem when there are none, or none so far."""
    age_ms = now_ms() - came_ms
    is_young = abs(age_ms) < _YOUNG_MS
    if age_ms > _EXPIRED_MS or age_ms < -_YOUNG_MS:
        raise _unknown()
    request = await store.request(
        request_id,
        # Before it came, nothing was written of it.
        since_ms=max(came_ms, since_ms),
        wait_s=_WAIT_S if is_young else 0.0,
    )
    if request.ids:
        return request
    if request.read_until_ms is not None:
        until = rfc3339(request.read_until_ms)
        detail = f"It is not in the ledger up to {until}: ask again with ?from={until}."
        raise Problem("search_unfinished", detail, headers=_SOON, members={"read_until": until})
    if is_young:
        detail = "Ask again: what was just accepted is in the ledger within a second or two."
        raise Problem("receipt_not_yet", detail, headers=_SOON)
    raise _unknown()


def _stream(request: AckedRequest, caller: Caller, configuration: Configuration) -> str:
    """The stream it was sent to; what is another tenant's is not there for the caller."""
    try:
        return caller.past_stream(stream_of(request.topic), configuration).name
    except Problem as problem:
        if problem.code == "unknown_stream":
            raise _unknown() from problem
        raise


async def _follow(
    plane: ControlPlane, request: AckedRequest, stream: str
) -> tuple[Trail, ByDestination]:
    known = plane.configuration
    destination_ids = {each.id for each in known.destinations_of(stream)}
    destination_ids |= {
        each.lane_id for each in known.pipelines.values() if each.source.stream == stream
    }
    origins = [origin for origin, _ in _events(request)]
    trail = await plane.receipts.trail(
        origins, since_ms=request.accepted_at_ms, destination_ids=destination_ids
    )
    # Thousands of events with dozens of receipts each are a second of work: others' requests
    # go on beside it.
    schedule = RetrySchedule().scaled(plane.settings.time_scale)
    places = await asyncio.to_thread(whereabouts, trail, origins, destination_ids, schedule)
    return trail, places


def _unknown() -> Problem:
    return Problem(
        "unknown_receipt",
        "No request of this id has brought events: it is wrong, its events were all refused or are"
        " on a gateway's disk only (202), or it is older than the ledger.",
    )


def _events(request: AckedRequest) -> list[tuple[Origin, str]]:
    """Where each event of a request is, in that order, with its id."""
    return [(Origin(request.topic, *at), event_id) for at, event_id in sorted(request.ids.items())]


def _place(origin: Origin) -> Place:
    return Place(origin.partition, origin.offset)


def _event(places: ByDestination, origin: Origin, event_id: str) -> dict[str, Any]:
    return {
        "id": event_id,
        "partition": origin.partition,
        "offset": origin.offset,
        "destinations": {_name(who): events[origin].fields() for who, events in places.items()},
    }


def _name(destination: str) -> str:
    """What a destination is called within its stream."""
    return stream_and_name(destination)[1]
