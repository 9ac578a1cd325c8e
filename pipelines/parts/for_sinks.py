"""Adds the columns that only sinks get: an event's time in Kafka, its id, and its original form."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.parts.columns import ours
from shared.config.pipeline import Pipeline

# These follow the columns of ROWS. The origin is set only if steps have rewritten the event.
SINK_COLUMNS = (
    "time_ms bigint, event_id string, origin struct<key: binary, value: binary,"
    " headers: array<struct<key: string, value: binary>>>"
)


def for_a_sink(pipeline: Pipeline, nth: Column) -> list[Column]:
    """The columns of SINK_COLUMNS."""
    origin = F.struct(*(ours(name).alias(name) for name in ("key", "value", "headers")))
    is_kept = F.lit(pipeline.keeps_events)
    return [
        ours("time_ms").alias("time_ms"),
        F.when(is_kept, ours("event_id")).otherwise(made_id(pipeline, nth)).alias("event_id"),
        F.when(~is_kept, origin).alias("origin"),
    ]


def made_id(pipeline: Pipeline, nth: Column) -> Column:
    """The same id as `derived_id` returns."""
    made_by = F.lit(f"{pipeline.name}/{pipeline.generation}")
    place = (ours("topic"), ours("partition"), ours("offset"))
    return F.sha2(F.concat_ws("/", made_by, *place, nth), 256)
