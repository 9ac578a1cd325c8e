"""The route to try a pipeline: it shows what some events would become, and writes nothing."""

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
# One record has to hold the question.
_BYTES_MAX = 500_000


class TriedRow(BaseModel):
    """One row that an event became."""

    of: int | None = Field(
        description="Number of the event it came from, counted from 1; null for a window."
    )
    outcome: str = Field(description="passed, filtered, dead, late.")
    reason: str
    target: str = Field(description="The stream or table that it would go to.")
    key: str | None
    value: str = Field(description="What would be written; of a long one its beginning.")


class TrialFound(BaseModel):
    """The outcome of the events. An event that is only counted in a window has no row."""

    given: list[str] = Field(description="The events, in order.")
    rows: list[TriedRow]
    left_out: int = Field(description="Number of rows that are not shown.")


@router.post(
    "/v1/pipelines/{pipeline}/try",
    response_model=TrialFound,
    openapi_extra=takes(
        {
            "document": {"type": "object", "description": "Without it, as it is."},
            "events": {
                "type": "array",
                "items": {},
                "maxItems": GIVEN_MAX,
                "default": [],
                "description": "As they come; none: the newest of its stream.",
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
    """Show what `events`, or the `newest` of its stream, would become, and write nothing.

    The pipeline is the stored one, or that of `document`, which need not exist yet.
    """
    asked = _asked(pipeline, caller, given, plane)
    async with plane.trial_turns.of(caller.tenant):
        answer = await plane.try_pipeline(asked)
    if answer is None:
        raise Problem(
            "not_tried",
            "Nobody who runs pipelines has answered in time: they may be starting Spark, or be"
            " away. Ask again.",
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
        raise ConfigError(member, "there is no such member; there are document, events, newest")
    events, newest = given.get("events", []), given.get("newest", _NEWEST_DEFAULT)
    if not isinstance(events, list) or len(events) > GIVEN_MAX:
        raise ConfigError("events", f"it is a list of at most {GIVEN_MAX} events")
    if type(newest) is not int or not 1 <= newest <= GIVEN_MAX:
        raise ConfigError("newest", f"it is a number from 1 to {GIVEN_MAX}")
    item = _pipeline(name, given.get("document"), caller, plane.rehearsal())
    packed = tuple(msgspec.Raw(msgspec.json.encode(event)) for event in events)
    asked = TrialAsked(item.tenant, msgspec.Raw(item.to_json()), packed, newest)
    if len(asked.to_bytes()) > _BYTES_MAX:
        raise ConfigError("", f"the document and its events have more than {_BYTES_MAX:,} bytes")
    return asked


def _pipeline(name: str, document: Any, caller: Caller, plane: ControlPlane) -> Pipeline:
    """Return it as it would be stored; all that is kept for it stays closed."""
    before = plane.configuration.pipelines.get(name)
    if document is None or (before is not None and before.tenant == caller.tenant):
        before = known_pipeline(name, caller, plane.configuration)
    elif before is not None:
        raise Problem("pipeline_in_use", f"The name {name!r} belongs to somebody else.")
    if before is None:
        gone = plane.configuration.removed_pipelines.get(name)
        check_kept_name(gone, caller, code="pipeline_in_use")
    if document is None:
        assert before is not None, "it was found"
        return before
    if not isinstance(document, dict):
        raise ConfigError("document", "it is an object")
    # Clients send the document as a GET shows it.
    members = {member: value for member, value in document.items() if member != "state"}
    return wanted_of(name, members, before, caller, plane)
