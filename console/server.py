"""Serves the console within the observe process."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing

import structlog

from console.app import create_app
from console.authentication import Authentication
from console.live import Live
from console.oidc.sign_in import OpenIdSignIn
from console.page_context import PageContext
from console.page_request import EventFinder, Sources
from console.page_threads import PageThreads
from console.views import Views
from observe.notify.last_message import LastMessage
from observe.series.series import PastSource
from observe.settings import ConsoleSettings
from shared.config.configuration import Configuration
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import Overview
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.files.service_deaths import read_deaths
from shared.runtime.serving.crowd import Crowd, connections_max
from shared.runtime.serving.deadlines import DeadlineProtocol, bounded
from shared.runtime.serving.server import HttpServer, listening, server_config

log = structlog.get_logger()

# At a stop, live pages end at once; all other requests in progress are single pages.
_DRAIN_S = 5
# Browsers have a few connections each. At the limit, the peer with the most connections loses idle
# ones, so that the audit, channels and Kafka in this process keep their descriptors.
_CONNECTIONS_MAX, _BACKLOG = 1_024, 128
_HEAD_DEADLINE_S, _HEAD_BYTES_MAX = 10.0, 32_768


async def serve_console(
    settings: ConsoleSettings,
    *,
    overview: Callable[[], Overview],
    configuration: Callable[[], Configuration],
    flows: Callable[[], Mapping[str, FlowRecord]],
    events: EventFinder,
    series: PastSource,
    told: Callable[[], Mapping[str, LastMessage]],
    stop: asyncio.Event,
    on_started: Callable[[int], None] = lambda _port: None,
) -> None:
    """Serve until `stop` is set; call `on_started` with the port."""
    live = Live()
    authentication = Authentication(configuration, settings)

    def context() -> PageContext:
        at_ms = now_ms()
        deaths = [
            death for death in read_deaths(settings.deaths_file) if death.is_news(now_ms=at_ms)
        ]
        ailing = [death.sentence(now_ms=at_ms) for death in deaths]
        return PageContext(overview(), configuration(), flows(), series, ailing, told())

    schedule = RetrySchedule().scaled(settings.time_scale)
    threads = PageThreads()
    sources = Sources(authentication, context, events, settings.gateway, schedule, threads)
    routes = Views(sources, live).routes()
    if settings.oidc_issuer:
        routes += OpenIdSignIn(authentication, settings).routes()
    app = create_app(routes, settings=settings, read_link=authentication.read_link)
    with (
        closing(threads),
        listening(
            "The console",
            host=settings.host,
            port=settings.port,
            setting="HIFI_OBSERVE_CONSOLE_PORT",
        ) as bound,
    ):
        config = server_config(app, drain_s=_DRAIN_S, backlog=_BACKLOG)
        config.http = bounded(
            DeadlineProtocol,
            head_deadline_s=_HEAD_DEADLINE_S,
            head_bytes_max=_HEAD_BYTES_MAX,
            crowd=Crowd(connections_max(_CONNECTIONS_MAX)),
        )
        server = HttpServer(config)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[bound]))
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
