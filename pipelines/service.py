"""Runs the pipelines process from start to drain."""

import asyncio
import signal
from contextlib import AsyncExitStack

import structlog

from pipelines.archive.kind import archive_kind
from pipelines.databases.kind import Databases
from pipelines.judging.apart.trials import Trials
from pipelines.judging.sandbox import OPTIONS
from pipelines.lanes.culprits import EndedBy, remembered, with_ended
from pipelines.lanes.stuck_tasks import StuckTasks, StuckTaskWatch
from pipelines.loop import PipelineLoop
from pipelines.metrics import PipelineMetrics
from pipelines.session import SparkOnDemand
from pipelines.settings import PipelinesSettings
from shared.config.pipeline import ToArchive, ToDatabase
from shared.event.topics import PIPELINES
from shared.runtime.clock import now_ms
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.leases.standing import keep_standing, kept_standing
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.topic_feed import TopicFeed
from shared.runtime.spark.process import SPARK_WITHIN_S, keep_asking, lane_process

log = structlog.get_logger()

# The loop turns ten times a second, and waits only for brokers.
_LOOP_WITHIN_S = 60.0
# Brokers report log ends within milliseconds; a frozen one must not hold up the others' records for
# longer.
_ENDS_WITHIN_S = 5.0


def run_pipelines(settings: PipelinesSettings) -> None:
    """Run until SIGTERM or SIGINT, then drain. A wrong setting ends it with one sentence."""
    metrics = PipelineMetrics()
    with lane_process("pipelines", settings, metrics) as health:
        # A wrong cluster name fails here, at the start.
        session = settings.session(
            "pipelines",
            worker_daemon="pipelines.worker_daemon",
            has_rows_in_jvm=True,
            executor_mb=settings.executor_mb,
            **OPTIONS,
        )
        asyncio.run(_run(SparkOnDemand(session, metrics.spark_is_up), settings, metrics, health))


async def _run(
    spark: SparkOnDemand, settings: PipelinesSettings, metrics: PipelineMetrics, health: Health
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    servers = settings.bootstrap_servers
    config = ConfigFeed(servers)
    config.tell(health)
    health.needs(lambda: config.problem)
    async with AsyncExitStack() as running:
        running.push_async_callback(spark.close)
        await config.start()
        running.push_async_callback(config.stop)
        ended = TopicFeed[EndedBy](servers, PIPELINES, empty={}, fold=with_ended)
        await ended.start()
        running.push_async_callback(ended.stop)
        streams = await running.enter_async_context(
            LogClient(servers, answer_within_s=_ENDS_WITHIN_S)
        )
        databases = Databases(settings.allow_private, settings.sqlite_folder, now_ms)
        sinks = {ToArchive.member: archive_kind(settings), ToDatabase.member: databases.kind}
        loop = PipelineLoop(spark, settings, metrics, config, streams, sinks)
        databases.ends = loop.book.ends
        loop.documents.ended_before = lambda title: remembered(ended.value, title)
        log.info("service.started", metrics_port=settings.metrics_port)
        pulse = Pulse()
        health.must_turn("the loop that plans pipelines", pulse, within_s=_LOOP_WITHIN_S)
        former = settings.home / "lease.json"
        # This folder's last process has ended: leave the group in its name, so that nobody waits
        # for its timeout.
        await loop.member.leave_for(kept_standing(former))
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(_watch(spark, health)),
                    group.create_task(keep_standing(former, loop.member)),
                    group.create_task(loop.tables.keep_followed(config)),
                    group.create_task(_places(spark, loop).run()),
                    group.create_task(_trials(loop, servers).run()),
                ]
                group.create_task(loop.run(stop, health, pulse))
                await loop.member.run(stop)
                health.stop()
                for task in beside:
                    task.cancel()
        except ExceptionGroup as died:
            raise died.exceptions[0] from None
        finally:
            health.stop()
            await loop.drain()


def _trials(loop: PipelineLoop, servers: str) -> Trials:
    """Make the runner of trials; it answers those whose slot this process holds."""
    return Trials(
        bootstrap_servers=servers,
        judge=loop.judge,
        configuration=lambda: loop.config.configuration,
        tables=loop.tables.of,
        is_ours=loop.is_ours,
        answer=lambda key, row: loop.writers.of(key).store([row], {}),
    )


def _places(spark: SparkOnDemand, loop: PipelineLoop) -> StuckTaskWatch:
    """Make the watch for tasks that never free their places in the executor."""
    return StuckTaskWatch(
        spark,
        StuckTasks(loop.settings.task_places),
        loop.book,
        loop.runner.turns,
        loop.documents,
        loop.metrics,
        may_replace=loop.settings.cluster is None,
    )


async def _watch(spark: SparkOnDemand, health: Health) -> None:
    """Once Spark is up, keep this process alive only as long as Spark answers."""
    await spark.is_up.wait()
    answers = Pulse()
    health.must_turn("Spark", answers, within_s=SPARK_WITHIN_S)
    await keep_asking(await spark.get(), answers)
