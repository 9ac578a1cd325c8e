"""Decides what the gateway's HTTP application is made of."""

from time import monotonic

import structlog
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.callers import Callers, ConfigSource
from gateway.control.dead_letters import DeadLetterPaths, DeadLetterStore, KafkaDeadLetters
from gateway.control.destinations import Destinations
from gateway.control.receipts import KafkaReceipts, ReceiptPaths, ReceiptStore
from gateway.control.requests import ControlRequests
from gateway.control.store import ControlStore
from gateway.control.streams import Control
from gateway.http.access_log import AccessLog
from gateway.ingest import Ingest
from gateway.intake.admission import echoed_request_id
from gateway.jwt import TokenReader
from gateway.openapi.document import document
from gateway.problems import Problem
from gateway.publish.ledger import AckLedger
from gateway.publish.publisher import Publisher
from gateway.publish.spool import Spool
from gateway.routes import EventPaths, new_request_id, problem_answer
from gateway.settings import Settings
from shared.metric_names import GATEWAY_REQUESTS
from shared.retry.schedule import RetrySchedule
from shared.runtime.metrics import Metrics
from shared.runtime.resolver import Resolver

log = structlog.get_logger()


def create_app(
    settings: Settings,
    *,
    publisher: Publisher,
    config: ConfigSource,
    store: ControlStore,
    metrics: Metrics,
    ledger: AckLedger | None = None,
    spool: Spool | None = None,
    dead_letters: DeadLetterStore | None = None,
    receipts: ReceiptStore | None = None,
) -> ASGIApp:
    """Put the parts together. Who made the parts also starts and stops them."""
    callers = Callers(config, is_on=settings.asks_for_keys, tokens=_token_reader(settings))
    # The pages of the framework load scripts from elsewhere; the document is our own.
    others = FastAPI(title="Hifi gateway", docs_url=None, redoc_url=None, openapi_url=None)
    described = document(settings)

    async def describe(_: Request) -> Response:
        return JSONResponse(described)

    others.add_route("/openapi.json", describe, methods=["GET"])
    requests = ControlRequests(settings=settings, config=config, callers=callers, store=store)
    others.router.routes.extend(Control(requests).routes())
    others.router.routes.extend(
        Destinations(requests, box=settings.secret_box, resolve=Resolver()).routes()
    )
    resting = dead_letters or KafkaDeadLetters(settings.bootstrap_servers)
    others.router.routes.extend(DeadLetterPaths(requests, resting).routes())
    kept = receipts or KafkaReceipts(settings.bootstrap_servers)
    schedule = RetrySchedule().scaled(settings.time_scale)
    others.router.routes.extend(ReceiptPaths(requests, kept, schedule).routes())
    others.add_exception_handler(HTTPException, _refuse)
    others.add_exception_handler(Problem, _tell)
    others.add_exception_handler(Exception, _fail)
    ingest = Ingest(
        settings=settings,
        publisher=publisher,
        config=config,
        callers=callers,
        metrics=metrics,
        ledger=ledger,
        spool=spool,
    )
    access_log = AccessLog()
    return EventPaths(
        _Counted(others, metrics, access_log),
        ingest=ingest,
        callers=callers,
        metrics=metrics,
        access_log=access_log,
    )


class _Counted:
    """An application whose answers are counted, logged, and carry their request's number."""

    def __init__(self, app: ASGIApp, metrics: Metrics, access_log: AccessLog) -> None:
        self._app = app
        self._access_log = access_log
        self._requests = metrics.counter(GATEWAY_REQUESTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id, begun_s = new_request_id(), monotonic()
        scope.setdefault("state", {})["request_id"] = request_id
        given = dict(scope.get("headers", ())).get(b"x-request-id")
        echoed = echoed_request_id(given.decode("latin-1") if given else None, otherwise=request_id)

        async def counted(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                assert isinstance(status, int)
                self._requests.labels("other", str(status)).inc()
                self._access_log.note(
                    "control", scope, status=status, request_id=request_id, begun_s=begun_s
                )
                headers = message.setdefault("headers", [])
                assert isinstance(headers, list)
                headers.append((b"x-request-id", echoed.encode()))
            await send(message)

        await self._app(scope, receive, counted)  # type: ignore[arg-type]  # a narrower Send


async def _refuse(request: Request, error: Exception) -> Response:
    """What the framework refuses (no such path, wrong method), told as every other problem."""
    assert isinstance(error, HTTPException), "registered for nothing else"
    headers = tuple((n.lower().encode(), v.encode()) for n, v in (error.headers or {}).items())
    if error.status_code == 405:  # noqa: PLR2004 - Method Not Allowed
        detail = f"{request.method} does not work here."
        return _response(request, Problem("method_not_allowed", detail, headers=headers))
    detail = f"{request.url.path[:200]!r} is not a path of this API."
    return _response(request, Problem("not_found", detail, headers=headers))


async def _tell(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem), "registered for nothing else"
    return _response(request, error)


async def _fail(request: Request, error: Exception) -> Response:
    """A bug of ours: the caller gets a number to ask about, the log gets the story."""
    log.error("request.failed", path=request.url.path, exc_info=error)
    return _response(request, Problem("internal_error", "The request was not understood by us."))


def _response(request: Request, problem: Problem) -> Response:
    found = problem_answer(problem, request.state.request_id)
    response = Response(found.body, status_code=found.status)
    for name, value in found.headers:
        response.headers[name.decode("latin-1")] = value.decode("latin-1")
    return response


def _token_reader(settings: Settings) -> TokenReader | None:
    if settings.jwt_keys_file is None:
        return None
    return TokenReader(
        settings.jwt_keys_file, issuer=settings.jwt_issuer, audience=settings.jwt_audience
    )
