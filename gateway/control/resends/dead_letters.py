"""Routes to list dead letters, and to send those of one stream again.

A request reads a bounded number of records for a bounded time, and returns the place to continue
from. A repeated redrive sends no letter twice.
"""

import uuid
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.callers import Caller
from gateway.control.changes.record import Deed
from gateway.control.requests import (
    Admin,
    AgeText,
    ControlPlane,
    JsonObject,
    PathName,
    PlaceText,
    Plane,
    Reader,
    TimeMs,
    also,
    as_json,
)
from gateway.problems import Problem
from shared.config.access import DEFAULT_TENANT
from shared.event.payload import payload_of
from shared.retry.dead_letter import (
    DeadLetterFilter,
    Letter,
    Place,
    export_line,
    story_of,
)
from shared.runtime.kafka.only_writer import OvertakenError

log = structlog.get_logger()
router = APIRouter()

# Letters on a page; the bytes of their payloads have their own bound.
_COUNT_DEFAULT, COUNT_MAX = 100, 1_000
# Slow enough not to overload a destination that has just recovered.
_RATE_DEFAULT, _RATE_MAX = 100.0, 10_000.0
_NDJSON = "application/x-ndjson"


class _Filter(BaseModel):
    """The filter that picks dead letters, for a list or a redrive."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    destination: str | None = None
    reason: str | None = None
    from_ms: TimeMs | None = Field(default=None, alias="from")
    to_ms: TimeMs | None = Field(default=None, alias="to")
    event_id: str | None = Field(default=None, alias="id")
    answer: str | None = None

    def wanted(
        self, stream: str | None = None, *, sees: Callable[[str], bool] | None = None
    ) -> DeadLetterFilter:
        return DeadLetterFilter(stream, sees, **self.model_dump(include=set(_Filter.model_fields)))


class LetterQuery(_Filter):
    limit: Annotated[int, Field(ge=1, le=COUNT_MAX)] = _COUNT_DEFAULT
    after: PlaceText | None = None
    payload: Literal["true", "false"] = "false"


class AnyLetterQuery(LetterQuery):
    stream: list[str] = []


class NewestQuery(_Filter):
    stream: list[str] = []
    limit: Annotated[int, Field(ge=1, le=COUNT_MAX)] = _COUNT_DEFAULT
    # The `next` of the previous page: only letters that were given up earlier.
    before: AgeText | None = None


class RedriveOrder(_Filter):
    model_config = ConfigDict(strict=True)

    limit: Annotated[int, Field(ge=1, le=10**9)] | None = None
    rate_per_s: Annotated[float, Field(gt=0, le=_RATE_MAX)] = _RATE_DEFAULT
    dry_run: bool = False
    # The id of an incomplete redrive to continue.
    redrive_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None


_ORDER_SCHEMA = RedriveOrder.model_json_schema()


class ShownLetter(BaseModel):
    """A dead letter. One that can be opened has more members; see docs/dead-letters.md."""

    place: str
    dead_at_ms: int
    stream: str
    destination: str
    reason: str
    id: str
    redriven: bool
    data: Any = Field(default=None, description="The event, if the query has payload=true.")
    data_base64: str | None = Field(default=None, description="The event's bytes, if not JSON.")


class LetterPage(BaseModel):
    dead_letters: list[ShownLetter]
    next: str | None


class NewestLetters(BaseModel):
    dead_letters: list[ShownLetter]
    matching: int
    redrivable: int
    redrivable_streams: list[str]
    next: str | None
    is_complete: bool


class RedriveResult(BaseModel):
    redrive_id: str | None
    count: int
    already: int
    malformed: int
    is_complete: bool


@router.get(
    "/v1/streams/{stream}/dead-letters",
    response_model=LetterPage,
    openapi_extra=also("bad_query", "overloaded", "kafka_unavailable"),
)
async def list_dead_letters(
    request: Request,
    stream: PathName,
    caller: Reader,
    plane: Plane,
    query: Annotated[LetterQuery, Query()],
) -> Response:
    """List a stream's dead letters, also those of a removed stream."""
    caller.past_stream(stream, plane.configuration)
    return await _page(request, caller, plane, query, query.wanted(stream))


@router.get(
    "/v1/dead-letters",
    response_model=LetterPage,
    openapi_extra=also(
        "bad_query", "unknown_stream", "stream_forbidden", "overloaded", "kafka_unavailable"
    ),
)
async def list_all_dead_letters(
    request: Request, caller: Reader, plane: Plane, query: Annotated[AnyLetterQuery, Query()]
) -> Response:
    """List the dead letters of all streams, or of some."""
    # Only the operator of Hifi may see letters of unknown streams.
    is_operator = caller.tenant == DEFAULT_TENANT and "admin" in caller.scopes
    sees = _sees(caller, plane, query.stream, orphans=is_operator and not caller.streams)
    return await _page(request, caller, plane, query, query.wanted(sees=sees))


@router.get(
    "/v1/dead-letters:newest",
    response_model=NewestLetters,
    openapi_extra=also(
        "bad_query", "unknown_stream", "stream_forbidden", "overloaded", "kafka_unavailable"
    ),
)
async def show_newest_dead_letters(
    caller: Reader, plane: Plane, query: Annotated[NewestQuery, Query()]
) -> Response:
    """List dead letters, newest first, and count all that match: useful before a redrive."""
    sees = _sees(caller, plane, query.stream, orphans=False)
    live = plane.configuration.streams
    async with plane.letters_turns.of(caller.tenant):
        # Ask for one letter more than fits, to know whether there is a next page.
        surveyed = await plane.dead_letters.survey(
            query.wanted(sees=sees), newest_max=query.limit + 1, before=query.before
        )
    # A redrive does not send letters of removed streams.
    redrivable = {stream: n for stream, n in surveyed.streams.items() if stream in live}
    counts, shown = surveyed.counts, surveyed.newest[: query.limit]
    return as_json(
        {
            "dead_letters": [_shown(letter, surveyed.marked) for letter in shown],
            "matching": counts.count + counts.already + counts.malformed,
            "redrivable": sum(redrivable.values()),
            "redrivable_streams": sorted(redrivable),
            "next": str(shown[-1].age) if len(surveyed.newest) > len(shown) else None,
            "is_complete": counts.next is None,
        }
    )


@router.post(
    "/v1/streams/{stream}/dead-letters:redrive",
    response_model=RedriveResult,
    openapi_extra={
        **also("redrive_overtaken", "overloaded", "kafka_unavailable"),
        "requestBody": {"content": {"application/json": {"schema": _ORDER_SCHEMA}}},
    },
)
async def redrive_dead_letters(
    stream: PathName, caller: Admin, given: JsonObject, plane: Plane
) -> Response:
    """Send a stream's dead letters again, each one only once."""
    caller.stream(stream, plane.configuration)
    order = RedriveOrder.model_validate(given)
    redrive_id = None if order.dry_run else order.redrive_id or uuid.uuid4().hex
    wanted, count_max = order.wanted(stream), order.limit
    turns = plane.letters_turns if order.dry_run else plane.redrive_turns
    async with turns.of(caller.tenant):
        if redrive_id is not None:
            # Record the redrive before it sends anything, so that none goes unrecorded.
            facts = {**given, "redrive_id": redrive_id}
            deed = Deed(caller.tenant, "stream", stream, "redriven", facts)
            await plane.store.tell(deed, by=caller.author)
        try:
            if redrive_id is None:
                result = (await plane.dead_letters.survey(wanted, count_max=count_max)).counts
            else:
                result = await plane.dead_letters.redrive(
                    wanted,
                    redrive_id=redrive_id,
                    rate_per_s=order.rate_per_s,
                    count_max=count_max,
                )
        except OvertakenError as error:
            raise Problem(
                "redrive_overtaken",
                "Another redrive of this stream has begun, and this one has stopped. No letter"
                " was sent twice.",
            ) from error
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


async def _page(
    request: Request,
    caller: Caller,
    plane: ControlPlane,
    query: LetterQuery,
    wanted: DeadLetterFilter,
) -> Response:
    """Return a page as JSON or as an export, ordered by Kafka partition, oldest letters first."""
    is_export = _NDJSON in request.headers.get("accept", "")
    with_payload = is_export or query.payload == "true"
    if with_payload:
        # A key that may only send sees that letters exist, but not the events of others.
        caller.check("read")
    async with plane.letters_turns.of(caller.tenant):
        page, marked = await plane.dead_letters.page(
            wanted, after=query.after, count_max=query.limit, keeps_values=with_payload
        )
    if is_export:
        answer = Response(b"".join(map(export_line, page.letters)), media_type=_NDJSON)
    else:
        listed = [
            _shown(letter, marked) | (payload_of(letter.value) if with_payload else {})
            for letter in page.letters
        ]
        answer = as_json({"dead_letters": listed, "next": str(page.next) if page.next else None})
    answer.headers["hifi-count"] = str(len(page.letters))
    if page.next:
        answer.headers["hifi-next"] = str(page.next)
    return answer


def _sees(
    caller: Caller, plane: ControlPlane, streams: list[str], *, orphans: bool
) -> Callable[[str], bool]:
    """Return a test for wanted streams that the caller may see; `orphans` admits unknown ones."""
    configuration = plane.configuration

    def sees(stream: str) -> bool:
        known = configuration.streams.get(stream) or configuration.removed_streams.get(stream)
        return orphans if known is None else caller.sees(known)

    for stream in streams:
        if not sees(stream):
            # Raises the refusal: the stream is unknown, or forbidden to this caller.
            caller.past_stream(stream, configuration)
    return frozenset(streams).__contains__ if streams else sees


def _shown(letter: Letter, marked: AbstractSet[Place]) -> dict[str, Any]:
    return {**story_of(letter), "redriven": letter.place in marked}
