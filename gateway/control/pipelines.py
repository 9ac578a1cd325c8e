"""Routes to set up pipelines: what they make of a stream's events, and where they write it.

A document's shape is checked here, at once. The service that runs pipelines checks its expressions
with Spark within seconds; GET shows the result.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

import structlog
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from gateway.callers import Caller
from gateway.control.destinations import check_target
from gateway.control.late_starts import late_start
from gateway.control.requests import (
    Admin,
    ChangingPlane,
    JsonObject,
    PathName,
    Plane,
    Reader,
    When,
    also,
    as_json,
    check_kept_name,
    named,
    strictly,
)
from gateway.control.sealing import sealed_document, shown_document
from gateway.control.streams import RemovalNotice, listed
from gateway.problems import Problem, pointer_to
from shared.config.configuration import Configuration, RemovedPipeline
from shared.config.cycles import cycle_through
from shared.config.model import ConfigError
from shared.config.outside.database import DATABASE, HOSTS_MAX
from shared.config.pipeline import (
    Enrich,
    Pipeline,
    ToArchive,
    ToDatabase,
    ToDead,
    ToStream,
    ToTable,
)
from shared.config.pipeline_state import PipelineState, PipelineStates, Standing, state_of
from shared.event.topics import config_key
from shared.runtime.clock import now_ms

log = structlog.get_logger()
router = APIRouter()

_PATH = "/v1/pipelines/{pipeline}"
# How long a GET may wait for that result, and how often it looks.
_WAIT_S_MAX = 10.0
_LOOK_S = 0.25
# How often a pipeline has killed its executor, and when it last did.
_ENDED = ("executors_ended", "executor_ended_at_ms")


class PipelineLine(BaseModel):
    """A line of a list: a pipeline, and whether it runs."""

    name: str
    reads: str
    writes: list[str]
    standing: Standing
    why: str
    executors_ended: int


class PipelineList(BaseModel):
    pipelines: list[PipelineLine]
    removed: list[RemovalNotice]


@router.get("/v1/pipelines", response_model=PipelineList, openapi_extra=also("kafka_unavailable"))
async def list_pipelines(caller: Reader, plane: Plane) -> Response:
    states = await plane.store.pipeline_states()
    there = sorted(plane.configuration.pipelines.values(), key=lambda each: each.name)
    gone = plane.configuration.removed_pipelines.values()
    lines = [_line(each, states) for each in there if _sees(caller, each.tenant, each.streams)]
    ours = (each for each in gone if _sees(caller, each.tenant, {each.stream}))
    return as_json({"pipelines": lines, "removed": listed(ours)})


@router.get(_PATH, response_model=Pipeline, openapi_extra=also("kafka_unavailable"))
async def show_pipeline(
    pipeline: PathName,
    caller: Reader,
    plane: Plane,
    wait: Annotated[
        float, Query(ge=0, le=_WAIT_S_MAX, description="Seconds to wait while it is `checking`.")
    ] = 0.0,
) -> Response:
    """Show a pipeline and its state: `checking`, `running` or `refused`, and why."""
    until_s = asyncio.get_running_loop().time() + wait
    while True:
        item = known_pipeline(pipeline, caller, plane.configuration)
        state = state_of(item, await plane.store.pipeline_states())
        if state.standing != "checking" or asyncio.get_running_loop().time() >= until_s:
            return as_json(shown(item, state), item=item)
        await asyncio.sleep(_LOOK_S)


@router.put(
    _PATH,
    response_model=Pipeline,
    responses={201: {"model": Pipeline}},
    openapi_extra=also(
        *("bad_pipeline", "unknown_stream", "unknown_table", "table_in_use"),
        *("pipeline_in_use", "bound_reached"),
        *("target_forbidden", "secrets_off", "secret_changed", "too_few_brokers"),
    ),
)
async def put_pipeline(
    pipeline: PathName, caller: Admin, given: JsonObject, plane: ChangingPlane, when: When
) -> Response:
    def check_owner(owned: Pipeline | None) -> None:
        if owned is not None and owned.tenant != caller.tenant:
            raise Problem("pipeline_in_use", f"The name {pipeline!r} belongs to another tenant.")
        if owned is not None:
            _check_streams(owned, caller)

    # Clients send back the answer of a GET; its state is no setting.
    given.pop("state", None)

    async def edit(before: Pipeline | None) -> Pipeline:
        gone = plane.configuration.removed_pipelines.get(pipeline)
        if before is None:
            check_kept_name(gone, caller, code="pipeline_in_use")
        if before is None and gone is None:
            plane.check_bounds(caller.tenant, {"pipelines": 1})
        wanted = wanted_of(pipeline, given, before, caller, plane)
        if wanted.kept_spec is not None:
            await plane.store.make_own(wanted.kept_spec)
        return wanted

    key = config_key("pipeline", pipeline)
    if any(isinstance(output, dict) and DATABASE in output for output in _outputs(given)):
        # Check the addresses first, so that no other change has to wait for a slow resolver.
        known = plane.configuration.pipelines.get(pipeline)
        check_owner(known)
        when.check(known)
        await _check_hosts(await edit(known), plane)
    gone = plane.configuration.removed_pipelines.get(pipeline)
    before, after = await plane.change(key, edit, by=caller.author, when=when, check=check_owner)
    plane.note("pipeline.written", pipeline=pipeline, tenant=caller.tenant)
    # The pipelines service has not seen it yet.
    answer = shown(after, PipelineState(after.fingerprint, "checking"))
    begins = before is None and (gone is None or gone.generation < after.generation)
    if begins and (note := await late_start(plane.store, plane.configuration, after)):
        answer["state"]["note"] = note
    return as_json(answer, item=after, is_new=before is None)


@router.delete(_PATH, status_code=204, response_class=Response)
async def delete_pipeline(pipeline: PathName, caller: Admin, plane: Plane, when: When) -> None:
    """Stop the pipeline. Its output stays; its name and reading position stay with its owner."""
    item = known_pipeline(pipeline, caller, plane.configuration)

    async def edit(_: Pipeline | None) -> RemovedPipeline:
        newest = known_pipeline(pipeline, caller, plane.configuration)
        built = plane.configuration.replacements.get(pipeline)
        return RemovedPipeline(
            newest.name,
            newest.tenant,
            newest.source.stream,
            # This also removes a replacement that is being built.
            max(newest.generation, built.generation if built else 0),
            now_ms(),
            starts_late=newest.starts_late,
            keeps=bool(newest.kept_shape),
        )

    await plane.change(item.config_key, edit, by=caller.author, when=when)
    log.info("pipeline.removed", pipeline=pipeline, tenant=caller.tenant)


def wanted_of(
    name: str, given: JsonObject, before: Pipeline | None, caller: Caller, plane: Plane
) -> Pipeline:
    """Return the pipeline that a PUT stores; Problem points at the place of an error."""
    known = before or plane.configuration.removed_pipelines.get(name)
    with told_of_the_document():
        document = named(given, name=name, tenant=caller.tenant)
        keep(document, known)
        owner = config_key("pipeline", name).decode()
        document = sealed_document(document, before=before, owner=owner, box=plane.box)
        wanted = _goes_on(strictly(Pipeline.of(document), before), known)
        check_wanted(wanted, caller, plane.configuration)
    return wanted


def _outputs(given: JsonObject) -> list[Any]:
    outputs = given.get("to")
    return outputs if isinstance(outputs, list) else []


async def _check_hosts(wanted: Pipeline, plane: Plane) -> None:
    """Refuse databases at addresses that Hifi may not connect to, or at too many hosts."""
    if (table := wanted.to_database) is None:
        return
    path = "to.0.database"
    urls = {f"{path}.url": table.url}
    urls |= {
        f"{path}.shards.{index}.url": shard.url
        for index, shard in enumerate(table.shards)
        if shard.url
    }
    servers = {url: setting for setting, url in reversed(urls.items()) if "@" in url}
    if len(hosts := {urlsplit(url).hostname for url in servers}) > HOSTS_MAX:
        raise Problem(
            "bad_pipeline",
            f"to.0.database.shards: they name {len(hosts)} hosts; at most {HOSTS_MAX} are allowed.",
            pointer=pointer_to(f"{path}.shards"),
        )
    for url, setting in servers.items():
        try:
            await check_target(plane, wanted.tenant, setting, url)
        except ConfigError as error:
            raise Problem("bad_pipeline", f"{error}.", pointer=pointer_to(setting)) from error


def shown(pipeline: Pipeline, state: PipelineState) -> dict[str, Any]:
    """Return the pipeline as the API shows it: with its state."""
    names = ("standing", "why", "pointer", "lost", "lost_last", *_ENDED)
    members = {each: getattr(state, each) for each in names}
    members |= {"note": state.note} if state.note else {}
    return {**shown_document(pipeline), "state": members}


def _elsewhere(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.to_database:
        yield f"database {pipeline.to_database.table}"


def _line(pipeline: Pipeline, states: PipelineStates) -> dict[str, Any]:
    state = state_of(pipeline, states)
    return {
        "name": pipeline.name,
        "reads": pipeline.source.stream,
        "writes": [*sorted(pipeline.targets), *_elsewhere(pipeline)],
        "standing": state.standing,
        "why": state.why,
        "executors_ended": state.executors_ended,
    }


def _sees(caller: Caller, tenant: str, streams: set[str]) -> bool:
    return tenant == caller.tenant and (not caller.streams or streams <= caller.streams)


def known_pipeline(name: str, caller: Caller, configuration: Configuration) -> Pipeline:
    item = configuration.pipelines.get(name)
    if item is None or item.tenant != caller.tenant:
        detail = f"There is no pipeline {name[:100]!r}; GET /v1/pipelines lists your pipelines."
        raise Problem("unknown_pipeline", detail)
    _check_streams(item, caller)
    return item


def _check_streams(pipeline: Pipeline, caller: Caller) -> None:
    """Refuse a key that may not use all of the pipeline's streams, or its tables."""
    if pipeline.tables:
        caller.check_tables()
    for stream in sorted(pipeline.streams):
        caller.check_name(stream)


@contextmanager
def told_of_the_document() -> Iterator[None]:
    """Turn an error in a document into a Problem that points at its place."""
    try:
        yield
    except ConfigError as error:
        pointer = pointer_to(error.setting) if error.setting else ""
        raise Problem("bad_pipeline", f"{error}.", pointer=pointer) from error


def keep(document: dict[str, Any], known: Pipeline | RemovedPipeline | None) -> None:
    """Keep settings that a PUT cannot change, because the pipeline continues at its position."""
    generation, stream = 1, None
    if known is not None:
        generation = known.generation
        stream = known.source.stream if isinstance(known, Pipeline) else known.stream
    if document.setdefault("generation", generation) != generation:
        raise ConfigError("generation", f"it is {generation}, and a PUT cannot change it")
    source = document.get("from")
    given = source.get("stream") if isinstance(source, dict) else None
    if stream is not None and given is not None and given != stream:
        wrong = f"it stays {stream!r}, where the pipeline has its position: make another pipeline"
        raise ConfigError("from.stream", wrong)


def _goes_on(wanted: Pipeline, known: Pipeline | RemovedPipeline | None) -> Pipeline:
    """Refuse changes after which kept state would not cover all events that were read."""
    if isinstance(known, Pipeline) and known.kept_shape and not wanted.kept_shape:
        wrong = (
            "its window or dedupe cannot be removed: make another pipeline, or remove this one"
            " first"
        )
        raise ConfigError("steps", wrong)
    if isinstance(known, RemovedPipeline) and (known.keeps or wanted.kept_shape):
        # The removed pipeline's state is gone.
        return replace(wanted, generation=known.generation + 1)
    return wanted


def check_wanted(wanted: Pipeline, caller: Caller, configuration: Configuration) -> None:
    """Refuse streams and tables that are not the caller's, and a cycle of streams."""
    for setting, check in _named(wanted, caller, configuration):
        try:
            check()
        except Problem as problem:
            raise Problem(problem.code, problem.detail, pointer=pointer_to(setting)) from None
    _check_shards(wanted, configuration)
    _check_laid_by_key(wanted, configuration)
    others = (
        each
        for each in configuration.pipelines.values()
        if each.tenant == caller.tenant and each.name != wanted.name
    )
    if cycle := cycle_through(wanted, others):
        way = " > ".join(cycle)
        wrong = f"events would circulate forever: {way}; set `repost: true` if you want that"
        raise ConfigError("to", wrong)


def _check_shards(wanted: Pipeline, configuration: Configuration) -> None:
    stream, table = configuration.streams[wanted.source.stream], wanted.to_database
    laid = stream.partitioning
    count = stream.partition_count if laid is None else len(laid.shards)
    if table is None or len(table.shards) in {0, count}:
        return
    what = "Kafka partitions" if laid is None else "shards"
    raise ConfigError(
        "to.0.database.shards",
        f"{stream.name} has {count} {what}, but this names {len(table.shards)} tables: name one"
        " table for each, in order",
    )


def _check_laid_by_key(pipeline: Pipeline, configuration: Configuration) -> None:
    """Refuse a stream with shards as the output of a pipeline that places rows by key."""
    for index, output in enumerate(pipeline.to if pipeline.kept_shape else ()):
        stream = getattr(output, "stream", "")
        known = configuration.streams.get(stream)
        if known is not None and known.partitioning is not None:
            wrong = f"{stream!r} has shards: write to it from a pipeline without a window"
            raise ConfigError(f"to.{index}.stream", wrong)


def _named(
    pipeline: Pipeline, caller: Caller, configuration: Configuration
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each setting that names a stream or table, with the check for it."""

    def stream(name: str) -> Callable[[], object]:
        return partial(caller.stream, name, configuration)

    yield "from.stream", stream(pipeline.source.stream)
    for index, step in enumerate(pipeline.steps):
        if isinstance(step, Enrich):
            yield (
                f"steps.{index}.enrich.table",
                partial(caller.table, step.enrich.table, configuration),
            )
    for index, output in enumerate(pipeline.to):
        match output:
            case ToStream():
                yield f"to.{index}.stream", stream(output.stream)
            case ToTable():
                check = partial(_check_written, output.table, pipeline, caller, configuration)
                yield f"to.{index}.table", check
            # Only the pipelines service knows its stores, and reports unknown ones.
            case ToDead() | ToArchive() | ToDatabase():
                pass


def _check_written(
    table: str, pipeline: Pipeline, caller: Caller, configuration: Configuration
) -> None:
    """Refuse a table that another pipeline or HTTP clients write."""
    writer = caller.table(table, configuration).written_by
    if writer != pipeline.name:
        by = "over HTTP" if writer is None else f"by the pipeline {writer!r}"
        detail = (
            f"The table {table!r} is written {by}: make a table for this pipeline with"
            f' PUT /v1/tables/NAME and {{"written_by": "{pipeline.name}"}}.'
        )
        raise Problem("table_in_use", detail)
