"""Runs the delivery process from start to drain."""

import asyncio
import signal
from contextlib import AsyncExitStack

import structlog
from pyspark.sql import SparkSession

from delivery.lanes.loop import LaneLoop
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.outlet import Outlet
from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from shared.event.topics import LANES
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.leases.standing import keep_standing, kept_standing
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.spark.process import spark_process
from shared.runtime.spark.session import require_running

log = structlog.get_logger()

# The loop turns many times a second; a plan of thousands takes it a part of one.
_LOOP_WITHIN_S = 60.0
# How often positions are told, and what is known of destinations is shown.
_TELL_S = 0.5


def run_delivery(settings: DeliverySettings) -> None:
    """Run until SIGTERM or SIGINT, then drain. A mistake in the set-up ends with one sentence."""
    metrics = DeliveryMetrics()
    with spark_process(
        "delivery", settings, metrics, worker_daemon="delivery.lanes.worker_daemon"
    ) as (spark, health):
        asyncio.run(_run(spark, settings, metrics, health))


async def _run(
    spark: SparkSession, settings: DeliverySettings, metrics: DeliveryMetrics, health: Health
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    servers = settings.bootstrap_servers
    config, states, positions = ConfigFeed(servers), StateFeed(servers), LanePositions(servers)
    for followed in (config, states):
        followed.tell(health)
    health.needs(lambda: config.problem or states.problem)
    async with AsyncExitStack() as running:
        await config.start()
        running.push_async_callback(config.stop)
        # Before the first lane, which goes on from what was known when it ended.
        await states.start()
        running.push_async_callback(states.stop)
        running.push_async_callback(positions.close)
        metrics.flows_before(states.flows)
        lanes_log = await running.enter_async_context(LogClient(servers))
        marks_log = await running.enter_async_context(LogClient(servers))
        outlet = Outlet(servers)
        running.push_async_callback(outlet.close)
        await marks_log.follow([LANES])
        marks = MarksLog(marks_log)
        await marks.read()
        log.info("service.started", metrics_port=settings.metrics_port)
        loop = LaneLoop(
            spark, settings, metrics, config, states, positions, lanes_log, marks, outlet
        )
        pulse = Pulse()
        health.must_turn("what plans the lanes", pulse, within_s=_LOOP_WITHIN_S)
        former = settings.home / "lease.json"
        # Whoever had this folder has ended: nobody need wait until Kafka takes it for dead.
        await loop.member.leave_for(kept_standing(former))
        try:
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(_tell(spark, config, states, positions, metrics))
                keeping = group.create_task(keep_standing(former, loop.member))
                following = group.create_task(loop.follow_marks())
                group.create_task(loop.run(stop, health, pulse))
                await loop.member.run(stop)
                health.stop()
                telling.cancel()
                keeping.cancel()
                following.cancel()
        except ExceptionGroup as died:
            raise died.exceptions[0] from None
        finally:
            health.stop()
            await loop.drain()
            # Without it a paused lane's last outcomes would stay unconfirmed.
            await positions.tell_last()


async def _tell(
    spark: SparkSession,
    config: ConfigFeed,
    states: StateFeed,
    positions: LanePositions,
    metrics: DeliveryMetrics,
) -> None:
    """Tell Kafka where the lanes are, and show what is known of their destinations."""
    shown: dict[str, object] = {}
    while True:
        await asyncio.to_thread(require_running, spark)
        await positions.commit()
        flows = states.flows
        destinations = config.configuration.destinations
        for name in flows.keys() & destinations.keys():
            known = destinations[name], flows[name]
            if shown.get(name) != known:
                metrics.flow_known(*known)
                shown[name] = known
        await asyncio.sleep(_TELL_S)
