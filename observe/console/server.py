"""Serves the console within the process that observes, and keeps the history of lag for it."""

import asyncio
import secrets
from collections.abc import Callable, Mapping

import structlog

from observe.console.app import create_app
from observe.console.authentication import Authentication, KeySource
from observe.console.lag_history import STEP_MS, LagHistory
from observe.console.live import Live
from observe.console.page_context import PageContext
from observe.console.pages.event_page import EventFinder
from observe.console.posts import Posts
from observe.console.settings import ConsoleSettings
from observe.console.sources import Sources
from observe.console.views import Views
from observe.state import Observed
from shared.flow.flow_record import FlowRecord
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.http_server import HttpServer, listening, server_config

log = structlog.get_logger()

# Live pages end at once when they are told; what else is under way is a page.
_DRAIN_S = 5
_SECRET_BYTES = 32


async def serve_console(
    settings: ConsoleSettings,
    *,
    observed: Observed,
    config: KeySource,
    events: EventFinder,
    flows: Callable[[], Mapping[str, FlowRecord]],
    schedule: RetrySchedule,
    stop: asyncio.Event,
    on_started: Callable[[int], None] = lambda _port: None,
) -> None:
    """Serve until `stop` is set. `on_started` gets the port."""
    lag_history = LagHistory()
    live = Live()
    authentication = Authentication(
        config,
        is_open=not settings.asks_for_keys,
        # A new one each time: who was signed in signs in again, and no secret lies on a disk.
        secret=secrets.token_bytes(_SECRET_BYTES),
        is_https=settings.https,
        now_ms=now_ms,
    )

    def context() -> PageContext:
        return PageContext(observed.snapshot(), config.configuration, flows(), lag_history)

    sources = Sources(authentication, context, events, settings.gateway, schedule, now_ms)
    app = create_app(Views(sources, live=live), Posts(sources), hosts=settings.host_names)
    with listening(
        "The console",
        host=settings.host,
        port=settings.port,
        setting="HIFI_OBSERVE_CONSOLE_PORT",
    ) as bound:
        server = HttpServer(server_config(app, drain_s=_DRAIN_S))
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[bound]))
            remembering = group.create_task(_remember(observed, lag_history))
            await server.listens.wait()
            port = bound.getsockname()[1]
            if authentication.is_open:
                log.warning("console.open", host=settings.host, port=port)
            log.info("console.started", host=settings.host, port=port)
            on_started(port)
            await stop.wait()
            live.stop()
            server.should_exit = True
            await serving
            remembering.cancel()


async def _remember(observed: Observed, lag_history: LagHistory) -> None:
    while True:
        lag_history.take(observed.snapshot())
        await asyncio.sleep(STEP_MS / 4000)
