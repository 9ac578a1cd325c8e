"""Runs the retrier as one Spark query: the due gate through delivery's own `deliver` to Kafka."""

import json
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delivery.deliver import TROUBLE_WAIT_S, Plan
from retrier.due_gate import DueGateSource
from retrier.settings import RetrierSettings
from retrier.task import deliver_due
from shared.event.record import KafkaPartition, Position
from shared.event.topics import RETRIER, retry_topic
from shared.runtime.spark.arrow_rows import COLUMNS_IN, SCHEMA_OUT
from shared.runtime.spark.checkpoint import position, replayed_micro_batch
from shared.runtime.spark.lane_driver import Flows
from shared.runtime.spark.session import map_arrow, write_outcomes


def begins_at(settings: RetrierSettings) -> Position:
    """How far the retrier is before it runs; a new one has passed nothing of any tier."""
    tiers = settings.schedule.tiers
    return position(settings.checkpoints / RETRIER) or {
        KafkaPartition(retry_topic(tier.name), 0): 0 for tier in tiers
    }


def start_lane(spark: SparkSession, settings: RetrierSettings, flows: Flows) -> StreamingQuery:
    """Start the one query over all tiers; destinations are looked up when an event is due."""
    plan = Plan(
        reads="retry",
        destinations={},
        # One try in place, for a connection that breaks: a destination that is down must not hold
        # up the others' due events for the second that delivery gives it.
        schedule=replace(settings.schedule, local_delays_s=settings.schedule.local_delays_s[:1]),
        time_box_s=settings.time_box_s,
        # It serves all destinations: one in trouble must not hold up what is due to the others.
        trouble_wait_s_max=TROUBLE_WAIT_S,
        allows_private=settings.allow_private,
        flow_folder=settings.flows,
        flows=flows,
    )
    delays_s = {retry_topic(tier.name): tier.delay_s for tier in settings.schedule.tiers}
    spark.dataSource.register(DueGateSource)
    due = (
        spark.readStream.format(DueGateSource.name())
        .option("bootstrap_servers", settings.bootstrap_servers)
        .option("delays_s", json.dumps(delays_s))
        .option("events_max", settings.micro_batch_events_max)
        .load()
        .select(*COLUMNS_IN)
    )
    checkpoint = settings.checkpoints / RETRIER
    send = partial(
        deliver_due,
        plan=plan,
        bootstrap_servers=settings.bootstrap_servers,
        replayed=replayed_micro_batch(checkpoint),
    )
    return write_outcomes(
        map_arrow(due, send, SCHEMA_OUT),
        name=RETRIER,
        bootstrap_servers=settings.bootstrap_servers,
        checkpoint=checkpoint,
        trigger_interval=f"{round(settings.look_s * 1000)} milliseconds",
    )
