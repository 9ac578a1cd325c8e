"""Keeps the lanes of a Spark process that are queries: the retrier's.

It follows what is known of destinations, and keeps the lanes until it is told to stop.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shared.event.record import Position
from shared.flow.flow_record import FlowRecord
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.refusals import java_refusal
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.spark.lane_keeper import LaneKeeper
from shared.runtime.spark.lane_metrics import LaneMetrics
from shared.runtime.spark.process import SparkProcessSettings, spark_process
from shared.runtime.spark.session import require_running

log = structlog.get_logger()

# How often positions are told, and what is known of destinations is shown.
_LOOK_S = 0.5
# Spark answers in milliseconds and starts a lane within seconds, on a busy machine too.
_KEEPER_WITHIN_S = 60.0

W = TypeVar("W")
# What is known of destinations, by their ids.
Flows: TypeAlias = Mapping[str, FlowRecord]
# To be told how far a lane is before it goes on: its last life may not have told all that it did.
Tell: TypeAlias = Callable[[Position], None]


def run_lanes(
    service: str,
    settings: SparkProcessSettings,
    *,
    start_lane: Callable[[SparkSession, W, Flows, Tell], StreamingQuery],
    lanes: Mapping[str, W],
    metrics: LaneMetrics,
    worker_daemon: str,
) -> None:
    """Run until SIGTERM or SIGINT, then drain. A mistake in the set-up ends with one sentence."""
    positions = LanePositions(settings.bootstrap_servers)
    states = StateFeed(settings.bootstrap_servers)
    with spark_process(service, settings, metrics, worker_daemon=worker_daemon) as (spark, health):
        keeping = Pulse()

        def start(name: str) -> StreamingQuery:
            keeping.beat()
            return start_lane(spark, lanes[name], states.flows, partial(positions.enter, name))

        keeper = LaneKeeper(
            start,
            lanes,
            metrics,
            on_progress=positions.note,
            why=partial(java_refusal, settings.bootstrap_servers),
            stalled_after_s=settings.stalled_after_s,
        )

        def keep() -> None:
            if not health.is_started:
                health.must_turn("what keeps the lanes", keeping, within_s=_KEEPER_WITHIN_S)
            require_running(spark)
            keeper.keep()
            keeping.beat()
            # All lanes were started, or have said why not.
            health.start()

        try:
            asyncio.run(_keep(settings, keep, positions, states, metrics, health))
        finally:
            health.stop()
            keeper.drain(drain_s=settings.drain_s)
            asyncio.run(positions.tell_last())


async def _keep(  # noqa: PLR0917 - what run_lanes has made
    settings: SparkProcessSettings,
    keep: Callable[[], None],
    positions: LanePositions,
    states: StateFeed,
    metrics: LaneMetrics,
    health: Health,
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    feed = ConfigFeed(settings.bootstrap_servers)
    for followed in (feed, states):
        followed.tell(health)
    health.needs(lambda: feed.problem or states.problem)
    await feed.start()
    # Before the first lane, which goes on from what was known when it ended.
    await states.start()
    metrics.flows_before(states.flows)
    log.info("service.started", metrics_port=settings.metrics_port)
    try:
        while not stop.is_set():
            await asyncio.to_thread(keep)
            await positions.commit()
            flows, destinations = states.flows, feed.configuration.destinations
            for name in flows.keys() & destinations.keys():
                metrics.flow_known(destinations[name], flows[name])
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await stop.wait()
    finally:
        await positions.close()
        await states.stop()
        await feed.stop()
