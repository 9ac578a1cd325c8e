"""Runs a gateway process: starts its parts in order, serves, drains, stops them."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import Any

import structlog
import uvicorn

from gateway.app import create_app
from gateway.callers import Callers
from gateway.control.replacing.switching import Switching
from gateway.control.stores.changes import KafkaControlStore
from gateway.control.stores.replays import ReplayStore
from gateway.fleet.peers import Peers
from gateway.http.door import DoorProtocol, Outbox
from gateway.http.probes import tell_health
from gateway.intake.request_spans import spans_of
from gateway.intake.schemas import SchemaChecks
from gateway.publish.copies_watch import CopiesWatch
from gateway.publish.ledger import AckLedger
from gateway.publish.publisher import KafkaPublisher
from gateway.routes import EventPaths
from gateway.settings import Settings
from shared.event.topics import stream_topic
from shared.metric_names import GATEWAY_CONNECTIONS
from shared.runtime.health import Health, kept_up
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.metrics import Metrics
from shared.runtime.serving.crowd import Crowd, connections_max
from shared.runtime.serving.deadlines import bounded
from shared.runtime.serving.server import HttpServer, listening, server_config
from shared.runtime.setup_error import SetupError
from shared.runtime.tables.folders import TableCopies
from shared.runtime.tables.keeper import keep_followed

log = structlog.get_logger()

# A client that sends all the time uses each of its connections within this time.
_LET_GO_S = 5.0


async def serve(settings: Settings, *, stop: asyncio.Event) -> None:
    """Run a gateway until `stop` is set, then drain it."""
    health, metrics = Health(), Metrics()
    with _front(settings) as front, closing(SchemaChecks()) as schemas, spans_of(metrics) as spans:
        metrics_port = metrics.serve(
            host=settings.host,
            port=settings.metrics_port,
            probes=health.probes,
            setting="HIFI_GATEWAY_METRICS_PORT",
        )
        publisher = KafkaPublisher(
            settings.bootstrap_servers,
            ack_deadline_s=settings.ack_deadline_s,
            queue_deadline_s=settings.queue_deadline_s,
            batch_bytes_max=settings.batch_bytes_max,
        )
        feed = ConfigFeed(settings.bootstrap_servers)
        feed.tell(health)
        store = KafkaControlStore(settings.bootstrap_servers, feed, settings.copies)
        replays = ReplayStore(settings.bootstrap_servers)
        ports = front.getsockname()[1], metrics_port
        try:
            if not await _finished_before(stop, _start(settings, publisher, feed)):
                return
            parts = _parts(settings, publisher, feed, store, metrics)
            tell_health(
                health,
                metrics=metrics,
                publisher=publisher,
                config=feed,
                copies=parts.copies,
            )
            app = create_app(
                settings,
                publisher=publisher,
                config=feed,
                callers=Callers(feed, settings, parts.peers.uses),
                store=store,
                metrics=metrics,
                schemas=schemas,
                claims=parts.peers.claims,
                quotas=parts.peers.quotas,
                trials=parts.peers.trials,
                copies=parts.copies_of_tables,
                ledger=parts.ledger,
                replays=replays,
            )
            app.ingest.spans = spans
            parts.leaving.append(app.rows.leave)
            api = HttpServer(api_config(app, settings))
            connections = metrics.gauge(GATEWAY_CONNECTIONS)
            connections.set_function(lambda: float(len(api.server_state.connections)))
            await _serve_until(stop, settings, api, parts, health, front=front, ports=ports)
        finally:
            for part in (replays, store, feed, publisher):
                await part.stop()
    log.info("gateway.stopped")


async def _start(settings: Settings, publisher: KafkaPublisher, feed: ConfigFeed) -> None:
    await publisher.start(deadline_s=settings.start_deadline_s)
    await feed.start()


async def _finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work unless the process must stop first, so that Ctrl-C does not wait for Kafka."""
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


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that run beside the requests."""

    peers: Peers
    copies: CopiesWatch
    copies_of_tables: TableCopies
    # Replaces pipelines by their rebuilt successors.
    switching: Switching
    # Keeps this machine's copies of tables up to date.
    follow: Callable[[], Coroutine[Any, Any, None]]
    ledger: AckLedger | None
    # Called when the process starts to stop.
    leaving: list[Callable[[], None]] = field(default_factory=list)


def _parts(
    settings: Settings,
    publisher: KafkaPublisher,
    feed: ConfigFeed,
    store: KafkaControlStore,
    metrics: Metrics,
) -> _Parts:
    ledger = AckLedger(publisher) if settings.is_ledger_on else None
    peers = Peers(settings, publisher, feed)

    def follow() -> Coroutine[Any, Any, None]:
        folder, servers = settings.tables_folder, settings.bootstrap_servers
        return keep_followed(folder, servers, lambda: bool(feed.configuration.tables))

    watch, tables = _copies(settings, feed, metrics), TableCopies(settings.tables_folder)
    switching = Switching(feed, store, lambda table: tables.of(table) is not None)
    return _Parts(peers, watch, tables, switching, follow, ledger)


async def _serve_until(
    stop: asyncio.Event,
    settings: Settings,
    api: HttpServer,
    parts: _Parts,
    health: Health,
    *,
    front: socket.socket,
    ports: tuple[int, int],
) -> None:
    async with asyncio.TaskGroup() as group:
        working = await parts.peers.start(group)
        serving = group.create_task(api.serve(sockets=[front]))
        side_tasks: dict[str, Callable[[], Awaitable[object]]] = {
            "copies": parts.copies.run,
            "switching": parts.switching.run,
            "tables": parts.follow,
        }
        if parts.ledger is not None:
            side_tasks["ledger"] = parts.ledger.run
        working += [
            group.create_task(kept_up(work, name=name)) for name, work in side_tasks.items()
        ]
        working.append(group.create_task(health.beat()))
        await api.listens.wait()
        health.start()
        _say_started(settings, ports)
        await stop.wait()
        health.stop()
        for leave in parts.leaving:
            leave()
        await _drain(api, settings)
        await serving
        for task in working:
            task.cancel()
        await parts.peers.leave()
        if parts.ledger is not None:
            await parts.ledger.flush()


def _say_started(settings: Settings, ports: tuple[int, int]) -> None:
    if not settings.asks_for_keys:
        log.warning(
            "authentication.off",
            host=settings.host,
            meaning="anyone who reaches this address may send events and change settings",
        )
    log.info("gateway.started", host=settings.host, port=ports[0], metrics_port=ports[1])


async def _drain(api: HttpServer, settings: Settings) -> None:
    """Let callers move to other gateways, then stop; answer every request in flight."""
    log.info("gateway.draining", notice_s=settings.drain_notice_s)
    # Load balancers see that the gateway is not ready, and stop sending requests.
    await asyncio.sleep(settings.drain_notice_s)
    # An open connection closes with the answer to its next request, so that its client opens a
    # new one elsewhere. A connection that stays idle is closed at the end of this time.
    await api.let_go(within_s=min(settings.drain_notice_s, _LET_GO_S))
    # Accept no more connections; requests in flight get their answers.
    api.should_exit = True


def _copies(settings: Settings, feed: ConfigFeed, metrics: Metrics) -> CopiesWatch:
    copies = CopiesWatch(
        settings.bootstrap_servers,
        lambda: [stream_topic(name) for name in feed.configuration.streams],
        settings.copies,
    )
    copies.measure(metrics)
    return copies


def api_config(app: EventPaths, settings: Settings) -> uvicorn.Config:
    """Configure the API's server: deadlines for slow heads, and TLS if there is a certificate."""
    if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
        raise SetupError(
            "TLS needs two files: set both HIFI_GATEWAY_TLS_CERT_FILE and"
            " HIFI_GATEWAY_TLS_KEY_FILE, or neither."
        )
    if settings.tls_client_ca_file is not None and settings.tls_cert_file is None:
        raise SetupError(
            "HIFI_GATEWAY_TLS_CLIENT_CA_FILE asks clients for certificates, which needs TLS:"
            " set HIFI_GATEWAY_TLS_CERT_FILE and HIFI_GATEWAY_TLS_KEY_FILE too."
        )
    config = server_config(app, drain_s=settings.drain_s, keep_alive_s=settings.keep_alive_s)
    config.http = bounded(
        DoorProtocol,
        head_deadline_s=settings.head_deadline_s,
        head_bytes_max=settings.head_bytes_max,
        crowd=Crowd(connections_max(settings.connections_max)),
        door=app,
        outbox=Outbox(),
    )
    config.ssl_certfile = settings.tls_cert_file
    config.ssl_keyfile = settings.tls_key_file
    if settings.tls_client_ca_file is not None:
        config.ssl_ca_certs = str(settings.tls_client_ca_file)
        # A key or a token is enough; a certificate is checked only if the client sends one.
        config.ssl_cert_reqs = ssl.CERT_OPTIONAL
    return config


def _front(settings: Settings) -> AbstractContextManager[socket.socket]:
    """Open the listening socket, or take the one that a supervisor shares among workers."""
    if settings.listen_fd is None:
        port, setting = settings.port, "HIFI_GATEWAY_PORT"
        return listening("The gateway", host=settings.host, port=port, setting=setting)
    try:
        return socket.socket(fileno=settings.listen_fd)
    except OSError as error:
        raise SetupError(
            f"HIFI_GATEWAY_LISTEN_FD is {settings.listen_fd}, which is not an open socket"
            f" ({error.strerror}): only `hifi gateway --workers` sets it."
        ) from error
