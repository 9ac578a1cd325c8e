"""Starts the observe process: the sampler, the audit, and whatever shows what they find."""

import asyncio
import contextlib
import signal
import sys

import structlog

from observe.kafka_health import watch_kafka
from observe.metrics import ObserveMetrics
from observe.sampler import AuditNews, Sampler
from observe.settings import ObserveSettings
from observe.state import Observed
from shared.runtime.config_topic import ConfigFeed
from shared.runtime.logs import configure_logs
from shared.runtime.one_owner import own_folder
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()


def main() -> None:
    settings = ObserveSettings()
    configure_logs(service="observe", level=settings.log_level)
    try:
        with own_folder(settings.folder, what="observe"):
            asyncio.run(_run(settings))
    except SetupError as error:
        sys.exit(f"hifi observe: {error}")
    log.info("service.stopped")


async def _run(settings: ObserveSettings) -> None:
    """Serve until SIGTERM or SIGINT; a part that dies takes the process with it."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = ObserveMetrics()
    metrics.serve(host=settings.metrics_host, port=settings.metrics_port)
    feed = ConfigFeed(settings.bootstrap_servers)
    await feed.start()
    observed, audit = Observed(), AuditNews()
    sampler = Sampler(
        settings.bootstrap_servers,
        observed,
        configuration=lambda: feed.configuration,
        audit=audit,
        slow_after_s=settings.slow_after_s,
    )
    log.info("service.started", metrics_port=settings.metrics_port)
    parts = [
        asyncio.create_task(sampler.run(), name="sampler"),
        asyncio.create_task(_show(observed, metrics), name="metrics"),
        asyncio.create_task(watch_kafka(settings.bootstrap_servers, metrics), name="health"),
    ]
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


async def _show(observed: Observed, metrics: ObserveMetrics) -> None:
    async for overview in observed.follow():
        metrics.show(overview)


if __name__ == "__main__":
    main()
