"""Decides what a lane is to Spark: one query from a stream's topic through `deliver` to Kafka.

One action per micro-batch, and nothing after the HTTP step: a second one would POST everything
twice. The sink flushes before the task succeeds, so the checkpoint moves only after every event
has its outcome in Kafka.
"""

from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delivery.checkpoint import replay_until
from delivery.deliver import Plan, deliver
from delivery.settings import DeliverySettings
from shared.destination import Destination
from shared.runtime.arrow_rows import COLUMNS_IN, SCHEMA_OUT
from shared.runtime.spark import map_arrow, write_outcomes
from shared.topics import stream_topic

# How long the broker may hold a fetch that finds nothing; the default of 500 ms is felt by the
# first event after a pause.
_FETCH_WAIT_MS = 50


def checkpoint_of(settings: DeliverySettings, destination_id: str) -> Path:
    """Where a lane's position is kept. A destination that comes back goes on where it was."""
    return settings.checkpoints / destination_id


def start_lane(
    spark: SparkSession, destination: Destination, settings: DeliverySettings
) -> StreamingQuery:
    """Start the query of one destination."""
    checkpoint = checkpoint_of(settings, destination.id)
    plan = Plan(
        reads="stream",
        destinations={destination.id: destination},
        schedule=settings.schedule,
        time_box_s=settings.time_box_s,
        replay_until=replay_until(checkpoint),
        allows_private=settings.allow_private,
    )
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", destination.id)
    events = _read(spark, destination, settings)
    outcomes = map_arrow(events, partial(deliver, plan=plan), SCHEMA_OUT)
    return write_outcomes(
        outcomes,
        name=destination.id,
        bootstrap_servers=settings.bootstrap_servers,
        checkpoint=checkpoint,
        trigger_interval="0 seconds",
    )


def _read(spark: SparkSession, destination: Destination, settings: DeliverySettings) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("subscribe", stream_topic(destination.stream))
        # A new destination gets what the log still has, not only what comes after its birth.
        .option("startingOffsets", "earliest")
        # Offsets that are gone are a loss: stop and say so.
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", settings.micro_batch_events_max)
        .option("groupIdPrefix", f"hifi-{destination.stream}-{destination.name}")
        .option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
        .load()
        .select(*COLUMNS_IN)
    )
