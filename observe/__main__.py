"""Starts the observe process: the sampler, the audit, and what shows their findings."""

import asyncio
import contextlib
import signal

import structlog

from observe.audit.loop import Auditor
from observe.audit.status import AuditStatus
from observe.books_page import BOOKS_PATH, books_page
from observe.console.server import serve_console
from observe.console.settings import ConsoleSettings
from observe.lag.kafka_health import watch_kafka
from observe.lag.sampler import Sampler
from observe.metrics import ObserveMetrics
from observe.settings import ObserveSettings
from observe.state import Observed
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.event_search import EventSearch
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.logs import configure_logs
from shared.runtime.one_owner import own_folder
from shared.runtime.settings import operator_errors, read_settings

log = structlog.get_logger()


def main() -> None:
    settings = read_settings(ObserveSettings, program="hifi observe")
    console = read_settings(ConsoleSettings, program="hifi observe")
    configure_logs(service="observe", level=settings.log_level)
    with operator_errors("hifi observe"), own_folder(settings.folder, what="observe"):
        asyncio.run(_run(settings, console))
    log.info("service.stopped")


async def _run(settings: ObserveSettings, console: ConsoleSettings) -> None:
    """Serve until SIGTERM or SIGINT; a part that dies takes the process with it."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = ObserveMetrics()
    observed = Observed()
    kafka = settings.bootstrap_servers
    metrics.serve(
        host=settings.metrics_host,
        port=settings.metrics_port,
        pages={BOOKS_PATH: lambda: books_page(observed.snapshot(), kafka=kafka).to_json()},
    )
    feed = ConfigFeed(settings.bootstrap_servers)
    await feed.start()
    audit_status = AuditStatus(
        started_ms=now_ms(),
        interval_s=settings.audit_interval_s,
        blind_after_s=settings.blind_after_s,
        is_on=settings.is_audit_on,
    )
    sampler = Sampler(
        settings.bootstrap_servers,
        observed,
        configuration=lambda: feed.configuration,
        audit=audit_status,
        slow_after_s=settings.slow_after_s,
    )
    log.info("service.started", metrics_port=settings.metrics_port)
    parts = [
        asyncio.create_task(sampler.run(), name="sampler"),
        asyncio.create_task(_show(observed, metrics), name="metrics"),
        asyncio.create_task(watch_kafka(settings.bootstrap_servers, metrics), name="health"),
        asyncio.create_task(_console(settings, console, observed, feed, stop), name="console"),
    ]
    if settings.is_audit_on:
        auditor = Auditor(settings, audit_status, lambda: feed.configuration)
        parts.append(asyncio.create_task(auditor.run(), name="audit"))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *parts], return_when=asyncio.FIRST_COMPLETED)
        for part in parts:
            if part.done():
                part.result()
    finally:
        for task in (stopping, *parts):
            task.cancel()
        for task in (stopping, *parts):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await feed.stop()


async def _console(
    settings: ObserveSettings,
    console: ConsoleSettings,
    observed: Observed,
    feed: ConfigFeed,
    stop: asyncio.Event,
) -> None:
    """The pages, with everything they read from Kafka."""
    kafka = settings.bootstrap_servers
    states = StateFeed(kafka)
    await states.start()
    try:
        await serve_console(
            console,
            observed=observed,
            config=feed,
            events=EventSearch(kafka),
            flows=lambda: states.flows,
            schedule=RetrySchedule().scaled(console.time_scale),
            stop=stop,
        )
    finally:
        await states.stop()


async def _show(observed: Observed, metrics: ObserveMetrics) -> None:
    async for overview in observed.follow():
        metrics.show(overview)


if __name__ == "__main__":
    main()
