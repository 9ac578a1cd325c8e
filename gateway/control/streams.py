"""Routes to set up and show streams; a change is live on every gateway within 2 s."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel

from gateway.callers import Caller
from gateway.control.requests import (
    Admin,
    ChangingPlane,
    ControlPlane,
    JsonObject,
    PathName,
    Plane,
    Reader,
    When,
    also,
    as_json,
    named,
    strictly,
)
from gateway.intake.schemas import SchemaError
from gateway.problems import Problem
from shared.config.configuration import (
    PARTITIONS_MAX,
    RemovedDestination,
    RemovedPipeline,
    RemovedStream,
    Stream,
)
from shared.config.model import ConfigError
from shared.event.times import rfc3339
from shared.event.topics import config_key
from shared.runtime.clock import now_ms

log = structlog.get_logger()
router = APIRouter()


class RemovalNotice(BaseModel):
    """A removed object, whose dead letters, receipts and books can still be read."""

    name: str
    removed_at_ms: int


class StreamList(BaseModel):
    streams: list[str]
    removed: list[RemovalNotice]


@router.get("/v1/streams", response_model=StreamList)
async def list_streams(caller: Reader, plane: Plane) -> Response:
    streams = plane.configuration.streams.values()
    names = sorted(stream.name for stream in streams if caller.sees(stream))
    gone = plane.configuration.removed_streams.values()
    return as_json(
        {"streams": names, "removed": listed(each for each in gone if caller.sees(each))}
    )


@router.get("/v1/streams/{stream}", response_model=Stream)
async def show_stream(stream: PathName, caller: Reader, plane: Plane) -> Response:
    item = caller.stream(stream, plane.configuration)
    return as_json(shown(item), item=item)


@router.put(
    "/v1/streams/{stream}",
    response_model=Stream,
    responses={201: {"model": Stream}},
    openapi_extra=also("stream_in_use", "shards_in_use", "bound_reached", "too_few_brokers"),
)
async def put_stream(
    stream: PathName, caller: Admin, given: JsonObject, plane: ChangingPlane, when: When
) -> Response:
    def check_owner(owned: Stream | None) -> None:
        if owned is not None and owned.tenant != caller.tenant:
            raise Problem("stream_in_use", f"The name {stream!r} belongs to another tenant.")

    caller.check_name(stream)

    async def edit(before: Stream | None) -> Stream:
        known = before or plane.configuration.removed_streams.get(stream)
        await _check_free(known, caller, plane)
        wanted = _read(named(given, name=stream, tenant=caller.tenant), known)
        had = known if known is not None and known.tenant == caller.tenant else None
        more = wanted.partition_count - (had.partition_count if had else 0)
        plane.check_bounds(caller.tenant, {"streams": int(had is None), "partitions": more})
        if wanted.json_schema:
            try:
                await plane.schemas.check(wanted.json_schema, tenant=caller.tenant)
            except SchemaError as error:
                raise Problem("bad_object", str(error), pointer="/schema") from error
        await _check_shards(known, wanted, plane)
        _check_order(wanted, plane)
        await plane.store.make_topic(wanted)
        return wanted

    # Check it beforehand as well, so that no other change waits for Kafka's answer.
    await _check_free(plane.configuration.removed_streams.get(stream), caller, plane)
    key = config_key("stream", stream)
    before, after = await plane.change(key, edit, by=caller.author, when=when, check=check_owner)
    plane.note("stream.written", stream=stream, tenant=caller.tenant)
    return as_json(shown(after), item=after, is_new=before is None)


@router.delete(
    "/v1/streams/{stream}",
    status_code=204,
    response_class=Response,
    openapi_extra=also("stream_in_use"),
)
async def delete_stream(stream: PathName, caller: Admin, plane: Plane, when: When) -> None:
    """Remove the stream. Its name, dead letters, receipts and books stay with its owner."""
    caller.stream(stream, plane.configuration)

    async def edit(_: Stream | None) -> RemovedStream:
        known = caller.stream(stream, plane.configuration)
        destinations = sorted(each.name for each in plane.configuration.destinations_of(stream))
        if destinations:
            listed = ", ".join(destinations)
            raise Problem("stream_in_use", f"Remove its destinations first: {listed}.")
        pipelines = sorted(each.name for each in plane.configuration.pipelines_at(stream))
        if pipelines:
            detail = f"Remove the pipelines that use it first: {', '.join(pipelines)}."
            raise Problem("stream_in_use", detail)
        return RemovedStream(
            stream,
            known.tenant,
            known.partition_count,
            now_ms(),
            partitioning=known.partitioning,
        )

    await plane.change(config_key("stream", stream), edit, by=caller.author, when=when)
    log.info("stream.removed", stream=stream, tenant=caller.tenant)


def listed(
    gone: Iterable[RemovedStream | RemovedDestination | RemovedPipeline],
) -> list[dict[str, Any]]:
    """Return the removed objects, newest first."""
    newest_first = sorted(gone, key=lambda each: (-each.removed_at_ms, each.name))
    return [{"name": each.name, "removed_at_ms": each.removed_at_ms} for each in newest_first]


def shown(stream: Stream) -> dict[str, Any]:
    """Return the stream as the API shows it: with its schema as JSON instead of text."""
    fields = stream.known_fields()
    text = fields.pop("json_schema")
    return {**fields, "schema": json.loads(text) if text else None}


async def _check_free(
    known: Stream | RemovedStream | None, caller: Caller, plane: ControlPlane
) -> None:
    """Refuse another tenant's former name while events sent under it can still be read."""
    if not isinstance(known, RemovedStream) or known.tenant == caller.tenant:
        return
    name, reserved_ms = known.name, await plane.store.reserved_ms(known.name)
    if reserved_ms is None:
        free_at, until = None, "forever, because of Kafka's settings"
    else:
        free_at_ms = known.removed_at_ms + reserved_ms
        if now_ms() >= free_at_ms:
            return
        free_at = rfc3339(free_at_ms)
        until = f"until {free_at}"
    raise Problem(
        "stream_in_use",
        f"The name {name!r} belonged to another tenant, and its events are kept {until}:"
        " choose another name.",
        members={"free_at": free_at},
    )


def _check_order(wanted: Stream, plane: ControlPlane) -> None:
    ordered = sorted(
        each.name
        for each in plane.configuration.destinations_of(wanted.name)
        if each.order == "stream"
    )
    if ordered and wanted.partition_count > 1:
        wrong = f"{', '.join(ordered)} gets events in the stream's order: use one Kafka partition"
        raise ConfigError("partition_count", wrong)


async def _check_shards(
    known: Stream | RemovedStream | None, wanted: Stream, plane: ControlPlane
) -> None:
    """Refuse shards with which existing events would belong elsewhere."""
    before, after = known.partitioning if known else None, wanted.partitioning
    if before == after or (before and after and after.keeps(before)):
        return
    if await plane.store.is_empty(wanted.name):
        return
    how = "by its shards" if before else "by their keys or at random"
    raise Problem(
        "shards_in_use",
        f"The stream's events were placed {how}. While it has events, you can only add shards after"
        " the existing ones. You cannot move or remove a shard, change `pointer`, or add or remove"
        " `partitioning`: make another stream.",
        pointer="/partitioning",
        members={"partitioning": asdict(before) if before else None},
    )


def _read(given: dict[str, Any], before: Stream | RemovedStream | None) -> Stream:
    """Return the stream that a PUT describes; omitted settings are at their defaults.

    An omitted partition count stays as it is, as it cannot shrink; each shard needs a partition.
    """
    partitioning = given.get("partitioning")
    shards = partitioning.get("shards") if isinstance(partitioning, dict) else None
    shard_count = len(shards) if isinstance(shards, list) else 0
    least = max(shard_count, 0 if before is None else before.partition_count)
    if least:
        given.setdefault("partition_count", min(least, PARTITIONS_MAX))
    if "json_schema" in given:
        raise ConfigError("json_schema", "there is no such setting; use schema")
    schema = given.pop("schema", None)
    text = "" if schema is None else json.dumps(schema)
    return strictly(
        Stream.of({**given, "json_schema": text}), before if isinstance(before, Stream) else None
    )
