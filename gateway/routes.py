"""Decides how HTTP becomes a publish and its reports become an answer: the API's paths.

The events route is plain ASGI: it runs for every request, and a framework's request object costs
as much as the rest of it. What a request means is decided elsewhere (admission, events, answers).
"""

import os
from collections.abc import Mapping
from http import HTTPStatus
from time import monotonic, time_ns
from typing import Protocol
from urllib.parse import parse_qs

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway import admission, problems
from gateway.answers import Answer, answer, count_outcomes
from gateway.body import Body, ClientGoneError
from gateway.events import KEY_BYTES_MAX, Context, Limits, Parsed, parse
from gateway.problems import Problem
from gateway.publisher import Publisher
from gateway.report import Report
from gateway.settings import Settings
from shared.configuration import Configuration
from shared.metric_names import (
    GATEWAY_ACK_SECONDS,
    GATEWAY_BODY_BYTES,
    GATEWAY_EVENTS,
    GATEWAY_IN_FLIGHT_BYTES,
    GATEWAY_REQUESTS,
)
from shared.runtime.metrics import Metrics
from shared.topics import stream_topic

log = structlog.get_logger()

_JSON = b"application/json"
# For the metric only: what nginx counts when the client left before its answer.
_CLIENT_GONE = 499


class ConfigSource(Protocol):
    """Where the newest configuration is; shared.runtime's ConfigFeed in a running gateway."""

    @property
    def configuration(self) -> Configuration: ...


class EventsRoute:
    """POST /v1/streams/{stream}/events."""

    def __init__(
        self,
        *,
        settings: Settings,
        publisher: Publisher,
        config: ConfigSource,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._config = config
        self._metrics = metrics
        self._limits = Limits(
            events_max=settings.events_max, event_bytes_max=settings.event_bytes_max
        )
        self._in_flight = admission.InFlight(settings.in_flight_bytes_max)
        metrics.gauge(GATEWAY_IN_FLIGHT_BYTES).set_function(
            lambda: self._in_flight.byte_count + publisher.overdue_bytes
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        given_id = headers.get(b"x-request-id")
        echoed = (
            (b"x-request-id", admission.echoed_request_id(given_id, otherwise=request_id).encode()),
        )
        try:
            result = await self._take(scope, receive, headers, request_id)
        except Problem as problem:
            result = problem
        except ClientGoneError:
            self._count(_CLIENT_GONE)
            return
        except Exception:
            log.exception("request.failed", request_id=request_id)
            result = Problem("internal_error", "It is not known what was stored of this request.")
        self._count(result.status)
        if isinstance(result, Problem):
            body, content_type = result.to_json(request_id), problems.CONTENT_TYPE
            await _send(send, result.status, content_type, body, echoed + result.headers)
        else:
            await _send(send, result.status, _JSON, result.body, echoed)

    async def _take(
        self, scope: Scope, receive: Receive, headers: Mapping[bytes, str], request_id: str
    ) -> Answer | Problem:
        if scope["method"] != "POST":
            raise Problem(
                "method_not_allowed", "Events are sent with POST.", headers=((b"allow", b"POST"),)
            )
        stream: str = scope["path_params"]["stream"]
        if stream not in self._config.configuration.streams:
            raise unknown_stream(stream)
        admission.check_type(headers.get(b"content-type", ""))
        admission.check_encoding(headers.get(b"content-encoding", ""))
        lists_all = _lists_all(scope["query_string"])
        key = _ordering_key(headers.get(b"x-partition-key"))
        body = Body(
            receive,
            in_flight=self._in_flight,
            overdue_bytes=self._publisher.overdue_bytes,
            body_bytes_max=self._settings.body_bytes_max,
            deadline_s=self._settings.receive_deadline_s,
        )
        try:
            raw = await body.read(headers.get(b"content-length"))
            self._metrics.counter(GATEWAY_BODY_BYTES).labels(stream).inc(len(raw))
            context = Context(
                request_id=request_id,
                accepted_at_ms=time_ns() // 1_000_000,
                key=key,
                traceparent=admission.traceparent(headers.get(b"traceparent")),
            )
            parsed = parse(raw, context=context, limits=self._limits)
            reports = await self._publish(stream, parsed)
        finally:
            body.release()
        counts = count_outcomes(parsed, reports)
        for word, count in counts.items():
            self._metrics.counter(GATEWAY_EVENTS).labels(stream, word).inc(count)
        return answer(parsed, reports, counts=counts, request_id=request_id, lists_all=lists_all)

    async def _publish(self, stream: str, parsed: Parsed) -> list[Report]:
        if not parsed.events:
            return []
        begun_s = monotonic()
        reports = await self._publisher.publish(stream_topic(stream), parsed.events)
        took_s = monotonic() - begun_s
        self._metrics.histogram(GATEWAY_ACK_SECONDS).labels(stream).observe(took_s)
        return list(reports)

    def _count(self, status: int) -> None:
        self._metrics.counter(GATEWAY_REQUESTS).labels("events", str(status)).inc()


async def list_streams(request: Request) -> Response:
    """GET /v1/streams: the names that events can be sent to."""
    config: ConfigSource = request.app.state.config
    count_request(request, HTTPStatus.OK)
    return Response(
        msgspec.json.encode({"streams": sorted(config.configuration.streams)}),
        media_type="application/json",
    )


async def refuse(request: Request, error: Exception) -> Response:
    """What the framework refuses (no such path, wrong method), told as every other problem."""
    assert isinstance(error, HTTPException), "registered for nothing else"
    headers = tuple((n.encode(), v.encode()) for n, v in (error.headers or {}).items())
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        problem = Problem(
            "method_not_allowed", f"{request.method} does not work here.", headers=headers
        )
    else:
        problem = Problem(
            "not_found", f"{request.url.path} is not a path of this API.", headers=headers
        )
    return _respond(request, problem)


async def fail(request: Request, error: Exception) -> Response:
    """A bug of ours: the caller gets a number to ask about, the log gets the story."""
    log.error("request.failed", path=request.url.path, exc_info=error)
    return _respond(request, Problem("internal_error", "The request was not understood by us."))


def count_request(request: Request, status: int, *, route: str = "streams") -> None:
    metrics: Metrics = request.app.state.metrics
    metrics.counter(GATEWAY_REQUESTS).labels(route, str(int(status))).inc()


def unknown_stream(stream: str) -> Problem:
    return Problem(
        "unknown_stream",
        f"There is no stream {stream[:100]!r}; GET /v1/streams lists the ones there are.",
    )


def new_request_id() -> str:
    """A UUID of version 7: sorts by time, and nobody else has it (RFC 9562)."""
    now_ms = time_ns() // 1_000_000
    dice = int.from_bytes(os.urandom(10))
    number = (now_ms << 80 | dice) & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _respond(request: Request, problem: Problem) -> Response:
    count_request(request, problem.status, route="other")
    request_id = new_request_id()
    given_id = request.headers.get("x-request-id")
    headers = {name.decode(): value.decode() for name, value in problem.headers}
    headers["x-request-id"] = admission.echoed_request_id(given_id, otherwise=request_id)
    return Response(
        problem.to_json(request_id),
        status_code=problem.status,
        headers=headers,
        media_type=problems.CONTENT_TYPE.decode(),
    )


def _lists_all(query_string: bytes) -> bool:
    """`results=all` asks for an entry for each event, not only for those with a problem."""
    if not query_string:
        return False
    return parse_qs(query_string.decode("latin-1")).get("results") == ["all"]


def _ordering_key(header: str | None) -> bytes | None:
    if not header:
        return None
    # Header text reaches us as latin-1; the bytes are what the client sent.
    key = header.encode("latin-1")
    if len(key) > KEY_BYTES_MAX:
        raise Problem("bad_header", f"X-Partition-Key has at most {KEY_BYTES_MAX} bytes.")
    return key


async def _send(
    send: Send,
    status: int,
    content_type: bytes,
    body: bytes,
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", content_type), length, *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})
