"""Builds the gateway's HTTP application."""

from functools import cache
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Match

from gateway.answers import problem_answer
from gateway.callers import Callers, ConfigSource
from gateway.control import channels, destinations, keys, pipeline_trial, pipelines, streams, tables
from gateway.control.changes.log import ChangeLog, KafkaChanges
from gateway.control.lookup import changes as change_routes
from gateway.control.lookup import receipts as receipt_routes
from gateway.control.lookup import statements, stream_events, stream_ids, stream_spread
from gateway.control.replacing import replacements
from gateway.control.requests import ControlPlane
from gateway.control.resends import dead_letters as dead_letter_routes
from gateway.control.resends import one_event as resending
from gateway.control.resends import replays as replay_routes
from gateway.control.stores.changes import ControlStore
from gateway.control.stores.receipts import EventPlaces, KafkaReceipts, ReceiptStore
from gateway.control.stores.redrive import DeadLetterStore, KafkaDeadLetters
from gateway.control.stores.replays import ReplayStore
from gateway.control.stores.resends import Resends
from gateway.fleet.claims import Claims
from gateway.fleet.quota import Quotas
from gateway.fleet.tenant_rate import channel_test_rate, resend_rate
from gateway.fleet.trial_news import TrialNews
from gateway.http.api_page import HEADERS, api_page
from gateway.http.openapi import document
from gateway.ingest.event_requests import Ingest
from gateway.intake.schemas import SchemaChecks
from gateway.problems import Problem, pointer_to
from gateway.publish.ledger import AckLedger
from gateway.publish.publisher import PostingPublisher
from gateway.routes import EventPaths
from gateway.settings import Settings
from gateway.tables.rows import Rows
from shared.config.model import ConfigError, config_error
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.lookup.stream_pages import StreamPages
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import KafkaUnavailableError
from shared.runtime.tables.folders import TableCopies

log = structlog.get_logger()
_about = APIRouter()


def create_app(
    settings: Settings,
    *,
    publisher: PostingPublisher,
    config: ConfigSource,
    callers: Callers,
    store: ControlStore,
    metrics: Metrics,
    schemas: SchemaChecks,
    claims: Claims,
    quotas: Quotas,
    trials: TrialNews,
    copies: TableCopies,
    ledger: AckLedger | None = None,
    dead_letters: DeadLetterStore | None = None,
    receipts: ReceiptStore | None = None,
    changes: ChangeLog | None = None,
    replays: ReplayStore | None = None,
) -> EventPaths:
    """Build the application from parts that the caller starts and stops."""
    plane = _plane(
        settings,
        config,
        callers=callers,
        store=store,
        schemas=schemas,
        trials=trials,
        dead_letters=dead_letters,
        receipts=receipts,
        changes=changes,
        replays=replays or ReplayStore(settings.bootstrap_servers),
    )
    ingest = Ingest(
        settings=settings,
        publisher=publisher,
        config=config,
        callers=callers,
        metrics=metrics,
        schemas=schemas,
        claims=claims,
        quotas=quotas,
        ledger=ledger,
    )
    rows = Rows(
        settings=settings,
        publisher=publisher,
        config=config,
        store=store,
        callers=callers,
        quotas=quotas,
        claims=claims,
        copies=copies,
    )
    control = _control_app(plane)
    return EventPaths(control, ingest=ingest, rows=rows, callers=callers, metrics=metrics)


def _plane(
    settings: Settings,
    config: ConfigSource,
    *,
    callers: Callers,
    store: ControlStore,
    schemas: SchemaChecks,
    trials: TrialNews,
    dead_letters: DeadLetterStore | None,
    receipts: ReceiptStore | None,
    changes: ChangeLog | None,
    replays: ReplayStore,
) -> ControlPlane:
    servers, schedule = settings.bootstrap_servers, RetrySchedule().scaled(settings.time_scale)
    letters = dead_letters or KafkaDeadLetters(servers, schedule=schedule)
    return ControlPlane(
        settings=settings,
        config=config,
        callers=callers,
        store=store,
        dead_letters=letters,
        receipts=receipts or KafkaReceipts(servers),
        box=settings.secret_box,
        schemas=schemas,
        stream_pages=StreamPages(servers),
        resends=Resends(servers, letters, schedule=schedule),
        charge_resend=resend_rate().charge,
        charge_channel_test=channel_test_rate().charge,
        places=EventPlaces(settings.observe),
        changes=changes or KafkaChanges(servers),
        replays=replays,
        try_pipeline=trials.of_pipeline,
        try_channel=trials.of_channel,
    )


def described(settings: Settings) -> dict[str, Any]:
    """Return the OpenAPI document; callers must not change it."""
    return _described(asks_for_keys=settings.asks_for_keys)


@cache
def _described(*, asks_for_keys: bool) -> dict[str, Any]:
    # It takes 0.1 s, and is the same for all gateways in a process.
    return document(_ROUTES, asks_for_keys=asks_for_keys)


@cache
def _page(*, asks_for_keys: bool) -> str:
    return api_page(_described(asks_for_keys=asks_for_keys))


@_about.get("/openapi.json", response_model=dict[str, Any])
async def describe(request: Request) -> Response:
    return JSONResponse(request.app.state.described)


@_about.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def show_api(request: Request) -> Response:
    return HTMLResponse(request.app.state.api_page, headers=HEADERS)


_ROUTERS = (
    *(streams, destinations, pipelines, replacements, tables, channels, keys),
    *(dead_letter_routes, receipt_routes, stream_events, stream_spread, resending, change_routes),
    *(statements, stream_ids, pipeline_trial, replay_routes),
)
_ROUTES = [route for each in _ROUTERS for route in each.router.routes] + _about.routes
_REFUSALS = (
    *(Problem, ConfigError, ValidationError, RequestValidationError),
    *(KafkaUnavailableError, HTTPException, Exception),
)


def _control_app(plane: ControlPlane) -> FastAPI:
    # The framework's own pages would load scripts from other sites, so we serve ours instead.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.router.routes.extend(_ROUTES)
    app.state.control_plane = plane
    app.state.described = described(plane.settings)
    app.state.api_page = _page(asks_for_keys=plane.settings.asks_for_keys)
    for kind in _REFUSALS:
        app.add_exception_handler(kind, _tell)
    return app


async def _tell(request: Request, error: Exception) -> Response:
    answer = problem_answer(_problem(request, error), request.state.request_id)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
    return Response(answer.body, status_code=answer.status, headers=headers)


def _problem(  # noqa: PLR0911 - one for each kind of error
    request: Request, error: Exception
) -> Problem:
    """Return the problem for an error of our code, a library or the framework."""
    match error:
        case Problem():
            return error
        case ConfigError():
            pointer = pointer_to(error.setting) if error.setting else None
            return Problem("bad_object", f"{error}.", pointer=pointer)
        case ValidationError():
            return _problem(request, config_error(error.errors()[0]))
        case RequestValidationError():
            first = error.errors()[0]
            # The first part of its location is always "query".
            wrong = config_error({**first, "loc": first["loc"][1:]})
            return Problem("bad_query", f"{wrong}.")
        case KafkaUnavailableError():
            soon = ((b"retry-after", b"2"),)
            return Problem("kafka_unavailable", str(error), headers=soon)
        case HTTPException(status_code=405):
            detail = f"This path does not support {request.method}."
            return Problem("method_not_allowed", detail, headers=((b"allow", _allowed(request)),))
        case HTTPException():
            return Problem("not_found", f"This API has no path {request.url.path[:200]!r}.")
        case _:
            # This is a bug: the caller gets the request's id, and the log the details.
            log.error("request.failed", path=request.url.path, exc_info=error)
            return Problem("internal_error", "The request failed because of a bug in the gateway.")


def _allowed(request: Request) -> bytes:
    allowed = {
        method
        for route in _ROUTES
        if isinstance(route, APIRoute) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return ", ".join(sorted(allowed)).encode()
