"""Makes dead letters, in Spark, of the events that a plan has given up.

Their headers are the same as those of `dead_headers`, the reference: a test compares the two.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from shared.config.pipeline import Pipeline
from shared.event.envelope import (
    ACCEPTED_AT,
    AMBIGUOUS,
    ATTEMPT,
    CAUSE,
    DEAD_AT,
    DEADLINE_AT,
    DESTINATION,
    EVENT_BYTES_MAX,
    EVENT_ID,
    EVENT_TIME,
    FIRST_ATTEMPT_AT,
    HEADERS_VERSION,
    LAST_DETAIL,
    ORDERING_KEY,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    PARKS,
    REASON,
    STREAM,
    TRACEPARENT,
    VALUE_BYTES,
    VERSION,
    WAIT,
)
from shared.event.topics import DEAD, stream_topic

# As in `envelope.py`.
_KEPT_BYTES = 1_048_576
_TEXT_BYTES_MAX = 8_192
_NOW = "now_ms"


def with_dead_letters(rows: DataFrame, pipeline: Pipeline, *, now_ms: Column) -> DataFrame:
    """Return the rows; those of dead events become dead letters."""
    # Read the clock once for each row.
    rows = rows.withColumn(_NOW, now_ms)
    is_dead = F.col("outcome") == "dead"
    lane = F.lit(pipeline.lane_id.encode())
    is_cut = F.length("value") > EVENT_BYTES_MAX
    value = F.when(is_cut, F.substring("value", 1, _KEPT_BYTES)).otherwise(F.col("value"))
    made = {
        "headers": _headers(pipeline, is_cut),
        "value": value,
        "key": lane,
        "topic": F.lit(DEAD),
    }
    kept = [name for name in rows.columns if name not in made and name != _NOW]
    return rows.select(
        *kept,
        *(F.when(is_dead, dead).otherwise(F.col(name)).alias(name) for name, dead in made.items()),
    )


def _headers(pipeline: Pipeline, is_cut: Column) -> Column:
    topic, place = stream_topic(pipeline.source.stream), F.concat_ws(":", "partition", "offset")
    now = _text(_NOW)
    listed: list[tuple[str, Column]] = [
        (VERSION, F.lit(HEADERS_VERSION)),
        (
            EVENT_ID,
            F.coalesce(_written(EVENT_ID), F.concat(F.lit(f"{topic}:"), place).cast("binary")),
        ),
        (EVENT_TIME, _text("event_time_ms")),
        (ACCEPTED_AT, _text("accepted_at_ms")),
        (TRACEPARENT, _written(TRACEPARENT)),
        (STREAM, F.lit(pipeline.source.stream.encode())),
        (DESTINATION, F.lit(pipeline.lane_id.encode())),
        (ORIGIN_TOPIC, F.lit(topic.encode())),
        (ORIGIN_PARTITION, _text("partition")),
        (ORIGIN_OFFSET, _text("offset")),
        (ORDERING_KEY, F.col("key")),
        (ATTEMPT, F.lit(b"1")),
        (PARKS, F.lit(b"0")),
        (FIRST_ATTEMPT_AT, now),
        (DEADLINE_AT, now),
        (WAIT, F.lit(b"0")),
        (CAUSE, _text("reason")),
        (LAST_DETAIL, F.lit(b"")),
        (AMBIGUOUS, F.lit(b"0")),
        (VALUE_BYTES, F.when(is_cut, _text(F.length("value")))),
        (REASON, _text("reason")),
        (DEAD_AT, now),
    ]
    headers = [F.struct(F.lit(name).alias("key"), raw.alias("value")) for name, raw in listed]
    return F.filter(F.array(*headers), lambda header: header["value"].isNotNull())


def _text(of: str | Column) -> Column:
    return (F.col(of) if isinstance(of, str) else of).cast("string").cast("binary")


def _written(name: str) -> Column:
    """The last header of this name, if Hifi could have written it."""
    matches = F.filter(F.col("headers"), lambda header: header["key"] == name)
    raw = F.try_element_at(matches, F.lit(-1))["value"]
    text = F.try_validate_utf8(
        F.when(F.octet_length(raw).between(1, _TEXT_BYTES_MAX), raw).cast("string")
    )
    return text.cast("binary")
