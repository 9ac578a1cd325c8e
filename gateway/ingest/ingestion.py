"""The data of a request with events while the gateway handles it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.types import Receive

from gateway.answers import Answer
from gateway.callers import Caller
from gateway.fleet.claims import KeyClaim
from gateway.intake.admission import Format
from gateway.intake.events import ParsedBody
from gateway.intake.request_spans import RequestSpan, RequestSpans
from gateway.problems import Problem
from gateway.publish.ledger import Request
from gateway.publish.report import Fate, Report
from gateway.request_options import RequestOptions
from shared.config.access import Tenant
from shared.config.configuration import Stream


class Arrival(msgspec.Struct, frozen=True):
    """A request whose body has not been read yet."""

    stream: str
    headers: Mapping[bytes, str]
    query_string: bytes
    state: Mapping[str, Any]
    receive: Receive
    request_id: str


class Ingestion(msgspec.Struct):
    """The data from a request's head, and the number of events in its body."""

    request_id: str
    caller: Caller
    stream: Stream
    body_format: Format
    options: RequestOptions
    traceparent: str | None
    now_ms: int
    event_count: int = 0
    # Only with an Idempotency-Key.
    claim: KeyClaim | None = None
    # Only for a traced request.
    span: RequestSpan | None = None

    def trace(self, spans: RequestSpans) -> None:
        """Begin a span if the request is traced; it becomes the parent of its events' spans."""
        given, tenant = self.traceparent, self.caller.tenant
        self.span = spans.begin(given, tenant=tenant, stream=self.stream.name)
        if self.span is not None:
            self.traceparent = self.span.traceparent

    async def traced(self, spans: RequestSpans, work: Awaitable[Answer]) -> Answer:
        """Return the answer of `work`, which gets a span."""
        self.trace(spans)
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value
        try:
            given = await work
            status = given.status
        except Problem as problem:
            status = problem.status
            raise
        finally:
            if self.span is not None:
                self.span.end(status, event_count=self.event_count)
        return given

    def note_reports(self, reports: Sequence[Report]) -> None:
        """Note in the span that Kafka has reported on the events."""
        if self.span is not None:
            is_all = all(report.fate is Fate.STORED for report in reports)
            self.span.stored(self.event_count, is_all=is_all)


class WholeRequest(msgspec.Struct, eq=False):
    """A request that arrived in one piece, until it is answered."""

    ingestion: Ingestion
    tenant: Tenant | None
    byte_count: int
    begun_s: float
    tell: Callable[[Answer], None]
    # True while its bytes count as in flight.
    is_in_flight: bool = False
    parsed: ParsedBody = msgspec.field(default_factory=ParsedBody)


def ledger_request(ingestion: Ingestion, reports: Sequence[Report]) -> Request:
    """Return the request as the ledger notes it, with the number of its stored events."""
    count = sum([len(report.positions) for report in reports if report.fate is Fate.STORED])
    return Request(ingestion.request_id, ingestion.now_ms, count)
