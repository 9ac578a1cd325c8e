"""Runs the delivery process from start to drain."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

import structlog
from pyspark.sql import SparkSession

from delivery.flow_news import tell_news
from delivery.lanes.loop import LaneLoop
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.task import run_units
from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from shared.config.destination import Destination
from shared.event.topics import LANES
from shared.flow.flow_record import FlowRecord
from shared.runtime.garbage import collect_seldom
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.leases.member import LeaseMember
from shared.runtime.kafka.leases.standing import keep_standing, kept_standing
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.spark.process import SPARK_WITHIN_S, keep_asking, spark_process
from shared.runtime.spark.task_jobs import TaskJobs

log = structlog.get_logger()

# The loop turns many times a second; planning thousands of lanes takes less than a second.
_LOOP_WITHIN_S = 60.0
# Brokers report the ends of logs within milliseconds. The loop plans nothing meanwhile: a frozen
# broker that still counts as a leader must not delay the lanes of all others for longer.
_ENDS_WITHIN_S = 5.0
# Workers start within seconds, or a bit later on a busy machine.
_WARM_WITHIN_S = 30.0
# How often to update the metrics of destinations.
_SHOW_S = 2.0
# How often to delete old marks: a removed destination is forgotten after 37 days, its marks later.
_FORGET_S = 3_600.0


def run_delivery(settings: DeliverySettings) -> None:
    """Run until SIGTERM or SIGINT, then drain. A wrong setting ends it with one sentence."""
    collect_seldom()
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
        # Before the first lane, so that each begins with its destination's last known state.
        await states.start()
        running.push_async_callback(states.stop)
        running.push_async_callback(positions.close)
        metrics.flows_before(states.flows)
        lanes_log = LogClient(servers, answer_within_s=_ENDS_WITHIN_S)
        await running.enter_async_context(lanes_log)
        marks_log = await running.enter_async_context(LogClient(servers))
        outlet = Outlet(servers)
        running.push_async_callback(outlet.close)
        await marks_log.follow([LANES])
        marks = MarksLog(marks_log)
        await marks.read()
        log.info("service.started", metrics_port=settings.metrics_port)
        parts = settings, metrics, config, states, positions, lanes_log, marks, outlet
        loop = LaneLoop(TaskJobs(spark.sparkContext, run_units), *parts)
        pulse, answers = Pulse(), Pulse()
        health.must_turn("the loop that plans lanes", pulse, within_s=_LOOP_WITHIN_S)
        health.must_turn("Spark", answers, within_s=SPARK_WITHIN_S)
        former = settings.home / "lease.json"
        # This folder's last process has ended: leave the group on its behalf, so that nobody waits
        # for its timeout.
        await loop.member.leave_for(kept_standing(former))
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(keep_asking(spark, answers)),
                    group.create_task(positions.keep_telling()),
                    group.create_task(tell_news(settings, config, states, outlet.store)),
                    group.create_task(_forget(loop, config)),
                    group.create_task(FlowGauges(metrics, loop.member).keep(config, states)),
                    group.create_task(keep_standing(former, loop.member)),
                    group.create_task(loop.follow_marks()),
                ]
                group.create_task(loop.run(stop, health, pulse))
                await _take_part(loop, stop)
                health.stop()
                for task in beside:
                    task.cancel()
        except ExceptionGroup as died:
            raise died.exceptions[0] from None
        finally:
            health.stop()
            await loop.drain()
            # Publish the positions of slots that were just lost; all others are already published.
            await positions.tell_last()


async def _take_part(loop: LaneLoop, stop: asyncio.Event) -> None:
    """Share lanes with other processes until `stop` is set."""
    await loop.warm_up(within_s=_WARM_WITHIN_S)
    await loop.member.run(stop)


async def _forget(loop: LaneLoop, config: ConfigFeed) -> None:
    while True:
        await asyncio.sleep(_FORGET_S)
        # If this fails, the next round does it.
        with suppress(*AWAY):
            await loop.roster.forget(config.newest)


@dataclass
class FlowGauges:
    """The gauges of destinations' flows: in a fleet, each owner shows its own."""

    metrics: DeliveryMetrics
    member: LeaseMember
    _known: dict[str, tuple[Destination, FlowRecord, bool]] = field(default_factory=dict)
    _owned: frozenset[int] = frozenset()

    async def keep(self, config: ConfigFeed, states: StateFeed) -> None:
        """Look repeatedly, until cancelled."""
        while True:
            self.look(config.configuration.destinations, states.flows)
            await asyncio.sleep(_SHOW_S)

    def look(
        self, destinations: Mapping[str, Destination], flows: Mapping[str, FlowRecord]
    ) -> None:
        before, self._owned = self._owned, self.member.owned
        names = flows.keys() & destinations.keys()
        for name in names:
            to, flow = destinations[name], flows[name]
            known_to, known_flow, _ = self._known.get(name, (None, None, False))
            if known_flow is flow and known_to is to and self._owned is before:
                # Most of thousands are unchanged, and finding their slots takes the longest.
                continue
            slot = self.member.slot_of(name)
            is_ours, was_ours = slot in self._owned, slot in before
            if self._known.get(name) == (to, flow, is_ours):
                continue
            self._known[name] = to, flow, is_ours
            if not (is_ours and was_ours):
                self.metrics.flow_elsewhere(to, flow)
            if is_ours:
                self.metrics.flow_known(to, flow)
            elif was_ours:
                self.metrics.flow_gone(name)
        for name in self._known.keys() - names:
            self.metrics.flow_gone(name)
            del self._known[name]
