"""The route to try a pipeline: it shows the rows for some events, and writes nothing."""

from typing import Any

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from gateway.callers import Caller
from gateway.control.pipelines import known_pipeline, wanted_of
from gateway.control.requests import (
    Admin,
    ControlPlane,
    JsonObject,
    PathName,
    Plane,
    as_json,
    check_kept_name,
    takes,
)
from gateway.problems import Problem
from shared.config.model import ConfigError
from shared.config.pipeline import Pipeline
from shared.config.pipeline_tests import GIVEN_MAX
from shared.event.trial import TrialAsked

router = APIRouter()

_NEWEST_DEFAULT = 10
# The whole request must fit into one Kafka record.
_BYTES_MAX = 500_000


class TriedRow(BaseModel):
    """One row that the pipeline makes from an event."""

    of: int | None = Field(
        description="Number of the row's event, counted from 1; null for a row of a window."
    )
    outcome: str = Field(description="passed, filtered, dead or late.")
    reason: str
    target: str = Field(description="The stream or table that would get the row.")
    key: str | None
    value: str = Field(description="The row's value; the beginning of a long one.")


class TrialFound(BaseModel):
    """The result of a trial. An event that only counts in a window has no row of its own."""

    given: list[str] = Field(description="The events, in order.")
    rows: list[TriedRow]
    left_out: int = Field(description="Number of rows that are not shown.")


@router.post(
    "/v1/pipelines/{pipeline}/try",
    response_model=TrialFound,
    openapi_extra=takes(
        {
            "document": {"type": "object", "description": "Default: as stored."},
            "events": {
                "type": "array",
                "items": {},
                "maxItems": GIVEN_MAX,
                "default": [],
                "description": "Events to try; without any, the stream's newest.",
            },
            "newest": {
                "type": "integer",
                "minimum": 1,
                "maximum": GIVEN_MAX,
                "default": _NEWEST_DEFAULT,
            },
        },
        *("bad_pipeline", "pipeline_in_use", "unknown_pipeline", "unknown_stream"),
        *("unknown_table", "secrets_off", "secret_changed", "overloaded", "not_tried"),
    ),
)
async def try_pipeline(
    pipeline: PathName, caller: Admin, given: JsonObject, plane: Plane
) -> Response:
    """Show the rows for `events`, or for the `newest` ones of its stream, and write nothing.

    Try the stored pipeline, or the one in `document`, which need not exist yet.
    """
    asked = _asked(pipeline, caller, given, plane)
    async with plane.trial_turns.of(caller.tenant):
        answer = await plane.try_pipeline(asked)
    if answer is None:
        raise Problem(
            "not_tried",
            "No pipelines process answered in time: it may be starting Spark, or be down."
            " Ask again.",
            headers=((b"retry-after", b"5"),),
        )
    if answer.is_unfinished:
        soon = ((b"retry-after", b"5"),)
        raise Problem("not_tried", f"{answer.why}. Ask again, or try fewer events.", headers=soon)
    if answer.why:
        raise Problem("bad_pipeline", f"{answer.why}.", pointer=answer.pointer)
    shown = msgspec.to_builtins(answer)
    return as_json({name: shown[name] for name in ("given", "rows", "left_out")})


def _asked(name: str, caller: Caller, given: JsonObject, plane: ControlPlane) -> TrialAsked:
    for member in given.keys() - {"document", "events", "newest"}:
        raise ConfigError(member, "there is no such member; known: document, events, newest")
    events, newest = given.get("events", []), given.get("newest", _NEWEST_DEFAULT)
    if not isinstance(events, list) or len(events) > GIVEN_MAX:
        raise ConfigError("events", f"it must be a list of at most {GIVEN_MAX} events")
    if type(newest) is not int or not 1 <= newest <= GIVEN_MAX:
        raise ConfigError("newest", f"it must be a number from 1 to {GIVEN_MAX}")
    item = _pipeline(name, given.get("document"), caller, plane.rehearsal())
    packed = tuple(msgspec.Raw(msgspec.json.encode(event)) for event in events)
    asked = TrialAsked(item.tenant, msgspec.Raw(item.to_json()), packed, newest)
    if len(asked.to_bytes()) > _BYTES_MAX:
        raise ConfigError("", f"the document and its events have more than {_BYTES_MAX:,} bytes")
    return asked


def _pipeline(name: str, document: Any, caller: Caller, plane: ControlPlane) -> Pipeline:
    """Return the pipeline as it would be stored; its stored secrets stay sealed."""
    before = plane.configuration.pipelines.get(name)
    if document is None or (before is not None and before.tenant == caller.tenant):
        before = known_pipeline(name, caller, plane.configuration)
    elif before is not None:
        raise Problem("pipeline_in_use", f"The name {name!r} belongs to another tenant.")
    if before is None:
        gone = plane.configuration.removed_pipelines.get(name)
        check_kept_name(gone, caller, code="pipeline_in_use")
    if document is None:
        assert before is not None, "known_pipeline found it"
        return before
    if not isinstance(document, dict):
        raise ConfigError("document", "it must be an object")
    # Clients send the document as GET shows it, with its state.
    members = {member: value for member, value in document.items() if member != "state"}
    return wanted_of(name, members, before, caller, plane)
