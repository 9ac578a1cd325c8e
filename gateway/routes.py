"""Serves the paths of events (with CORS) and of rows; passes all others on.

It counts every answer, and adds the request's id. Plain ASGI: this runs for every request, and a
framework's request object would double its cost. Other modules (gateway.ingest.event_requests and
those it uses) decide what a request means.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from time import monotonic, time_ns

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.answers import PROBLEM_TYPE, Answer, problem_answer, unforeseen
from gateway.callers import Callers
from gateway.http.access_log import AccessLog
from gateway.http.door import Respond
from gateway.ingest.event_requests import Ingest
from gateway.ingest.head import read_headers
from gateway.ingest.ingestion import Arrival
from gateway.ingest.whole_head import WholeHead
from gateway.intake import admission
from gateway.intake.request_body import ClientGoneError
from gateway.problems import Problem
from gateway.request_options import read_query
from gateway.tables.rows import RowRequest, Rows, row_request
from gateway.tables.watching import Watch
from shared.metric_names import GATEWAY_REQUESTS
from shared.runtime.metrics import Metrics
from shared.runtime.serving.deadlines import stays

_JSON = (b"content-type", b"application/json")
# For the metric only: nginx uses it when the client disconnects before the answer.
_CLIENT_GONE = 499
_PATH = re.compile(r"/v1/streams/([^/]+)/(events|beacon)")
# Looked up once, because access to an enum's member is a call.
_BAD_REQUEST = HTTPStatus.BAD_REQUEST
_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
# The two bits that are the same in each UUID, with two random ones (RFC 9562, 4.1).
_VARIANTS = "89ab"
_CHANCE_BYTES = 10
# How many ids one system call makes; a call costs as much as reading an event.
_IDS_AT_ONCE = 256
# The control plane's routes serve these methods.
_LOOKS = frozenset({"GET", "HEAD"})
_ALLOW = {"beacon": ((b"allow", b"POST, OPTIONS"),), "events": ((b"allow", b"GET, POST, OPTIONS"),)}
# How long a browser may cache the answer to a preflight; Chromium caches none longer.
_MAX_AGE_S = 7_200
_HEADER_NAMES = re.compile(r"[A-Za-z0-9\-, ]{1,1000}")
_EXPOSED = b"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, Idempotency-Replayed"
# All answers depend on the origin, so no cache may give one page's answer to another.
_VARY = (b"vary", b"Origin")

# Browsers send each beacon with their credentials, and send JSON only if credentials are allowed.
# That is safe, as we read only the key in a beacon's query. The route of events must not allow
# credentials: the client certificate of a person who views the page would count as a key.
_CREDENTIALS = {"beacon": ((b"access-control-allow-credentials", b"true"),), "events": ()}


class EventPaths:
    """POST /v1/streams/{stream}/events and .../beacon; everything else goes to `others`."""

    def __init__(
        self, others: ASGIApp, *, ingest: Ingest, rows: Rows, callers: Callers, metrics: Metrics
    ) -> None:
        self._others = others
        self.rows = rows
        self._access_log = AccessLog()
        self._request_ids = request_ids()
        self.ingest = ingest
        self._callers = callers
        self._requests_of = cache(metrics.counter(GATEWAY_REQUESTS).labels)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = next(self._request_ids)
        more: tuple[tuple[bytes, bytes], ...]
        try:
            headers = read_headers(scope)
        except Problem as problem:
            self._requests_of("other", str(problem.status)).inc()
            more = ((b"x-request-id", request_id.encode()),)
            await _respond(send, problem_answer(problem, request_id), more)
            return
        echoed = admission.echoed_request_id(headers.get(b"x-request-id"), otherwise=request_id)
        more = ((b"x-request-id", echoed.encode()),)
        match = _PATH.fullmatch(scope["path"])
        if match is not None and match[2] == "events" and scope["method"] in _LOOKS:
            match = None
        if match is None and (asked := row_request(scope, receive, headers, request_id)):
            await self._serve_rows(asked, send, more)
            return
        if match is None:
            scope.setdefault("state", {})["request_id"] = request_id
            await self._pass_on(scope, receive, send, more)
            return
        stream, what = match[1], match[2]
        arrival = Arrival(
            stream=stream,
            headers=headers,
            query_string=scope["query_string"],
            state=scope.get("state", {}),
            receive=receive,
            request_id=request_id,
        )
        begun_s = monotonic()
        answer = await self._answer(scope["method"], what, arrival)
        status = _CLIENT_GONE if answer is None else int(answer.status)
        self._requests_of(what, str(status)).inc()
        if status >= _BAD_REQUEST:
            self._access_log.note(
                what, scope, status=status, request_id=request_id, begun_s=begun_s
            )
        if answer is None:
            return
        origin = headers.get(b"origin")
        is_preflight = scope["method"] == "OPTIONS"
        if origin and not is_preflight and self._callers.allowed_origin(origin, stream):
            allowed = (b"access-control-allow-origin", origin.encode("latin-1"))
            more += (allowed, (b"access-control-expose-headers", _EXPOSED), *_CREDENTIALS[what])
            more += (_VARY,)
        await _respond(send, answer, more)

    async def _serve_rows(
        self, asked: RowRequest, send: Send, more: tuple[tuple[bytes, bytes], ...]
    ) -> None:
        begun_s, answer = monotonic(), await self.rows.serve(asked)
        if isinstance(answer, Watch) and not stays(asked.scope.setdefault("state", {})):
            answer = None
        if isinstance(answer, Watch):
            try:
                await answer.run(asked.receive, send, [*more])
            except Problem as problem:
                answer = problem_answer(problem, asked.request_id)
            else:
                self._requests_of("watch", "200").inc()
                return
        status = _CLIENT_GONE if answer is None else int(answer.status)
        self._requests_of("rows", str(status)).inc()
        if status >= _BAD_REQUEST:
            self._access_log.note(
                "rows", asked.scope, status=status, request_id=asked.request_id, begun_s=begun_s
            )
        if answer is not None:
            await _respond(send, answer, more)

    def post(self, head: WholeHead, body: bytes, respond: Respond) -> bool:
        """Take a request with events that arrived in one piece (gateway.http.door)."""
        request_id, begun_s = next(self._request_ids), monotonic()

        def tell(answer: Answer) -> None:
            status = int(answer.status)
            self._requests_of("events", str(status)).inc()
            if status >= _BAD_REQUEST:
                path = f"/v1/streams/{head.stream}/events"
                self._access_log.note(
                    "events",
                    {"method": "POST", "path": path},
                    status=status,
                    request_id=request_id,
                    begun_s=begun_s,
                )
            number = (b"x-request-id", head.echoed or request_id.encode())
            respond(STATUS_LINE[status], _headers(answer, (number,)), answer.body)

        return self.ingest.post(head, body, request_id, tell)

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, more: tuple[tuple[bytes, bytes], ...]
    ) -> None:
        begun_s, request_id = monotonic(), scope["state"]["request_id"]

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                self._requests_of("other", str(status)).inc()
                self._access_log.note(
                    "control", scope, status=status, request_id=request_id, begun_s=begun_s
                )
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        if scope["method"] == "HEAD":
            # The server omits the body.
            scope = {**scope, "method": "GET"}
        await self._others(scope, receive, counted)

    async def _answer(  # noqa: PLR0911 - one for each way in which a request can end
        self, method: str, what: str, arrival: Arrival
    ) -> Answer | None:
        """Return the answer; None if the client has disconnected."""
        try:
            match method, what:
                case "POST", "events":
                    return await self.ingest.take(arrival)
                case "POST", _:
                    key = read_query(arrival.query_string, {"key"}).get("key", [""])[0]
                    return await self.ingest.take_beacon(arrival, key=key)
                case "OPTIONS", _:
                    return self._preflight(arrival, what)
                case _:
                    detail = "Send events with POST."
                    problem = Problem("method_not_allowed", detail, headers=_ALLOW[what])
                    return problem_answer(problem, arrival.request_id)
        except Problem as problem:
            return problem_answer(problem, arrival.request_id)
        except ClientGoneError:
            return None
        except Exception as error:  # noqa: BLE001 - reported as internal_error
            return unforeseen(arrival.request_id, error)

    def _preflight(self, arrival: Arrival, what: str) -> Answer:
        origin = arrival.headers.get(b"origin")
        if not origin or not self._callers.allowed_origin(origin, arrival.stream):
            return Answer(HTTPStatus.NO_CONTENT, b"", (*_ALLOW[what], _VARY))
        asked = arrival.headers.get(b"access-control-request-headers", "")
        names = asked if _HEADER_NAMES.fullmatch(asked) else ""
        headers = (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-methods", b"POST"),
            (b"access-control-allow-headers", names.encode()),
            (b"access-control-max-age", b"%d" % _MAX_AGE_S),
            *_CREDENTIALS[what],
            _VARY,
        )
        return Answer(HTTPStatus.NO_CONTENT, b"", headers)


def request_ids() -> Iterator[str]:
    """Yield unique UUIDs of version 7, which sort by time (RFC 9562), without end."""
    while True:
        chance = os.urandom(_IDS_AT_ONCE * _CHANCE_BYTES).hex()
        for at in range(0, len(chance), 2 * _CHANCE_BYTES):
            dice = chance[at : at + 2 * _CHANCE_BYTES]
            variant, now = _VARIANTS[int(dice[-1], 16) & 3], f"{time_ns() // 1_000_000:012x}"
            yield f"{now[:8]}-{now[8:]}-7{dice[:3]}-{variant}{dice[3:6]}-{dice[6:18]}"


async def _respond(send: Send, answer: Answer, more: tuple[tuple[bytes, bytes], ...]) -> None:
    start = {"type": "http.response.start", "status": answer.status}
    await send({**start, "headers": _headers(answer, more)})
    await send({"type": "http.response.body", "body": answer.body})


def _headers(answer: Answer, more: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    headers = [*more, *answer.headers]
    if answer.status not in _WITHOUT_BODY:
        headers.append((b"content-length", b"%d" % len(answer.body)))
        if PROBLEM_TYPE not in answer.headers:
            headers.append(_JSON)
    return headers
