"""The route that sends one event of a stream again, to one of its destinations or to all."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Literal, TypeAlias

import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.control.destinations import destination_of
from gateway.control.lookup.whereabouts import At, ShownWhereabouts, whereabouts
from gateway.control.requests import (
    Admin,
    ControlPlane,
    JsonObject,
    PathName,
    PlaceText,
    Plane,
    also,
    as_json,
)
from gateway.control.stores.resends import Resend
from gateway.problems import Problem
from shared.event.derived import restore_of
from shared.event.envelope import open_stream_record
from shared.event.record import Origin, RecordIn
from shared.event.times import rfc3339
from shared.event.topics import stream_and_name, stream_topic
from shared.retry.dead_letter import Place
from shared.retry.resend import LEFT_ALONE
from shared.retry.schedule import RetrySchedule

log = structlog.get_logger()
_Places: TypeAlias = Mapping[str, ShownWhereabouts]
router = APIRouter()

_SOON = ((b"retry-after", b"1"),)


class ResendOrder(BaseModel):
    """The event to send again, and its destination."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    event_id: str | None = Field(
        default=None, alias="id", description="Send the newest event with this id."
    )
    place: PlaceText | None = Field(
        default=None, description="The event's place in the stream, from a list of events."
    )
    destination: str | None = Field(
        default=None, description="Name of one of the stream's destinations; default: all of them."
    )

    @model_validator(mode="after")
    def _says_which(self) -> "ResendOrder":
        if self.event_id is None and self.place is None:
            raise ValueError("name the event by its id or its place")
        return self


_ORDER_SCHEMA = ResendOrder.model_json_schema()


class ResendResult(BaseModel):
    resend_id: str = Field(
        description="Value of the header hifi-replay, or hifi-redrive for a dead letter."
    )
    id: str
    place: str
    destinations: dict[str, Literal["resent", "queued", "waiting", "unknown", "dead"]] = Field(
        description="By name: resent, or the event's state there if it was not resent."
    )


@router.post(
    "/v1/streams/{stream}/events:resend",
    response_model=ResendResult,
    openapi_extra={
        **also(
            *("unknown_event", "unknown_destination", "not_resent", "redrive_overtaken"),
            *("resend_rate", "search_unfinished", "overloaded", "kafka_unavailable"),
        ),
        "requestBody": {"content": {"application/json": {"schema": _ORDER_SCHEMA}}},
    },
)
async def resend_event(
    stream: PathName, caller: Admin, given: JsonObject, plane: Plane
) -> Response:
    """Send one event again to the destinations where it was delivered or given up."""
    caller.stream(stream, plane.configuration)
    order = ResendOrder.model_validate(given)
    asked = _destinations(stream, order, plane)
    plane.charge_resend(caller.tenant)
    resend_id = uuid.uuid4().hex
    async with plane.receipts_turns.of(caller.tenant):
        record = await _find(stream, order, plane)
        places = await _places(record, asked, plane)
        resent = await _send(record, places, resend_id, plane)
    if order.destination is not None and not resent:
        (place,) = places.values()
        raise _left_alone(order.destination, place)
    event_id, lies = _about(record)
    log.info(
        "event.resent",
        stream=stream,
        tenant=caller.tenant,
        event_id=event_id,
        place=lies,
        resend=resend_id,
        destinations=resent,
    )
    names = {stream_and_name(each)[1]: each for each in places}
    return as_json(
        {
            "resend_id": resend_id,
            "id": event_id,
            "place": lies,
            "destinations": {
                name: "resent" if each in resent else places[each].state.value
                for name, each in sorted(names.items())
            },
        }
    )


def _destinations(stream: str, order: ResendOrder, plane: ControlPlane) -> list[str]:
    """Return the ids of the wanted destinations; pipelines do not count."""
    there = [each.id for each in plane.configuration.destinations_of(stream)]
    if order.destination is None:
        return there
    return [destination_of(stream, order.destination, plane.configuration).id]


async def _find(stream: str, order: ResendOrder, plane: ControlPlane) -> RecordIn:
    """Return the event from the log; raise Problem if it is missing or not found in time."""
    topic, event_id, place = stream_topic(stream), order.event_id, order.place
    record: RecordIn | None = None
    is_complete = True
    if place is not None:
        record = await plane.stream_pages.at(Origin(topic, place.partition, place.offset))
        if record and event_id not in {None, open_stream_record(record).event_id}:
            record = None
    else:
        page = await plane.stream_pages.newest(
            topic, count=1, wanted=lambda each: open_stream_record(each).event_id == event_id
        )
        record, is_complete = next(iter(page.records), None), page.is_complete
    if record is not None:
        return record
    if not is_complete:
        detail = "It is not among the newest events: give its place, from a list of events."
        raise Problem("search_unfinished", detail, headers=_SOON)
    raise Problem("unknown_event", f"There is no such event in {stream}.")


async def _places(record: RecordIn, asked: list[str], plane: ControlPlane) -> _Places:
    """Find where the event is now for each destination."""
    origin = record.origin
    trail = await plane.receipts.trail(
        [origin], since_ms=record.timestamp_ms, destination_ids=set(asked)
    )
    schedule = RetrySchedule().scaled(plane.settings.time_scale)
    by_destination = await asyncio.to_thread(whereabouts, trail, [origin], asked, schedule)
    return {each: by_destination[each][origin] for each in asked}


async def _send(
    record: RecordIn, places: _Places, resend_id: str, plane: ControlPlane
) -> list[str]:
    """Resend the event where it is delivered or dead; return those destinations."""
    wanted = Resend(
        resend_id,
        open_stream_record(record),
        taken=tuple(each for each, at in places.items() if at.state is At.DELIVERED),
        dead=tuple(
            (each, Place.of(at.place)) for each, at in places.items() if at.state is At.DEAD
        ),
        restore_id=restore_of(record.headers),
    )
    if not (wanted.taken or wanted.dead):
        return []
    return await plane.resends.send(wanted)


def _left_alone(name: str, place: ShownWhereabouts) -> Problem:
    due = f", at {rfc3339(place.due_at_ms)}" if place.due_at_ms else ""
    code = "search_unfinished" if place.state is At.UNKNOWN else "not_resent"
    return Problem(code, f"It is not resent to {name}: {LEFT_ALONE[place.state.value]}{due}.")


def _about(record: RecordIn) -> tuple[str, str]:
    """Return the event's id, and its place in the log."""
    origin = record.origin
    return open_stream_record(record).event_id, str(Place(origin.partition, origin.offset))
