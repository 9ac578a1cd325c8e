"""The route that lists the ids of a stream's events, from its log or from the ledger."""

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.control.lookup.stream_events import CursorText
from gateway.control.requests import PathName, Plane, Reader, TimeMs, also, as_json
from shared.event.derived import restore_of
from shared.event.envelope import open_stream_record
from shared.event.record import RecordIn
from shared.event.topics import ACKED, stream_topic
from shared.proof.acked import AckedRow, audited_minute

router = APIRouter()


class IdQuery(BaseModel):
    """The events whose ids to list."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    after: CursorText | None = Field(default=None, description="`newer` of the previous page.")
    since_ms: TimeMs = Field(default=0, alias="from", description="Events stored from then on.")
    minute_ms: int | None = Field(
        default=None, description="Only ids of this minute, as a statement names it."
    )
    acked: bool = Field(
        default=False,
        description="Read the ledger of acknowledged events instead of the log. It also has ids of"
        " events that Kafka has deleted, but no ids of events that pipelines or restores wrote.",
    )


class IdPage(BaseModel):
    """Some ids, and where to continue."""

    ids: list[str]
    restored: list[str] = Field(description="Those of `ids` that a restore has put back.")
    newer: str = Field(description="Pass it as `after` to get later ids.")
    is_complete: bool = Field(description="False: there are more; continue with `newer`.")


@router.get(
    "/v1/streams/{stream}/ids",
    response_model=IdPage,
    openapi_extra=also("bad_query", "overloaded", "kafka_unavailable"),
)
async def list_ids(
    stream: PathName, caller: Reader, plane: Plane, query: Annotated[IdQuery, Query()]
) -> Response:
    """List the ids of a stream's events in the order of the log."""
    caller.past_stream(stream, plane.configuration)
    caller.check("read")
    start = query.since_ms if query.after is None else query.after
    source = _LedgerIds(stream, query.minute_ms) if query.acked else _Log(stream, query.minute_ms)
    async with plane.event_turns.of(caller.tenant):
        page = await plane.stream_pages.since(
            source.topic, start, count=source.count_max, wanted=source.has_some
        )
        # Tens of thousands of ids take 0.1 s; in a thread they do not hold up other requests.
        ids, restored = await asyncio.to_thread(_ids, source, page.records)
    answer = {"ids": ids, "restored": restored}
    return as_json({**answer, "newer": str(page.newer), "is_complete": page.is_last})


class _Log(NamedTuple):
    """The ids in the stream's log, where a record is an event."""

    stream: str
    minute_ms: int | None
    count_max: int = 10_000

    @property
    def topic(self) -> str:
        return stream_topic(self.stream)

    def has_some(self, record: RecordIn) -> bool:
        if self.minute_ms is None:
            return True
        event = open_stream_record(record)
        return audited_minute(event.event_time_ms, event.accepted_at_ms) == self.minute_ms

    def ids(self, record: RecordIn) -> list[str]:
        return [open_stream_record(record).event_id]


class _LedgerIds(NamedTuple):
    """The ids in the ledger, where a record is a row about events; unreadable rows are skipped."""

    stream: str
    minute_ms: int | None
    count_max: int = 1_000
    topic: str = ACKED

    def has_some(self, record: RecordIn) -> bool:
        # Nearly all rows are about other streams, so do not open those.
        if record.key != self.stream.encode():
            return False
        try:
            row = AckedRow.from_bytes(record.value, with_ids=False)
        except ValueError:
            return False
        return any(self.minute_ms in {None, minute} for minute, _, _ in row.claims())

    def ids(self, record: RecordIn) -> list[str]:
        named = AckedRow.from_bytes(record.value).named()
        return [event_id for minute, _, event_id in named if self.minute_ms in {None, minute}]


def _ids(told: _Log | _LedgerIds, records: Iterable[RecordIn]) -> tuple[list[str], list[str]]:
    """Return all ids, and separately those that a restore has put back."""
    pairs = [(record, told.ids(record)) for record in records]
    restored = (ids for record, ids in pairs if restore_of(record.headers))
    return list(chain.from_iterable(ids for _, ids in pairs)), list(chain.from_iterable(restored))
