"""Routes to start replays of a stream's spans, to see their progress, and to cancel them."""

import uuid
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Query, Response
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.callers import Caller
from gateway.control.changes.record import Deed
from gateway.control.destinations import destination_of
from gateway.control.requests import (
    Admin,
    JsonObject,
    PathName,
    Plane,
    Reader,
    TimeMs,
    also,
    as_json,
)
from gateway.problems import Problem
from shared.event.times import rfc3339
from shared.retry.replay import Replay, ReplayOrder, Replays
from shared.runtime.clock import now_ms

log = structlog.get_logger()
router = APIRouter()

_COUNT_DEFAULT, _COUNT_MAX = 100, 1_000
_RATE_DEFAULT, _RATE_MAX = 100.0, 10_000.0
# Replays that a tenant may run at once.
RUNNING_MAX = 4
_Id = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")]
_PATH = "/v1/streams/{stream}/replays"


class ReplayRequest(BaseModel):
    """The events to send again, and their destination."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    id: _Id | None = Field(
        default=None,
        description="An id of your choice. A repeated request with this id makes no second replay.",
    )
    destination: str = Field(description="Name of one of the stream's destinations.")
    from_ms: TimeMs | None = Field(
        default=None,
        alias="from",
        description="Only events stored at or after this time; optional with `event`.",
    )
    to_ms: TimeMs | None = Field(
        default=None,
        alias="to",
        description="Only events stored before this time; default: now.",
    )
    key: str | None = Field(default=None, description="Only events with this ordering key.")
    event: str | None = Field(default=None, description="Only events with this id.")
    rate_per_s: Annotated[float, Field(gt=0, le=_RATE_MAX)] = Field(
        default=_RATE_DEFAULT, description="At most this many events per second."
    )
    dry_run: bool = Field(default=False, description="Only count the events.")

    @model_validator(mode="after")
    def _says_since_when(self) -> "ReplayRequest":
        if self.from_ms is None and self.event is None:
            raise ValueError("from: give a time, or an event")
        if self.to_ms is not None and self.to_ms <= (self.from_ms or 0):
            raise ValueError("to: it must be after from")
        return self


_REQUEST_SCHEMA = ReplayRequest.model_json_schema()


class ReplayQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    limit: Annotated[int, Field(ge=1, le=_COUNT_MAX)] = _COUNT_DEFAULT
    destination: str | None = Field(default=None, description="Only replays to this destination.")
    # The `next` of the previous page: only replays that were requested earlier.
    before: Annotated[str, Field(pattern="^[0-9]{1,18}:[a-z0-9_-]{1,64}$")] | None = None


class ShownReplay(BaseModel):
    id: str
    stream: str
    destination: str
    from_: str | None = Field(default=None, alias="from")
    to: str | None
    key: str | None
    event: str | None
    rate_per_s: float
    created_at: str
    state: Literal["running", "done", "cancelled", "failed"]
    count: int = Field(description="All events in the span, whatever their keys and ids.")
    read: int = Field(description="Number of these events that the replay has read.")
    sent: int = Field(description="Matching events that it has queued for the destination.")
    gone: int = Field(description="Events that Kafka had deleted before they were read.")
    reached_at: str | None = Field(description="When the newest event it read was stored.")
    waits_because: str = Field(description="Why it sends nothing now; empty if it sends.")
    failed_because: str


class ReplayCount(BaseModel):
    count: int


class ReplayList(BaseModel):
    replays: list[ShownReplay]
    next: str | None = Field(description="Pass it as `before` to get older replays.")


@router.post(
    _PATH,
    response_model=ShownReplay,
    status_code=201,
    openapi_extra={
        **also("unknown_destination", "replay_in_use", "events_gone", "bound_reached"),
        "requestBody": {"content": {"application/json": {"schema": _REQUEST_SCHEMA}}},
    },
)
async def create_replay(
    stream: PathName, caller: Admin, given: JsonObject, plane: Plane
) -> Response:
    """Send a span of a stream to one of its destinations again, beside live delivery."""
    caller.stream(stream, plane.configuration)
    asked = ReplayRequest.model_validate(given)
    destination_of(stream, asked.destination, plane.configuration)
    order = ReplayOrder(
        id=asked.id or uuid.uuid4().hex,
        stream=stream,
        destination=asked.destination,
        tenant=caller.tenant,
        spans={},
        created_at_ms=now_ms(),
        from_ms=asked.from_ms,
        to_ms=asked.to_ms,
        key=asked.key,
        event=asked.event,
        rate_per_s=asked.rate_per_s,
    )
    known = await plane.replays.newest()
    if not asked.dry_run and (there := _same(known, order)) is not None:
        return as_json(_shown(there))
    async with plane.receipts_turns.of(caller.tenant):
        spans = await plane.replays.spans(stream, order.from_ms, order.to_ms)
    order = replace(order, spans=spans)
    if asked.dry_run:
        return as_json({"count": order.count})
    _check_bound(known, order)
    # Record the replay before it sends anything, so that none goes unrecorded.
    deed = Deed(caller.tenant, "stream", stream, "replayed", {**given, "id": order.id})
    await plane.store.tell(deed, by=caller.author)

    def judge(newest: Replays) -> ReplayOrder | None:
        if _same(newest, order) is not None:
            return None
        _check_bound(newest, order)
        return order

    await plane.replays.change(judge)
    log.info("replay.ordered", stream=stream, tenant=caller.tenant, replay=order.id)
    made = _own(await plane.replays.newest(), stream, order.id, caller)
    return as_json(_shown(made), is_new=True)


@router.get(_PATH, response_model=ReplayList, openapi_extra=also("bad_query", "kafka_unavailable"))
async def list_replays(
    stream: PathName, caller: Reader, plane: Plane, query: Annotated[ReplayQuery, Query()]
) -> Response:
    """List a stream's replays, newest first."""
    caller.past_stream(stream, plane.configuration)
    listed = [
        (_place(each.order), each)
        for (of, _), each in (await plane.replays.newest()).items()
        if of == stream
        and each.order is not None
        and each.order.tenant == caller.tenant
        and query.destination in {None, each.order.destination}
    ]
    listed.sort(key=lambda each: each[0], reverse=True)
    if query.before is not None:
        at, _, name = query.before.partition(":")
        listed = [each for each in listed if each[0] < (int(at), name)]
    page = listed[: query.limit]
    more = f"{page[-1][0][0]}:{page[-1][0][1]}" if len(listed) > len(page) else None
    return as_json({"replays": [_shown(each) for _, each in page], "next": more})


@router.get(
    _PATH + "/{replay}",
    response_model=ShownReplay,
    openapi_extra=also("unknown_replay", "kafka_unavailable"),
)
async def show_replay(stream: PathName, replay: str, caller: Reader, plane: Plane) -> Response:
    """Show the progress of a replay."""
    caller.past_stream(stream, plane.configuration)
    return as_json(_shown(_own(await plane.replays.newest(), stream, replay, caller)))


@router.delete(
    _PATH + "/{replay}",
    response_model=ShownReplay,
    openapi_extra=also("unknown_replay", "kafka_unavailable"),
)
async def cancel_replay(stream: PathName, replay: str, caller: Admin, plane: Plane) -> Response:
    """Cancel a replay: it queues no more events. A finished one stays as it is."""
    caller.past_stream(stream, plane.configuration)
    if _own(await plane.replays.newest(), stream, replay, caller).state == "running":
        deed = Deed(caller.tenant, "stream", stream, "replay cancelled", {"id": replay})
        await plane.store.tell(deed, by=caller.author)

    def judge(newest: Replays) -> ReplayOrder | None:
        there = _own(newest, stream, replay, caller)
        if there.state != "running" or there.order is None:
            return None
        return replace(there.order, cancelled_at_ms=now_ms())

    await plane.replays.change(judge)
    return as_json(_shown(_own(await plane.replays.newest(), stream, replay, caller)))


def _same(known: Replays, order: ReplayOrder) -> Replay | None:
    """Return the replay that the same order has already made; refuse another replay's id."""
    there = known.get((order.stream, order.id))
    if there is None or there.order is None:
        return None
    if there.order.tenant != order.tenant or not there.order.is_same_as(order):
        raise Problem(
            "replay_in_use", f"{order.id!r} is another replay of {order.stream}: choose another id."
        )
    return there


def _check_bound(known: Replays, order: ReplayOrder) -> None:
    running = [
        each.order.id
        for each in known.values()
        if each.order is not None
        and (each.order.tenant, each.order.is_archived, each.state)
        == (order.tenant, False, "running")
    ]
    if len(running) >= RUNNING_MAX:
        raise Problem(
            "bound_reached",
            f"{len(running)} replays of the tenant are running, and {RUNNING_MAX} may run at once:"
            " wait for one to end, or cancel one.",
            members={"bound": "replays", "used": len(running), "max": RUNNING_MAX},
        )


def _own(known: Replays, stream: str, replay_id: str, caller: Caller) -> Replay:
    """Return the caller's replay. Another tenant may have owned the stream's name before."""
    there = known.get((stream, replay_id))
    if there is None or there.order is None or there.order.tenant != caller.tenant:
        raise Problem(
            "unknown_replay",
            f"{stream} has no replay {replay_id[:100]!r};"
            f" GET /v1/streams/{stream}/replays lists them.",
        )
    return there


def _place(order: ReplayOrder) -> tuple[int, str]:
    return order.created_at_ms, order.id


def _shown(replay: Replay) -> dict[str, Any]:
    order, progress = replay.order, replay.progress
    assert order is not None, "only replays with an order are shown"
    why, state = progress.why, replay.state
    if order.is_archived:
        why = f"an operator sends it from an archive: hifi replay --id {order.id}"
    return {
        "id": order.id,
        "stream": order.stream,
        "destination": order.destination,
        "from": _time(order.from_ms),
        "to": _time(order.to_ms),
        "key": order.key,
        "event": order.event,
        "rate_per_s": order.rate_per_s,
        "created_at": _time(order.created_at_ms),
        "state": state,
        "count": order.count,
        "read": replay.read_count,
        "sent": progress.sent,
        "gone": progress.gone,
        "reached_at": _time(progress.reached_ms or None),
        "waits_because": why if state == "running" else "",
        "failed_because": why if state == "failed" else "",
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
