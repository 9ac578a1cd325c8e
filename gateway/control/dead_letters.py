"""Routes to list dead letters and send them again: those of one stream, in bounds.

A request looks at so many records and works for so long, then says where to go on; a re-drive that
is called again does nothing twice.
"""

import uuid
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.control.queries import PlaceText, TimeMs
from gateway.control.requests import (
    Admin,
    JsonObject,
    PathName,
    Plane,
    Reader,
    also,
    as_json,
    telling_problems,
)
from gateway.problems import Problem
from shared.retry.dead_letter import DeadLetterFilter, payload_of, story_of
from shared.runtime.kafka.dead_letters import OvertakenError

log = structlog.get_logger()
router = APIRouter()

# A page of a list; with their payloads a thousand events of a few KB are some MB.
_COUNT_DEFAULT, COUNT_MAX = 100, 1_000
_RATE_DEFAULT, _RATE_MAX = 100.0, 10_000.0


class _Filter(BaseModel):
    """What is picked: for a list, and to be sent again."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    destination: str | None = None
    reason: str | None = None
    from_ms: TimeMs | None = Field(default=None, alias="from")
    to_ms: TimeMs | None = Field(default=None, alias="to")
    id: str | None = None

    def of_stream(self, stream: str) -> DeadLetterFilter:
        return DeadLetterFilter(
            stream=stream,
            destination=self.destination,
            reason=self.reason,
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            event_id=self.id,
        )


class LetterQuery(_Filter):
    limit: Annotated[int, Field(ge=1, le=COUNT_MAX)] = _COUNT_DEFAULT
    after: PlaceText | None = None
    payload: Literal["true", "false"] = "false"


class RedriveOrder(_Filter):
    model_config = ConfigDict(strict=True)

    limit: Annotated[int, Field(ge=1, le=10**9)] | None = None
    rate_per_s: Annotated[float, Field(gt=0, le=_RATE_MAX)] = _RATE_DEFAULT
    dry_run: bool = False


_ORDER_SCHEMA = RedriveOrder.model_json_schema()


class ShownLetter(BaseModel):
    """Much more is said of a letter that could be opened; see docs/dead-letters.md."""

    place: str
    dead_at_ms: int
    stream: str
    destination: str
    reason: str
    id: str
    redriven: bool
    data: Any = Field(default=None, description="The event, if payload=true was asked for.")
    data_base64: str | None = Field(default=None, description="Its bytes, if they are no JSON.")


class LetterPage(BaseModel):
    dead_letters: list[ShownLetter]
    next: str | None


class RedriveResult(BaseModel):
    redrive_id: str | None
    count: int
    already: int
    malformed: int
    is_complete: bool


@router.get(
    "/v1/streams/{stream}/dead-letters",
    response_model=LetterPage,
    openapi_extra=also("bad_query", "kafka_unavailable"),
)
async def list_dead_letters(
    stream: PathName, caller: Reader, plane: Plane, query: Annotated[LetterQuery, Query()]
) -> Response:
    """List what was given up."""
    caller.stream(stream, plane.configuration)
    if query.payload == "true":
        # Who may only send may see that something died, but not what others have sent.
        caller.check("read")
    with telling_problems():
        async with plane.letters_turn:
            page, marked = await plane.dead_letters.page(
                query.of_stream(stream), after=query.after, count_max=query.limit
            )
    listed = [
        {
            **story_of(letter),
            "redriven": letter.place in marked,
            **(payload_of(letter) if query.payload == "true" else {}),
        }
        for letter in page.letters
    ]
    return as_json({"dead_letters": listed, "next": str(page.next) if page.next else None})


@router.post(
    "/v1/streams/{stream}/dead-letters:redrive",
    response_model=RedriveResult,
    openapi_extra={
        **also("redrive_overtaken", "kafka_unavailable"),
        "requestBody": {"content": {"application/json": {"schema": _ORDER_SCHEMA}}},
    },
)
async def redrive_dead_letters(
    stream: PathName, caller: Admin, given: JsonObject, plane: Plane
) -> Response:
    """Send again what was given up, each once."""
    caller.stream(stream, plane.configuration)
    with telling_problems():
        order = RedriveOrder.model_validate(given)
    redrive_id = None if order.dry_run else uuid.uuid4().hex
    wanted, count_max = order.of_stream(stream), order.limit
    with telling_problems():
        async with plane.letters_turn:
            try:
                if redrive_id is None:
                    result = await plane.dead_letters.count(wanted, count_max=count_max)
                else:
                    result = await plane.dead_letters.redrive(
                        wanted,
                        redrive_id=redrive_id,
                        rate_per_s=order.rate_per_s,
                        count_max=count_max,
                    )
            except OvertakenError as error:
                raise Problem("redrive_overtaken", str(error)) from error
    if redrive_id is not None:
        log.info(
            "dead_letters.redriven",
            stream=stream,
            tenant=caller.tenant,
            redrive=redrive_id,
            count=result.count,
        )
    return as_json(
        {
            "redrive_id": redrive_id,
            "count": result.count,
            "already": result.already,
            "malformed": result.malformed,
            "is_complete": result.next is None,
        }
    )
