"""Runs the retrier's two Spark queries: the due gate through delivery's own `deliver` to Kafka.

One serves all destinations and waits for none of them for long; what is due to a slow one goes on
to the other, which does (ADR 0051).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delivery.sending import TROUBLE_WAIT_S, Plan
from retrier.due_gate import DueGateSource
from retrier.settings import RetrierSettings
from retrier.task import deliver_due
from shared.event.record import KafkaPartition, Position
from shared.event.topics import RETRIER, RETRIER_SLOW, retry_topic, tier_topics
from shared.flow.flow import SLOW_MS
from shared.retry.schedule import SLOW
from shared.runtime.kafka.lane_positions import told
from shared.runtime.kafka.spark_options import by_topic
from shared.runtime.spark.arrow_rows import COLUMNS_IN, SCHEMA_OUT
from shared.runtime.spark.checkpoint import position, replayed_micro_batch
from shared.runtime.spark.lane_driver import Flows, Tell
from shared.runtime.spark.session import map_arrow, write_outcomes

# Answers that take seconds need not be asked for twice a second, and looking costs processor time.
_SLOW_LOOKS = 4


@dataclass(frozen=True, slots=True)
class RetryLane:
    """What one of the two queries reads, and how long it waits for others."""

    name: str
    # How long events wait in each of its topics.
    delays_s: Mapping[str, float]
    time_box_s: float
    patience_s: float | None
    # How often its topics are asked what has become due.
    look_s: float


def lanes(settings: RetrierSettings) -> dict[str, RetryLane]:
    """Always the same: a changed destination is no reason to start a lane again."""
    tiers = settings.schedule.tiers
    delays_s = {topic: tier.delay_s for tier in tiers for topic in tier_topics(tier.name)}
    slow = {retry_topic(SLOW.name): SLOW.delay_s}
    look_s, slow_look_s = settings.look_s, _SLOW_LOOKS * settings.look_s
    return {
        RETRIER: RetryLane(RETRIER, delays_s, settings.time_box_s, SLOW_MS / 1000, look_s),
        RETRIER_SLOW: RetryLane(RETRIER_SLOW, slow, settings.slow_time_box_s, None, slow_look_s),
    }


def plan_of(lane: RetryLane, settings: RetrierSettings, flows: Flows) -> Plan:
    """What the tasks of a lane need to know; destinations are looked up when an event is due."""
    return Plan(
        reads="retry",
        destinations={},
        # One try in place, for a connection that breaks: a destination that is down must not hold
        # up the others' due events for the second that delivery gives it.
        schedule=replace(settings.schedule, local_delays_s=settings.schedule.local_delays_s[:1]),
        time_box_s=lane.time_box_s,
        patience_s=lane.patience_s,
        # It serves many destinations: one in trouble must not hold up what is due to the others.
        trouble_wait_s_max=TROUBLE_WAIT_S,
        allows_private=settings.allow_private,
        flow_folder=settings.flows,
        flows=flows,
    )


def start_lane(
    spark: SparkSession, lane: RetryLane, flows: Flows, tell: Tell, *, settings: RetrierSettings
) -> StreamingQuery:
    """Start the query of one lane, where its checkpoint says or, if that is lost, Kafka."""
    checkpoint = settings.checkpoints / lane.name
    at: Position = position(checkpoint)
    plan = plan_of(lane, settings, flows)
    begin: Position = {}
    if not at:
        known = told(settings.bootstrap_servers, lane.name, lane.delays_s)
        at = begin = known.position
        plan = replace(plan, replay_until=known.ends if begin else {})
    # A new one has passed nothing of any tier.
    tell(at or {KafkaPartition(topic, 0): 0 for topic in lane.delays_s})
    spark.dataSource.register(DueGateSource)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", lane.name)
    due = (
        spark.readStream.format(DueGateSource.name())
        .option("bootstrap_servers", settings.bootstrap_servers)
        .option("delays_s", json.dumps(lane.delays_s))
        .option("events_max", settings.micro_batch_events_max)
        .option("begin", json.dumps(by_topic(begin)))
        .load()
        .select(*COLUMNS_IN)
    )
    send = partial(
        deliver_due,
        plan=plan,
        bootstrap_servers=settings.bootstrap_servers,
        replayed=replayed_micro_batch(checkpoint),
    )
    return write_outcomes(
        map_arrow(due, send, SCHEMA_OUT),
        name=lane.name,
        bootstrap_servers=settings.bootstrap_servers,
        checkpoint=checkpoint,
        trigger_interval=f"{round(lane.look_s * 1000)} milliseconds",
    )
