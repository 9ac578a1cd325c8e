"""Routes to rebuild a pipeline beside itself; the new one takes over once it has caught up."""

import re
from dataclasses import replace
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from gateway.callers import Caller
from gateway.control.late_starts import late_start
from gateway.control.pipelines import (
    check_wanted,
    keep,
    known_pipeline,
    shown,
    told_of_the_document,
)
from gateway.control.requests import (
    Admin,
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
from gateway.problems import Problem
from shared.config.configuration import Configuration, Replacement
from shared.config.destination import Start
from shared.config.model import ConfigError
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, state_of
from shared.config.steps.window import duration_ms
from shared.event.topics import config_key
from shared.runtime.clock import now_ms

log = structlog.get_logger()
router = APIRouter()

_PATH = "/v1/pipelines/{pipeline}/replacement"
_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day"}

From = Annotated[
    str,
    Query(
        alias="from",
        description="How far back it starts to read its stream, such as 90m, 12h or 7d; or"
        " `earliest`.",
    ),
]


class ReplacementView(BaseModel):
    """A replacement that is being built, and its progress."""

    document: dict[str, Any]
    state: dict[str, Any]


@router.put(
    _PATH,
    response_model=ReplacementView,
    openapi_extra=also(
        *("bad_pipeline", "unknown_pipeline", "unknown_stream", "unknown_table", "table_in_use"),
        *("bound_reached", "too_few_brokers", "kafka_unavailable"),
    ),
)
async def put_replacement(
    pipeline: PathName,
    caller: Admin,
    given: JsonObject,
    plane: Plane,
    when: When,
    *,
    begin: From = "earliest",
) -> Response:
    """Build this document beside the running pipeline; a second PUT starts from scratch."""
    start = _start(begin)
    # Clients send back the answer of a GET, with these members.
    for member in ("state", "generation"):
        given.pop(member, None)

    async def edit(before: Replacement | None) -> Replacement:
        configuration = plane.configuration
        current = known_pipeline(pipeline, caller, configuration)
        with told_of_the_document():
            wanted = _wanted(given, current, before, start)
            check_wanted(wanted, caller, configuration)
        known = before.tables if before else {}
        tables = {
            name: 1 + max(known.get(name, 0), configuration.tables[name].generation)
            for name in wanted.tables_to
        }
        after = Replacement(pipeline, wanted.generation, wanted, tables)
        built = after.built(configuration.tables)
        # For a while, both pipelines' tables take space on each machine.
        bytes_max = sum(table.bytes_max for table in built)
        plane.check_bounds(caller.tenant, {"table_bytes": bytes_max})
        for spec in [wanted.kept_spec, *(table.spec for table in built)]:
            assert spec is not None, "a replacement keeps state"
            await plane.store.make_own(spec)
        return after

    key = config_key("replacement", pipeline)
    _, after = await plane.change(key, edit, by=caller.author, when=when)
    log.info("pipeline.replacing", pipeline=pipeline, generation=after.generation)
    state = PipelineState(after.document.fingerprint, "checking")
    answer = _shown(after.document, state)
    if note := await late_start(plane.store, plane.configuration, after.document):
        answer["state"]["note"] = note
    return as_json(answer, item=after)


@router.get(
    _PATH,
    response_model=ReplacementView,
    openapi_extra=also("unknown_pipeline", "kafka_unavailable"),
)
async def show_replacement(pipeline: PathName, caller: Reader, plane: Plane) -> Response:
    """Show the replacement, and how many events it is behind the running pipeline."""
    item, document = _built(pipeline, caller, plane.configuration)
    state = state_of(document, await plane.store.pipeline_states())
    return as_json(_shown(document, state), item=item)


@router.delete(
    _PATH, status_code=204, response_class=Response, openapi_extra=also("unknown_pipeline")
)
async def give_up_replacement(pipeline: PathName, caller: Admin, plane: Plane, when: When) -> None:
    """Stop building the replacement and delete its parts. The running pipeline continues."""
    item, _ = _built(pipeline, caller, plane.configuration)

    async def edit(_: Replacement | None) -> Replacement:
        newest, __ = _built(pipeline, caller, plane.configuration)
        # The next replacement must not find remains of this one.
        return replace(newest, document=None)

    await plane.change(item.config_key, edit, by=caller.author, when=when)
    log.info("pipeline.replacing_given_up", pipeline=pipeline)


def _start(begin: str) -> Start:
    if begin == "earliest":
        return "earliest"
    if (span := _SPAN.fullmatch(begin)) is None:
        raise Problem("bad_query", f"from: {begin[:100]!r} must be like 90m, 12h, 7d or earliest.")
    return max(0, now_ms() - duration_ms(f"{span[1]} {_UNITS[span[2]]}"))


def _wanted(
    given: dict[str, Any], current: Pipeline, before: Replacement | None, start: Start
) -> Pipeline:
    document = named(given, name=current.name, tenant=current.tenant)
    keep(document, current)
    newest = max(current.generation, before.generation if before else 0)
    source = {**document["from"], "start": start} if "from" in document else None
    wanted = strictly(Pipeline.of(document | {"generation": newest + 1, "from": source}), None)
    if not wanted.kept_shape:
        wrong = "a pipeline without a window or dedupe needs no replacement: PUT it as usual"
        raise ConfigError("steps", wrong)
    return wanted


def _built(name: str, caller: Caller, configuration: Configuration) -> tuple[Replacement, Pipeline]:
    known_pipeline(name, caller, configuration)
    document = configuration.replacement_of(name)
    if document is None:
        detail = f"No replacement of {name!r} is being built."
        raise Problem("unknown_pipeline", detail)
    return configuration.replacements[name], document


def _shown(document: Pipeline, state: PipelineState) -> dict[str, Any]:
    whole = shown(document, state)
    shown_state = whole.pop("state") | {"behind": state.behind}
    return {"document": whole, "state": shown_state}
