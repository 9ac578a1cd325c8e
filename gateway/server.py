"""Runs a gateway process: starts its parts in order, serves, drains, stops them."""

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from contextlib import AbstractContextManager, closing
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from gateway.app import create_app
from gateway.control.store import KafkaControlStore
from gateway.fleet.peers import Peers
from gateway.http.probes import Readiness, create_probes
from gateway.http.protocol import bounded
from gateway.intake.schemas import SchemaChecks
from gateway.publish.copies_watch import CopiesWatch
from gateway.publish.ledger import AckLedger
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.spool import Spool
from gateway.settings import Settings
from shared.event.topics import stream_topic
from shared.runtime.http_server import HttpServer, listening, server_config
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()


async def serve(settings: Settings, *, stop: asyncio.Event) -> None:
    """Run a gateway until `stop` is set, then drain it."""
    with (
        _front(settings) as front,
        _listening(settings, settings.metrics_port, "HIFI_GATEWAY_METRICS_PORT") as back,
        closing(SchemaChecks()) as schemas,
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
            sockets = front, back
            await _serve_until(stop, settings, publisher, feed, schemas=schemas, sockets=sockets)
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
    schemas: SchemaChecks,
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    front, back = sockets
    ports = front.getsockname()[1], back.getsockname()[1]
    metrics = Metrics()
    ledger = AckLedger(publisher) if settings.is_ledger_on else None
    spool = _spool(settings, publisher, metrics, ledger)
    copies = _copies(settings, feed, metrics)
    peers = Peers(settings, publisher, feed)
    readiness = Readiness(publisher, feed, spool, copies)
    app = create_app(
        settings,
        publisher=publisher,
        config=feed,
        store=KafkaControlStore(settings.bootstrap_servers, feed, settings.copies),
        metrics=metrics,
        schemas=schemas,
        claims=peers.claims,
        quotas=peers.quotas,
        ledger=ledger,
        spool=spool,
    )
    api = HttpServer(api_config(app, settings))
    shown = create_probes(readiness, metrics=metrics, config=feed)
    probes = HttpServer(server_config(shown, drain_s=1))
    async with asyncio.TaskGroup() as group:
        working = await peers.start(group)
        probing = group.create_task(probes.serve(sockets=[back]))
        serving = group.create_task(api.serve(sockets=[front]))
        working += [
            group.create_task(work.run()) for work in (ledger, spool, copies) if work is not None
        ]
        await asyncio.gather(probes.listens.wait(), api.listens.wait())
        _say_started(settings, ports)
        await stop.wait()
        log.info("gateway.draining")
        readiness.is_draining = True
        await asyncio.sleep(settings.drain_notice_s)
        api.should_exit = True
        await serving
        for task in working:
            task.cancel()
        await peers.leave()
        if ledger is not None:
            await ledger.flush()
        if spool is not None:
            spool.stop()
        # The probes answer to the last, so that whoever asks sees us drain rather than vanish.
        probes.should_exit = True
        await probing


def _say_started(settings: Settings, ports: tuple[int, int]) -> None:
    if not settings.asks_for_keys:
        log.warning(
            "authentication.off",
            host=settings.host,
            meaning="whoever reaches this address may send and administer",
        )
    log.info("gateway.started", host=settings.host, port=ports[0], metrics_port=ports[1])


def _copies(settings: Settings, feed: ConfigFeed, metrics: Metrics) -> CopiesWatch:
    copies = CopiesWatch(
        settings.bootstrap_servers,
        lambda: [stream_topic(name) for name in feed.configuration.streams],
        settings.copies,
    )
    copies.measure(metrics)
    return copies


def _spool(
    settings: Settings, publisher: KafkaPublisher, metrics: Metrics, ledger: AckLedger | None
) -> Spool | None:
    if settings.spool is None:
        return None
    spool = Spool(
        settings.spool,
        bytes_max=settings.spool_bytes_max,
        publisher=publisher,
        ledger=ledger,
    )
    spool.start()
    spool.measure(metrics)
    return spool


def api_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How the API is served: with deadlines for slow heads, and TLS if there is a certificate."""
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
    config = server_config(app, drain_s=settings.drain_s)
    config.http = bounded(
        head_deadline_s=settings.head_deadline_s, head_bytes_max=settings.head_bytes_max
    )
    config.ssl_certfile = settings.tls_cert_file
    config.ssl_keyfile = settings.tls_key_file
    if settings.tls_client_ca_file is not None:
        config.ssl_ca_certs = str(settings.tls_client_ca_file)
        # A key or a token will do as well; what a certificate says is checked if there is one.
        config.ssl_cert_reqs = ssl.CERT_OPTIONAL
    return config


def _front(settings: Settings) -> AbstractContextManager[socket.socket]:
    """The socket that takes events: our own, or one that a supervisor shares among workers."""
    if settings.listen_fd is None:
        return _listening(settings, settings.port, "HIFI_GATEWAY_PORT")
    try:
        return socket.socket(fileno=settings.listen_fd)
    except OSError as error:
        raise SetupError(
            f"HIFI_GATEWAY_LISTEN_FD is {settings.listen_fd}, which is no open socket"
            f" ({error.strerror}): only `hifi gateway --workers` sets it."
        ) from error


def _listening(
    settings: Settings, port: int, setting: str
) -> AbstractContextManager[socket.socket]:
    return listening("The gateway", host=settings.host, port=port, setting=setting)
