"""The route that lists signed statements about a stream's minutes to readers of the stream."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.callers import Caller
from gateway.control.changes.log import AskedChanges
from gateway.control.lookup.stream_events import CursorText
from gateway.control.requests import ControlPlane, PathName, Plane, Reader, TimeMs, also, as_json
from shared.config.access import DEFAULT_TENANT
from shared.event.record import RecordIn
from shared.event.topics import DEAD_RETENTION_MS, STATEMENTS
from shared.proof.statement import SignedStatement
from shared.runtime.clock import now_ms

router = APIRouter()

_COUNT_DEFAULT, _COUNT_MAX = 100, 1_000


class StatementQuery(BaseModel):
    """The statements to list, and how many of them."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    limit: Annotated[int, Field(ge=1, le=_COUNT_MAX)] = _COUNT_DEFAULT
    # The `older` of the previous page: only statements that were signed earlier.
    before: CursorText | None = None
    since_ms: TimeMs | None = Field(
        default=None, alias="from", description="First minute, by the events' times."
    )
    until_ms: TimeMs | None = Field(
        default=None, alias="to", description="Only minutes before this."
    )

    def takes(self, minute_ms: int) -> bool:
        return (self.since_ms is None or minute_ms >= self.since_ms) and (
            self.until_ms is None or minute_ms < self.until_ms
        )


class ShownStatement(BaseModel):
    """A statement as it was published; the signature covers the exact bytes of `statement`."""

    statement: dict[str, Any]
    public_key: str = Field(description="Raw, in hex: compare it with the key you trust.")
    signature: str = Field(description="Ed25519, in base64.")


class StatementPage(BaseModel):
    statements: list[ShownStatement]
    older: str | None = Field(description="Pass it as `before` to get earlier statements.")
    is_complete: bool = Field(description="False: time ran out; continue with `older`.")


@router.get(
    "/v1/streams/{stream}/statements",
    response_model=StatementPage,
    openapi_extra=also("bad_query", "overloaded", "kafka_unavailable"),
)
async def list_statements(
    stream: PathName, caller: Reader, plane: Plane, query: Annotated[StatementQuery, Query()]
) -> Response:
    """List the signed statements about a stream's minutes, newest first."""
    caller.past_stream(stream, plane.configuration)
    caller.check("read")
    async with plane.event_turns.of(caller.tenant):
        signed_since_ms = await _owned_since(plane, caller, stream)

        def wanted(record: RecordIn) -> bool:
            return record.timestamp_ms >= signed_since_ms and _is_of(record, stream, query)

        page = await plane.stream_pages.newest(
            STATEMENTS, count=query.limit, wanted=wanted, before=query.before
        )
    return as_json(
        {
            "statements": [msgspec.Raw(record.value) for record in page.records],
            "older": None if page.older is None else str(page.older),
            "is_complete": page.is_complete,
        }
    )


async def _owned_since(plane: ControlPlane, caller: Caller, stream: str) -> int:
    """Return when the caller got the stream's name; older statements may belong to others.

    Statements are kept for longer than a removed stream's name is reserved.
    """
    if caller.tenant == DEFAULT_TENANT and "admin" in caller.scopes:
        return 0
    made = await plane.changes.page(
        AskedChanges(
            count=1,
            tenant=caller.tenant,
            object=("stream", stream),
            wanted=lambda change: change.did == "created",
        )
    )
    if made.changes:
        return made.changes[0].at_ms
    # The record of the creation has expired. The name changes its owner only after Kafka has
    # deleted the dead letters of the former one.
    return now_ms() - DEAD_RETENTION_MS


def _is_of(record: RecordIn, stream: str, query: StatementQuery) -> bool:
    """Return whether the record is a readable statement about a wanted minute of the stream."""
    if not (record.key or b"").startswith(f"{stream}:".encode()):
        return False
    try:
        signed = SignedStatement.from_json(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return query.takes(signed.statement.minute_ms)
