"""Decides how a gateway process lives: starts its parts in order, serves, drains, stops them."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from gateway.app import create_app
from gateway.probes import Readiness, create_probes
from gateway.publisher import KafkaPublisher
from gateway.settings import Settings
from shared.runtime.config_topic import ConfigFeed
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# Connections that wait to be accepted while the loop is busy (the kernel's own cap is 4,096).
_BACKLOG = 2_048


async def serve(
    settings: Settings,
    *,
    stop: asyncio.Event,
    on_started: Callable[[int, int], None] = lambda _port, _metrics_port: None,
) -> None:
    """Run a gateway until `stop` is set, then drain it. `on_started` gets the two ports."""
    with (
        _bound(settings.host, settings.port, "HIFI_GATEWAY_PORT") as front,
        _bound(settings.host, settings.metrics_port, "HIFI_GATEWAY_METRICS_PORT") as back,
    ):
        publisher = KafkaPublisher(
            settings.bootstrap_servers,
            ack_deadline_s=settings.ack_deadline_s,
            queue_deadline_s=settings.queue_deadline_s,
            batch_bytes_max=settings.batch_bytes_max,
        )
        feed = ConfigFeed(settings.bootstrap_servers)
        try:
            if not await _finished_before(stop, _start(settings, publisher, feed)):
                return
            sockets = (front, back)
            await _serve_until(
                stop, settings, publisher, feed, sockets=sockets, on_started=on_started
            )
        finally:
            await feed.stop()
            await publisher.stop()
    log.info("gateway.stopped")


async def _start(settings: Settings, publisher: KafkaPublisher, feed: ConfigFeed) -> None:
    await publisher.start(deadline_s=settings.start_deadline_s)
    await feed.start()


async def _finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work unless we are told to stop first; Ctrl-C must not wait for Kafka."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
        return True
    working.cancel()
    await asyncio.wait({working})
    return False


async def _serve_until(
    stop: asyncio.Event,
    settings: Settings,
    publisher: KafkaPublisher,
    feed: ConfigFeed,
    *,
    sockets: tuple[socket.socket, socket.socket],
    on_started: Callable[[int, int], None],
) -> None:
    front, back = sockets
    ports = front.getsockname()[1], back.getsockname()[1]
    metrics = Metrics()
    readiness = Readiness(publisher)
    app = create_app(settings, publisher=publisher, config=feed, metrics=metrics)
    api = _server(app, drain_s=settings.drain_s)
    probes = _server(create_probes(readiness, metrics=metrics), drain_s=1)
    async with asyncio.TaskGroup() as group:
        probing = group.create_task(probes.serve(sockets=[back]))
        serving = group.create_task(api.serve(sockets=[front]))
        await asyncio.gather(probes.listens.wait(), api.listens.wait())
        log.info("gateway.started", host=settings.host, port=ports[0], metrics_port=ports[1])
        on_started(*ports)
        await stop.wait()
        log.info("gateway.draining")
        readiness.is_draining = True
        await asyncio.sleep(settings.drain_notice_s)
        api.should_exit = True
        await serving
        # The probes answer to the last, so that whoever asks sees us drain rather than vanish.
        probes.should_exit = True
        await probing


class _Server(uvicorn.Server):
    """A server that leaves signals alone: two of them run in one process, and we drain first."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: ASGIApp, *, drain_s: int) -> _Server:
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=drain_s,
    )
    return _Server(config)


@contextlib.contextmanager
def _bound(host: str, port: int, setting: str) -> Iterator[socket.socket]:
    """A socket on the port, or one sentence that says who else may have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            raise SetupError(
                f"The gateway cannot listen on {host}:{port} ({error.strerror}):"
                f" stop what uses that port, or set {setting}."
            ) from error
        yield bound
