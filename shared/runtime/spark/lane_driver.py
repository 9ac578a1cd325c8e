"""Runs a Spark process of ours from start to drain: delivery and retrier alike.

It owns its folder, checks its jars, starts Spark, follows the config topic, and keeps the lanes
that the configuration asks for until it is told to stop.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeAlias, TypeVar

import structlog
from pydantic import Field
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shared.config.configuration import Configuration
from shared.event.record import Position
from shared.flow.flow_record import FlowRecord
from shared.retry.schedule import RetrySchedule
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.clients import check_access
from shared.runtime.kafka.config_topic import ConfigFeed, read_config
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.refusals import java_refusal
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.logs import configure_logs
from shared.runtime.one_owner import own_folder
from shared.runtime.settings import SecretSettings, SparkServiceSettings, operator_errors
from shared.runtime.setup_error import KafkaRefusedError, KafkaUnavailableError
from shared.runtime.spark.lane_keeper import HoldLane, LaneKeeper
from shared.runtime.spark.lane_metrics import LaneMetrics
from shared.runtime.spark.session import SparkSettings, require_running, running_spark

log = structlog.get_logger()

# A changed destination is live in well under the 5 s that we promise.
_LOOK_S = 0.5
# Spark answers in milliseconds and starts a lane within seconds, on a busy machine too.
_KEEPER_WITHIN_S = 60.0
# Kafka answers in milliseconds; one that is away must not hold up the end of the process.
_LAST_WORD_S = 3.0

W = TypeVar("W")
# What is known of destinations, by their ids.
Flows: TypeAlias = Mapping[str, FlowRecord]
# To be told how far a lane is before it goes on: its last life may not have told all that it did.
Tell: TypeAlias = Callable[[Position], None]


class LaneDriverSettings(SparkServiceSettings, SecretSettings):
    """What may be set for either process; a subclass gives the prefix and the defaults."""

    # Spark waits for HTTP most of the time; 1 GB holds the lanes of a small machine.
    heap_mb: int = Field(default=1024, ge=512)
    # Tasks at the same time: at least the Kafka partitions of all lanes that must not wait.
    # They wait for HTTP, and a slot that nobody needs costs nothing.
    slots: int = Field(default=32, ge=1)
    # After so long in a micro-batch nothing is started any more, and what waits is parked.
    time_box_s: float = Field(default=5.0, gt=0)
    # How long a stop of the process waits for the micro-batches under way.
    drain_s: float = Field(default=20.0, ge=0)
    # The same for a lane that is paused, changed or taken away, which is promised within 5 s; what
    # is cut off is sent again, and labelled.
    change_drain_s: float = Field(default=3.0, ge=0)
    # A lane that has something to do and reports nothing for so long is called stalled.
    stalled_after_s: float = Field(default=60.0, gt=0)
    # Where the workers of this machine share what they know of destinations; None: in `folder`. Two
    # processes that are given the same one share it too.
    flow_folder: Path | None = None
    # Below 1, all waits of the retry schedule shrink alike; for tests and demonstrations.
    time_scale: float = Field(default=1.0, gt=0)
    # Whether destinations may be at private addresses (loopback, RFC 1918, ...): no customer's
    # setting may reach into the network that Hifi runs in, unless whoever runs it says so.
    allow_private: bool = False
    # One process of a machine is enough to write the archive that speeds up the next starts.
    makes_class_archive: bool = False

    @property
    def home(self) -> Path:
        """What this process owns alone: its lock and its scratch space."""
        return self.folder.absolute()

    @property
    def stall_limit_s(self) -> float:
        """How long a lane of this process may go without news of its progress."""
        return self.stalled_after_s

    @property
    def checkpoints(self) -> Path:
        return self.folder.absolute() / "checkpoints"

    @property
    def flows(self) -> Path:
        return (self.flow_folder or self.folder / "flows").absolute()

    @property
    def schedule(self) -> RetrySchedule:
        return RetrySchedule().scaled(self.time_scale)


def run_lanes(
    service: str,
    settings: LaneDriverSettings,
    *,
    start_lane: Callable[[SparkSession, W, Flows, Tell], StreamingQuery],
    wanted_of: Callable[[Configuration, Flows], Mapping[str, W]],
    metrics: LaneMetrics,
    worker_daemon: str,
    spark_options: Mapping[str, str] | None = None,
    warm_up: Callable[[SparkSession], None] = lambda _: None,
    # Nothing for lanes that nobody else could run.
    hold_lane: HoldLane = lambda _: nullcontext(),
    can_wait: Callable[[W, W], bool] = lambda _, __: False,
) -> None:
    """Run until SIGTERM or SIGINT, then drain. A mistake in the set-up ends with one sentence."""
    configure_logs(service=service, level=settings.log_level)
    spark_settings = _spark_settings(service, settings, worker_daemon, spark_options or {})
    positions = LanePositions(settings.bootstrap_servers)
    states = StateFeed(settings.bootstrap_servers)
    with operator_errors(f"hifi {service}"), own_folder(settings.home, what=service):
        health, keeping = Health(), Pulse()
        _show(service, settings, metrics, health)
        asyncio.run(_look_at_kafka(settings.bootstrap_servers))
        with running_spark(spark_settings) as spark:

            def start(name: str, lane: W) -> StreamingQuery:
                keeping.beat()
                return start_lane(spark, lane, states.flows, partial(positions.enter, name))

            keeper = LaneKeeper[W](
                start,
                metrics,
                on_progress=positions.note,
                hold=hold_lane,
                can_wait=can_wait,
                why=partial(java_refusal, settings.bootstrap_servers),
                drain_s=settings.change_drain_s,
                stalled_after_s=settings.stall_limit_s,
            )

            def keep(configuration: Configuration) -> None:
                if not health.is_started:
                    health.must_turn("what keeps the lanes", keeping, within_s=_KEEPER_WITHIN_S)
                require_running(spark)
                keeper.keep(wanted_of(configuration, states.flows))
                keeping.beat()
                # All lanes were started, or have said why not.
                health.start()

            # Beside the lanes: none of them waits for it.
            Thread(target=_warm_up, args=(spark, warm_up), name="warm-up", daemon=True).start()
            try:
                asyncio.run(_keep(settings, keep, positions, states, metrics, health))
            finally:
                health.stop()
                keeper.drain(drain_s=settings.drain_s)
                asyncio.run(_tell_last(positions))
    log.info("service.stopped")


def _show(service: str, settings: LaneDriverSettings, metrics: LaneMetrics, health: Health) -> None:
    metrics.serve(
        host=settings.metrics_host,
        port=settings.metrics_port,
        probes=health.probes,
        setting=f"HIFI_{service.upper()}_METRICS_PORT",
    )


def _spark_settings(
    service: str, settings: LaneDriverSettings, worker_daemon: str, more: Mapping[str, str]
) -> SparkSettings:
    return SparkSettings(
        name=f"hifi-{service}",
        folder=settings.home,
        cache=settings.jars_cache,
        slots=settings.slots,
        heap_mb=settings.heap_mb,
        worker_daemon=worker_daemon,
        makes_class_archive=settings.makes_class_archive,
        more=more,
    )


async def _look_at_kafka(bootstrap_servers: str) -> None:
    """Whether we are let in, and may read what to do: Spark takes its time, and many words."""
    await check_access(bootstrap_servers)
    try:
        await read_config(bootstrap_servers)
    except KafkaRefusedError:
        raise
    except KafkaUnavailableError as error:
        # One that is started anew will be back by the time that Spark is up.
        log.info("service.kafka_away", error=str(error))


def _warm_up(spark: SparkSession, warm_up: Callable[[SparkSession], None]) -> None:
    begun_s = time.monotonic()
    try:
        warm_up(spark)
    except Exception as error:  # noqa: BLE001 - without it the first events are slower, no more
        log.warning("service.warm_up_failed", error=str(error)[:300])
    else:
        log.info("service.warm", took_s=round(time.monotonic() - begun_s, 1))


async def _keep(  # noqa: PLR0917 - what run_lanes has made
    settings: LaneDriverSettings,
    keep: Callable[[Configuration], None],
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
            await asyncio.to_thread(keep, feed.configuration)
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


async def _tell_last(positions: LanePositions) -> None:
    """Where the lanes ended. Without it a paused lane's last outcomes would stay unconfirmed."""
    try:
        async with asyncio.timeout(_LAST_WORD_S):
            await positions.commit()
    except TimeoutError:
        log.info("lane.position_not_told", error="no answer from Kafka")
    finally:
        await positions.close()
