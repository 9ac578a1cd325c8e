"""Serves the console within the process that observes: starts it, keeps lag's past, stops it."""

import asyncio
import secrets
from collections.abc import Callable, Mapping

import structlog

from observe.console.app import create_app
from observe.console.dead_page import DeadDesk
from observe.console.doors import ConfigSource, Doors
from observe.console.event_page import EventFinder
from observe.console.live import Live
from observe.console.past import STEP_MS, Past
from observe.console.posts import ConfigWriter, Posts
from observe.console.scene import Flow, Scene
from observe.console.settings import ConsoleSettings
from observe.console.sources import Sources
from observe.console.views import Views
from observe.state import Observed
from shared.runtime.clock import now_ms
from shared.runtime.http_server import HttpServer, listening, server_config
from shared.schedule import RetrySchedule

log = structlog.get_logger()

# Live pages end at once when they are told; what else is under way is a page.
_DRAIN_S = 5
_SECRET_BYTES = 32


async def serve_console(
    settings: ConsoleSettings,
    *,
    observed: Observed,
    config: ConfigSource,
    events: EventFinder,
    dead: DeadDesk,
    writer: ConfigWriter,
    flows: Callable[[], Mapping[str, Flow]],
    schedule: RetrySchedule,
    stop: asyncio.Event,
    on_started: Callable[[int], None] = lambda _port: None,
) -> None:
    """Serve until `stop` is set. `on_started` gets the port."""
    past = Past()
    live = Live()
    doors = Doors(
        config,
        is_open=not settings.asks_for_keys,
        # A new one each time: who was signed in signs in again, and no secret lies on a disk.
        secret=secrets.token_bytes(_SECRET_BYTES),
        is_https=settings.https,
        now_ms=now_ms,
    )

    def scene() -> Scene:
        return Scene(observed.snapshot(), config.configuration, flows(), past)

    sources = Sources(doors, scene, events, dead, schedule, now_ms)
    views, posts = Views(sources, live=live), Posts(sources, writer=writer)
    app = create_app(views, posts, hosts=settings.host_names)
    with listening(
        "The console",
        host=settings.host,
        port=settings.port,
        setting="HIFI_OBSERVE_CONSOLE_PORT",
    ) as bound:
        server = HttpServer(server_config(app, drain_s=_DRAIN_S))
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[bound]))
            remembering = group.create_task(_remember(observed, past))
            await server.listens.wait()
            port = bound.getsockname()[1]
            if doors.is_open:
                log.warning("console.open", host=settings.host, port=port)
            log.info("console.started", host=settings.host, port=port)
            on_started(port)
            await stop.wait()
            live.stop()
            server.should_exit = True
            await serving
            remembering.cancel()


async def _remember(observed: Observed, past: Past) -> None:
    while True:
        past.take(observed.snapshot())
        await asyncio.sleep(STEP_MS / 4000)
