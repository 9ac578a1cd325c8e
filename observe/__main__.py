"""Starts the observe process: the sampler, the audit, and the services that show their findings."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import structlog

from console.server import serve_console
from observe.active import ActiveObserver
from observe.audit.loop import Auditor
from observe.audit.status import AuditStatus
from observe.books_page import BOOKS_PATH, books_page
from observe.index.feed import IndexFeed
from observe.lag.kafka_health import watch_kafka
from observe.lag.recorder import Recorder
from observe.lag.sampler import Sampler
from observe.metrics import ObserveMetrics
from observe.notify.channel_trials import channel_trials
from observe.notify.messages import Links
from observe.notify.notifier import Notifier
from observe.series.series import Series
from observe.settings import ConsoleSettings, ObserveSettings
from shared.config.pipeline_state import PipelineStates, with_state
from shared.event.places import PLACES_PATH
from shared.event.topics import PIPELINES
from shared.runtime.channels.sending import ChannelSender
from shared.runtime.clock import now_ms
from shared.runtime.files.one_owner import own_folder
from shared.runtime.health import Health, kept_up
from shared.runtime.kafka.clients import check_access
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lookup.event_search import EventSearch
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.kafka.topic_feed import TopicFeed
from shared.runtime.logs import configure_logs
from shared.runtime.machine.user import user_name
from shared.runtime.settings import operator_errors, read_settings

log = structlog.get_logger()


def main() -> None:
    settings = read_settings(ObserveSettings, program="hifi observe")
    console = read_settings(ConsoleSettings, program="hifi observe")
    configure_logs(service="observe", level=settings.log_level)
    with operator_errors("hifi observe"), own_folder(settings.folder, what="observe"):
        if settings.is_audit_on:
            user_name()
        asyncio.run(check_access(settings.bootstrap_servers))
        asyncio.run(_run(settings, console))
    log.info("service.stopped")


async def _run(settings: ObserveSettings, console: ConsoleSettings) -> None:
    """Serve until SIGTERM or SIGINT; a part that dies ends the process."""
    # Read these settings now, so that even a standby observer reports a wrong one at its start.
    _ = settings.signing_key, settings.cluster, settings.mail_server
    stop = _set_by_signals()
    metrics, health, kafka = ObserveMetrics(), Health(), settings.bootstrap_servers
    feed, states, standings = ConfigFeed(kafka), StateFeed(kafka), _standings(kafka)
    series = Series(settings.folder / "series")
    audit_status = _audit_status(settings)
    index = IndexFeed(settings, lambda: feed.configuration)
    sampler = Sampler(
        kafka,
        lambda: feed.configuration,
        lambda: states.flows,
        lambda: standings.value,
        audit_status,
        settings.slow_after_s,
        metrics.show,
    )
    _serve_metrics(settings, metrics, health, sampler, index)
    for teller in (feed, states, standings, sampler):
        teller.tell(health)
    health.needs(lambda: sampler.overview.problem or None)
    for followed in (feed, states, standings):
        await followed.start()
    sender = settings.channel_sender
    notifier = _notifier(settings, sender, console, sampler=sampler, feed=feed, states=states)
    pages = serve_console(
        console,
        overview=lambda: sampler.overview,
        configuration=lambda: feed.configuration,
        flows=lambda: states.flows,
        events=EventSearch(kafka, *index.askable),
        series=series,
        told=lambda: notifier.last_messages,
        stop=stop,
        on_started=lambda _port: health.start(),
    )
    metrics.show(sampler.overview)
    log.info("service.started", metrics_port=settings.metrics_port)
    auditor = Auditor(settings, audit_status, lambda: feed.configuration, health, index.take_logged)
    # Without an audit, one observer still holds the lease and shows the figures.
    audit = auditor.run if settings.is_audit_on else asyncio.Event().wait
    tried = channel_trials(kafka, sender)
    active = ActiveObserver(kafka, audit, notifier.run, tried, lease_s=settings.lease_s)
    audit_status.is_elsewhere = lambda: active.stands_by
    parts = [
        taking_part := asyncio.create_task(active.run(stop), name="audit"),
        asyncio.create_task(sampler.run(), name="sampler"),
        asyncio.create_task(pages, name="console"),
        asyncio.create_task(index.run(), name="index"),
        asyncio.create_task(health.beat(), name="health of the loop"),
    ]
    parts += _beside(Recorder(sampler, series), kafka, metrics)
    try:
        await _until_stopped(stop, parts, taking_part)
    finally:
        health.stop()
        for followed in (standings, states, feed):
            await followed.stop()


def _beside(
    recorder: Recorder, kafka: str, metrics: ObserveMetrics
) -> Iterator[asyncio.Task[None]]:
    """Start the tasks whose failure ends no other task."""
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "series": recorder.run,
        "health": partial(watch_kafka, kafka, metrics),
    }
    for name, work in works.items():
        yield asyncio.create_task(kept_up(work, name=name), name=name)


def _set_by_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _serve_metrics(
    settings: ObserveSettings,
    metrics: ObserveMetrics,
    health: Health,
    sampler: Sampler,
    index: IndexFeed,
) -> None:
    kafka = settings.bootstrap_servers
    metrics.serve(
        host=settings.metrics_host,
        port=settings.metrics_port,
        probes=health.probes,
        setting="HIFI_OBSERVE_METRICS_PORT",
        pages={BOOKS_PATH: lambda: books_page(sampler.overview, kafka=kafka).to_json()},
        queries={PLACES_PATH: index.page},
    )


def _notifier(
    settings: ObserveSettings,
    sender: ChannelSender,
    console: ConsoleSettings,
    *,
    sampler: Sampler,
    feed: ConfigFeed,
    states: StateFeed,
) -> Notifier:
    return Notifier(
        sender,
        Links(console.url),
        settings.folder,
        overview=lambda: sampler.overview,
        configuration=lambda: feed.configuration,
        flows=lambda: states.flows,
    )


def _standings(kafka: str) -> TopicFeed[PipelineStates]:
    nothing: PipelineStates = {}
    return TopicFeed(kafka, PIPELINES, empty=nothing, fold=with_state)


def _audit_status(settings: ObserveSettings) -> AuditStatus:
    return AuditStatus(
        started_ms=now_ms(),
        interval_s=settings.audit_interval_s,
        overdue_after_s=settings.overdue_after_s,
        is_on=settings.is_audit_on,
    )


async def _until_stopped(
    stop: asyncio.Event, parts: Sequence[asyncio.Task[None]], taking_part: asyncio.Task[None]
) -> None:
    """Wait for a stop, or for a part to die, and then end with that part's error."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *parts], return_when=asyncio.FIRST_COMPLETED)
        for part in parts:
            if part.done():
                part.result()
        # Hand over the lease, so that another observer need not wait until it expires.
        stop.set()
        await taking_part
    finally:
        for task in (stopping, *parts):
            task.cancel()
        for task in (stopping, *parts):
            with contextlib.suppress(asyncio.CancelledError):
                await task


if __name__ == "__main__":
    main()
