"""Runs the retrier process from start to drain."""

import asyncio
import signal
from contextlib import AsyncExitStack
from shutil import rmtree

import structlog
from pyspark.sql import SparkSession

from delivery.flow_news import tell_news
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.outlet import Outlet
from retrier.broker import Broker
from retrier.known_doubts import KnownDoubts
from retrier.lane import lanes
from retrier.loop import GROUP, RetryLoop
from retrier.replays import Replayer
from retrier.settings import RetrierSettings
from retrier.task import send_due
from retrier.watch import LaneWatch
from shared import metric_names as names
from shared.event.topics import LANES
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.leases.fenced_positions import FencedPositions
from shared.runtime.kafka.leases.standing import keep_standing, kept_standing
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.spark.lane_metrics import LaneMetrics
from shared.runtime.spark.process import SPARK_WITHIN_S, keep_asking, spark_process
from shared.runtime.spark.task_jobs import TaskJobs

log = structlog.get_logger()

# The loop turns twice a second, and waits only for brokers.
_LOOP_WITHIN_S = 60.0
# Brokers report the ends of logs within milliseconds; a frozen broker must not delay the others'
# events for longer.
_ENDS_WITHIN_S = 5.0


class RetrierMetrics(LaneMetrics):
    up = names.RETRIER_LANE_UP
    restarts = names.RETRIER_LANE_RESTARTS
    stalled_s = names.RETRIER_LANE_STALLED_SECONDS
    events = names.RETRIER_EVENTS_RELEASED
    micro_batch_s = names.RETRIER_MICRO_BATCH_SECONDS
    progress_age_s = names.RETRIER_PROGRESS_AGE_SECONDS


def run_retrier(settings: RetrierSettings) -> None:
    """Run until SIGTERM or SIGINT, then drain. A wrong setting ends it with one sentence."""
    metrics = RetrierMetrics()
    with spark_process("retrier", settings, metrics, worker_daemon="retrier.worker_daemon") as (
        spark,
        health,
    ):
        # A retrier of an older release, if one is started again, would go back to these positions.
        # A running one would hold the folder's lock.
        rmtree(settings.home / "checkpoints", ignore_errors=True)
        asyncio.run(_run(spark, settings, LaneWatch(metrics, settings.stalled_after_s), health))


async def _run(
    spark: SparkSession, settings: RetrierSettings, watch: LaneWatch, health: Health
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    servers = settings.bootstrap_servers
    broker, fenced = Broker(servers), FencedPositions(servers, GROUP)
    positions = LanePositions(servers)
    async with AsyncExitStack() as running:
        config, states, outlet = ConfigFeed(servers), StateFeed(servers), Outlet(servers)
        for client in (broker, fenced, positions, outlet):
            running.push_async_callback(client.close)
        replayer = Replayer(settings, config, states, fenced, broker)
        for feed in (config, states, replayer.feed):
            await feed.start()
            running.push_async_callback(feed.stop)
        tiers = LogClient(servers, answer_within_s=_ENDS_WITHIN_S)
        await running.enter_async_context(tiers)
        # A connection of its own, as a fetch that waits for records blocks all other requests.
        marks_log = await running.enter_async_context(LogClient(servers))
        await marks_log.follow([LANES])
        doubts = KnownDoubts(tiers, MarksLog(marks_log), outlet, settings.schedule.deadline_s)
        tasks = TaskJobs(spark.sparkContext, send_due)
        parts = settings, lanes(settings), watch, broker, tiers, fenced, positions, doubts
        loop = RetryLoop(tasks, *parts)
        await loop.meet()
        log.info("service.started", metrics_port=settings.metrics_port)
        pulse, answers, replays = Pulse(), Pulse(), Pulse()
        health.must_turn("the loop that plans lanes", pulse, within_s=_LOOP_WITHIN_S)
        health.must_turn("the loop of replays", replays, within_s=_LOOP_WITHIN_S)
        health.must_turn("Spark", answers, within_s=SPARK_WITHIN_S)
        health.needs(lambda: loop.problem)
        former = settings.home / "lease.json"
        # This folder's last process has ended: leave the group in its name, so that nobody waits
        # for its timeout.
        await loop.member.leave_for(kept_standing(former))
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(keep_asking(spark, answers)),
                    group.create_task(positions.keep_telling()),
                    group.create_task(doubts.follow()),
                    group.create_task(tell_news(settings, config, states, outlet.store)),
                    group.create_task(keep_standing(former, loop.member)),
                ]
                group.create_task(loop.run(stop, health, pulse))
                group.create_task(replayer.run(stop, replays))
                leaving = group.create_task(replayer.member.run(stop))
                await loop.member.run(stop)
                await leaving
                health.stop()
                for task in beside:
                    task.cancel()
        except ExceptionGroup as died:
            raise died.exceptions[0] from None
        finally:
            health.stop()
            await loop.drain()
            await positions.tell_last()
