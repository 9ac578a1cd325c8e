"""The route that follows a request's events to each destination, by the request's id.

The ledger lists the events. Receipts, retry tiers and dead letters show their outcomes. If some
records could not be read in time, an event is unknown, and never missing.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.callers import Caller
from gateway.control.lookup.failed_tries import TRIES_MAX, ShownTry, failed_tries
from gateway.control.lookup.whereabouts import (
    At,
    ByDestination,
    ShownWhereabouts,
    counts_of,
    whereabouts,
)
from gateway.control.requests import (
    ControlPlane,
    PlaceText,
    Plane,
    Reader,
    TimeMs,
    also,
    as_json,
)
from gateway.control.stores.receipts import ReceiptStore
from gateway.problems import Problem
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.derived import HOPS_MAX
from shared.event.record import Origin
from shared.event.times import MINUTE_MS, rfc3339
from shared.event.topics import STREAM_RETENTION_MS, stream_and_name, stream_of
from shared.proof.acked import REQUEST_ID, AckedRequest, request_time_ms
from shared.proof.restored import Restores
from shared.proof.trail import Trail
from shared.retry.dead_letter import Place
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup.event_search import SEARCH_S_MAX

router = APIRouter()

# Events on a page; with three destinations each, a page has half a megabyte.
_COUNT_DEFAULT, COUNT_MAX = 1_000, 5_000
# Time to wait for the ledger, which is written each second, and for Kafka's report on it.
_WAIT_S = 2.5
# Until this age an unknown request may not be in the ledger yet: its body may take 30 s, Kafka's
# report 10 s, and the ledger 1 s.
_YOUNG_MS = MINUTE_MS
# The stream's log has no older events; the ledger keeps its rows longer, for the audit.
_EXPIRED_MS = STREAM_RETENTION_MS
_SOON = ((b"retry-after", b"1"),)
# Streams are seldom restored, so this is enough.
RESTORES_MAX = 20
# Few searches may run at once, so each may look for outputs of pipelines at most this long.
_CHAIN_S_MAX = 6.0


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
    count: int = Field(description="Number of the request's events that Hifi accepted.")
    is_complete: bool = Field(
        description="False if some events or records could not be read in time."
    )
    destinations: dict[str, dict[At, int]] = Field(
        description="Number of events in each state, by destination name."
    )
    events: list[ShownEvent]
    failed_tries: list[ShownTry] = Field(
        description="Failed requests with events of the page: the newest "
        f"{TRIES_MAX}, oldest first."
    )
    failed_try_count: int = Field(description="Total number of failed requests.")
    derived: list["ShownDerived"] = Field(
        description="Events that pipelines made from these, and their states."
    )
    restored: list["ShownRestore"] = Field(
        description="Restores that have put events of the page into a stream again: the newest "
        f"{RESTORES_MAX}, oldest first."
    )
    next: str | None


class ShownMade(ShownEvent):
    of: str = Field(
        description="The event it was made from: partition:offset in the stream `reads`."
    )


class ShownDerived(BaseModel):
    pipeline: str
    reads: str
    stream: str = Field(description="The stream that got these events.")
    count: int
    destinations: dict[str, dict[At, int]]
    events: list[ShownMade]


class ShownRestore(BaseModel):
    restore: str = Field(description="The restore's id, as in the header hifi-restored.")
    stream: str = Field(description="The stream that got the events.")
    began_at_ms: int = Field(description="When it put its first event back.")
    last_at_ms: int = Field(description="When it put its newest event back.")
    events: list[str] = Field(description="Ids of the page's events that it put back.")


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
    """Show the state of each of a request's events at each destination."""
    check_request_id(request_id)
    async with plane.receipts_turns.of(caller.tenant):
        request = await acked_request(plane.receipts, request_id, since_ms=query.from_ms)
        stream = _stream(request, caller, plane.configuration)
        origins = [origin for origin, _ in _events(request)]
        trail, places = await follow(plane, stream, origins, since_ms=request.accepted_at_ms)
        wanted = [
            (origin, event)
            for origin, event in _events(request)
            if query.event in {None, event} and _place(origin) >= query.after
        ]
        page, more = wanted[: query.limit], wanted[query.limit :]
        shown = [origin for origin, _ in page]
        chain = Chain(plane, caller, count_max=query.limit)
        derived = await chain.of(stream, shown, trail)
        restores = await plane.receipts.restores()
        restored = await asyncio.to_thread(_restored, restores, stream, page, request)
        tries = await asyncio.to_thread(failed_tries, trail, shown, dict(_events(request)))
    return as_json(
        {
            "request_id": request_id,
            "stream": stream,
            "accepted_at_ms": request.accepted_at_ms,
            "count": max(request.count, len(request.ids)),
            "is_complete": request.is_complete
            and trail.is_whole
            and chain.is_whole
            and restores is not None,
            "destinations": {_name(who): counts_of(events) for who, events in places.items()},
            "events": [_event(places, *each) for each in page],
            "failed_tries": [each.model_dump() for each in tries[-TRIES_MAX:]],
            "failed_try_count": len(tries),
            "derived": derived,
            "restored": [each.model_dump() for each in restored if chain.sees(each.stream)][
                -RESTORES_MAX:
            ],
            "next": str(_place(more[0][0])) if more else None,
        }
    )


def check_request_id(request_id: str) -> int:
    """Return when the request arrived; raise Problem if the text is not a request id."""
    came_ms = request_time_ms(request_id)
    if came_ms is None:
        raise Problem("bad_request_id", "This is not the request_id of an answer, which is a UUID.")
    return came_ms


async def acked_request(store: ReceiptStore, request_id: str, *, since_ms: int = 0) -> AckedRequest:
    """Return the request's events from the ledger; raise Problem if it has none (yet)."""
    came_ms = check_request_id(request_id)
    age_ms = now_ms() - came_ms
    is_young = abs(age_ms) < _YOUNG_MS
    if age_ms > _EXPIRED_MS or age_ms < -_YOUNG_MS:
        raise unknown_receipt()
    request = await store.request(
        request_id,
        # Rows that the ledger got before the request arrived cannot be about it.
        since_ms=max(came_ms, since_ms),
        wait_s=_WAIT_S if is_young else 0.0,
    )
    if request.ids:
        return request
    if request.read_until_ms is not None:
        until = rfc3339(request.read_until_ms)
        detail = f"The ledger up to {until} does not have it: ask again with ?from={until}."
        raise Problem("search_unfinished", detail, headers=_SOON, members={"read_until": until})
    if is_young:
        detail = "Ask again: the ledger has a new request after a second or two."
        raise Problem("receipt_not_yet", detail, headers=_SOON)
    raise unknown_receipt()


def _stream(request: AckedRequest, caller: Caller, configuration: Configuration) -> str:
    """Return the request's stream; answer as for an unknown request if it is another tenant's."""
    try:
        return caller.past_stream(stream_of(request.topic), configuration).name
    except Problem as problem:
        if problem.code == "unknown_stream":
            raise unknown_receipt() from problem
        raise


@dataclass
class Chain:
    """Follows events through pipelines, from stream to stream."""

    plane: ControlPlane
    caller: Caller
    # A search looks for at most as many events as a page may have.
    count_max: int
    # False once the search has had to leave something out.
    is_whole: bool = True
    _until_s: float = field(default_factory=lambda: time.monotonic() + _CHAIN_S_MAX)

    async def of(
        self, stream: str, origins: Collection[Origin], trail: Trail
    ) -> list[dict[str, Any]]:
        """Return the events that pipelines made of these, stream by stream, nearest first."""
        derived: list[dict[str, Any]] = []
        hops = [(stream, origins, trail)]
        for _ in range(HOPS_MAX):
            beyond = []
            for hop in hops:
                async for entry, further in self._made_of(*hop):
                    derived.append(entry)
                    beyond.append(further)
            hops = beyond
        return derived

    async def _made_of(
        self, stream: str, origins: Collection[Origin], trail: Trail
    ) -> AsyncIterator[tuple[dict[str, Any], tuple[str, Collection[Origin], Trail]]]:
        """Follow events through each pipeline to the streams that the caller may see."""
        reading = self.plane.configuration.pipelines.values()
        for pipeline in sorted(reading, key=lambda each: each.name):
            receipts = [each for each in trail.receipts if each.destination_id == pipeline.lane_id]
            if pipeline.source.stream != stream or not (receipts and origins):
                continue
            when = (min(r.started_at_ms for r in receipts), max(r.ended_at_ms for r in receipts))
            for to in sorted({output.stream for output in pipeline.streams_to}):
                if not self.sees(to):
                    continue
                left_s = self._until_s - time.monotonic()
                if left_s <= 0 or self.count_max <= 0:
                    self.is_whole = False
                    return
                events = await self.plane.receipts.made(
                    origins, pipeline.name, to, when, count_max=self.count_max, search_s=left_s
                )
                self.count_max -= len(events.made)
                self.is_whole &= events.is_whole
                if not events.made:
                    continue
                further, places = await follow(
                    self.plane, to, list(events.made), since_ms=when[0], search_s=left_s
                )
                self.is_whole &= further.is_whole
                yield _hop(pipeline, to, events.made, places), (to, list(events.made), further)

    def sees(self, stream: str) -> bool:
        try:
            self.caller.stream(stream, self.plane.configuration)
        except Problem:
            return False
        return True


def _hop(
    pipeline: Pipeline,
    stream: str,
    made: Mapping[Origin, tuple[str, Origin]],
    places: ByDestination,
) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "reads": pipeline.source.stream,
        "stream": stream,
        "count": len(made),
        "destinations": {_name(who): counts_of(events) for who, events in places.items()},
        "events": [
            {**_event(places, origin, event_id), "of": str(_place(of))}
            for origin, (event_id, of) in sorted(made.items())
        ],
    }


async def follow(
    plane: ControlPlane,
    stream: str,
    origins: Collection[Origin],
    *,
    since_ms: int,
    search_s: float = SEARCH_S_MAX,
) -> tuple[Trail, ByDestination]:
    destination_ids = set(plane.configuration.readers_of(stream))
    trail = await plane.receipts.trail(
        origins, since_ms=since_ms, destination_ids=destination_ids, search_s=search_s
    )
    # Thousands of events with dozens of receipts each take a second of work. In a thread, that
    # work does not hold up other requests.
    schedule = RetrySchedule().scaled(plane.settings.time_scale)
    places = await asyncio.to_thread(whereabouts, trail, origins, destination_ids, schedule)
    return trail, places


def _restored(
    restores: Restores | None,
    stream: str,
    page: Collection[tuple[Origin, str]],
    request: AckedRequest,
) -> list[ShownRestore]:
    """Return the restores that put these events back into this or another stream."""
    shown = []
    for restore in restores.out_of(stream) if restores else ():
        ids = [event_id for origin, event_id in page if restore.has(origin, request.accepted_at_ms)]
        if ids:
            shown.append(
                ShownRestore(
                    restore=restore.id,
                    stream=restore.to_stream,
                    began_at_ms=restore.began_ms,
                    last_at_ms=restore.last_ms,
                    events=ids,
                )
            )
    return shown


def unknown_receipt() -> Problem:
    return Problem(
        "unknown_receipt",
        "No request with this id brought events: the id is wrong, all of its events were refused,"
        " or the request is older than the ledger.",
    )


def _events(request: AckedRequest) -> list[tuple[Origin, str]]:
    """Return the place and id of each of a request's events, ordered by place."""
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
    """Return the name of a destination within its stream."""
    return stream_and_name(destination)[1]
