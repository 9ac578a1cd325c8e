"""Routes to set up pipelines: what they make of a stream's events, and where they write it.

The shape of a document is judged here, at once. The service that runs pipelines judges its
expressions, with Spark, within seconds: GET shows its verdict.
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
# How long a GET may wait for the verdict, and how often it looks.
_WAIT_S_MAX = 10.0
_LOOK_S = 0.25
# How often a pipeline has ended its executor, and when last.
_ENDED = ("executors_ended", "executor_ended_at_ms")


class PipelineLine(BaseModel):
    """A line of a list: the pipeline, and whether it runs."""

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
        float, Query(ge=0, le=_WAIT_S_MAX, description="Seconds to wait for its judgement.")
    ] = 0.0,
) -> Response:
    """Show a pipeline, and whether it runs: `checking`, `running` or `refused`, and why."""
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
            raise Problem("pipeline_in_use", f"The name {pipeline!r} belongs to somebody else.")
        if owned is not None:
            _check_streams(owned, caller)

    # Clients PUT the answer of a GET; its state was for its reader.
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
        # Check it first, so that no other change has to wait for a slow resolver.
        known = plane.configuration.pipelines.get(pipeline)
        check_owner(known)
        when.check(known)
        await _check_hosts(await edit(known), plane)
    gone = plane.configuration.removed_pipelines.get(pipeline)
    before, after = await plane.change(key, edit, by=caller.author, when=when, check=check_owner)
    plane.note("pipeline.written", pipeline=pipeline, tenant=caller.tenant)
    # The pipelines service has not heard of it yet.
    answer = shown(after, PipelineState(after.fingerprint, "checking"))
    begins = before is None and (gone is None or gone.generation < after.generation)
    if begins and (note := await late_start(plane.store, plane.configuration, after)):
        answer["state"]["note"] = note
    return as_json(answer, item=after, is_new=before is None)


@router.delete(_PATH, status_code=204, response_class=Response)
async def delete_pipeline(pipeline: PathName, caller: Admin, plane: Plane, when: When) -> None:
    """Stop it. Its output stays; its name and reading position stay its owner's."""
    item = known_pipeline(pipeline, caller, plane.configuration)

    async def edit(_: Pipeline | None) -> RemovedPipeline:
        newest = known_pipeline(pipeline, caller, plane.configuration)
        built = plane.configuration.replacements.get(pipeline)
        return RemovedPipeline(
            newest.name,
            newest.tenant,
            newest.source.stream,
            # Its replacement, if one is being built, goes too.
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
    """Return the pipeline that a PUT stores; Problem says what is wrong with it, and where."""
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
    """Refuse databases at addresses that Hifi may not connect to."""
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
            f"to.0.database.shards: they are at {len(hosts)} hosts, and {HOSTS_MAX} are the most.",
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
        detail = f"There is no pipeline {name[:100]!r}; GET /v1/pipelines lists the ones there are."
        raise Problem("unknown_pipeline", detail)
    _check_streams(item, caller)
    return item


def _check_streams(pipeline: Pipeline, caller: Caller) -> None:
    """Refuse a key that is not for all of the pipeline's streams, or not for tables."""
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
    """Keep what cannot change: it goes on where it is in its stream, with its ids."""
    generation, stream = 1, None
    if known is not None:
        generation = known.generation
        stream = known.source.stream if isinstance(known, Pipeline) else known.stream
    if document.setdefault("generation", generation) != generation:
        raise ConfigError("generation", f"it is {generation}, and not for a PUT to change")
    source = document.get("from")
    given = source.get("stream") if isinstance(source, dict) else None
    if stream is not None and given is not None and given != stream:
        wrong = f"it is {stream!r} for good, as it goes on where it was: make another pipeline"
        raise ConfigError("from.stream", wrong)


def _goes_on(wanted: Pipeline, known: Pipeline | RemovedPipeline | None) -> Pipeline:
    """Kept state covers all events that were read: a pipeline cannot begin to keep it midway."""
    if isinstance(known, Pipeline) and known.kept_shape and not wanted.kept_shape:
        wrong = (
            "it has a window or dedupe for good: make another pipeline, or remove this one first"
        )
        raise ConfigError("steps", wrong)
    if isinstance(known, RemovedPipeline) and (known.keeps or wanted.kept_shape):
        # Its state is gone.
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
        wrong = f"events would go round forever: {way}; say `repost: true` where that is wanted"
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
        f"{stream.name} has {count} {what}, and this names {len(table.shards)} tables: name one"
        " for each, in order",
    )


def _check_laid_by_key(pipeline: Pipeline, configuration: Configuration) -> None:
    """Refuse shards for a pipeline that keeps state: its output is laid by its key."""
    for index, output in enumerate(pipeline.to if pipeline.kept_shape else ()):
        stream = getattr(output, "stream", "")
        known = configuration.streams.get(stream)
        if known is not None and known.partitioning is not None:
            wrong = f"{stream!r} is laid by shards: chain a pipeline without a window to it"
            raise ConfigError(f"to.{index}.stream", wrong)


def _named(
    pipeline: Pipeline, caller: Caller, configuration: Configuration
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the places where a document names a stream or a table, each with its check."""

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
            # Only the pipelines service knows which stores there are, and reports on them.
            case ToDead() | ToArchive() | ToDatabase():
                pass


def _check_written(
    table: str, pipeline: Pipeline, caller: Caller, configuration: Configuration
) -> None:
    """Refuse to write a table that something else writes."""
    writer = caller.table(table, configuration).written_by
    if writer != pipeline.name:
        by = "over HTTP" if writer is None else f"by the pipeline {writer!r}"
        detail = (
            f"The table {table!r} is written {by}: make one with"
            f' PUT /v1/tables/NAME and {{"written_by": "{pipeline.name}"}}.'
        )
        raise Problem("table_in_use", detail)
