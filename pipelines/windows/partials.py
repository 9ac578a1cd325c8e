"""Has Spark compute parts of windows: of each window that events fall into, what they add to it.

An event has one row here until its windows are known. It is late by the broker's clock, which says
when its record was stored, and by how far all of the stream has been read; by no other event.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType

from pipelines.parts.columns import OURS, column, ours
from pipelines.parts.columns import timestamp as as_timestamp
from pipelines.parts.whole_events import DEAD, FILTERED, LATE
from pipelines.plan import TOO_LARGE, after, check_closed, headers_of, opened, with_fate
from pipelines.tables.look_ups import LookUp
from pipelines.windows.aggregates import RANKS, REGISTERS, SET_MAX, Part, kept_of, packed
from pipelines.windows.kept import Partial
from shared.config.pipeline import Pipeline, ToDead, ToStream
from shared.config.steps.computed import Computed, computed
from shared.config.steps.window import WindowOf
from shared.event.topics import stream_topic
from shared.proof.receipt import PASSED

# Whose clock is ahead by more is taken for its record's time.
AHEAD_MS_MAX = 300_000
# As long as the values may be that a window is counted by.
BY_BYTES_MAX = 1_024
_REGISTER_BITS = REGISTERS.bit_length() - 1
# A hash without its register has so many bits.
_RANK_MAX = 64 - _REGISTER_BITS + 1
_DIGITS = "decimal(20,0)"


def events_of(
    pipeline: Pipeline, records: DataFrame, *, frontier_ms: int, look_ups: Mapping[str, LookUp]
) -> DataFrame:
    """The events as they come to their windows, each with its fate and its time."""
    window = _window(pipeline)
    rows = opened(pipeline, records)
    for step in pipeline.steps[:-1]:
        rows = after(step, rows, look_ups)
    at_ms = ours("event_time_ms")
    if window.time is not None:
        at_ms = F.coalesce(F.unix_millis(F.expr(window.time)), at_ms)
    at_ms = F.least(at_ms, ours("stored_ms") + AHEAD_MS_MAX)
    by = F.to_json(F.struct(*map(column, window.by))) if window.by else F.lit("{}")
    rows = rows.withColumns({f"{OURS}t": at_ms, f"{OURS}by": by})
    read_ms = F.greatest(ours("stored_ms"), F.lit(frontier_ms))
    rows = with_fate(rows, ours("t") < read_ms - window.late_ms, LATE)
    rows = with_fate(rows, F.octet_length(ours("by")) > BY_BYTES_MAX, TOO_LARGE)
    fate = ours("fate")
    is_dead_late = (fate == LATE) & isinstance(pipeline.late_to, ToDead)
    outcome = F.when(fate.isNull(), PASSED).when(is_dead_late, DEAD)
    outcome = outcome.when((fate == FILTERED) | (fate == LATE), fate).otherwise(DEAD)
    rows = rows.withColumns(
        {f"{OURS}outcome": outcome, f"{OURS}reason": fate, f"{OURS}nth": F.lit(0)}
    )
    check_closed(rows)
    return rows


def parts_of(pipeline: Pipeline, events: DataFrame) -> DataFrame:
    """For each window and group, what these events add to each of its aggregates."""
    window, computes = _window(pipeline), _computes(pipeline)
    alive = events.where(ours("fate").isNull())
    kinds = _kinds(alive, computes)
    top = next((of for of in computes if of.aggregate == "top"), None)
    counted = _text(F.expr(top.of), kinds[top.of]) if top else F.lit(None).cast("string")
    rows = alive.withColumn(f"{OURS}top", counted)
    if window.gap_ms:
        times = F.session_window(as_timestamp(ours("t")), f"{window.gap_ms} milliseconds")
        rows = rows.withColumn(f"{OURS}times", times)
        start, end = (F.unix_millis(ours("times").getField(each)) for each in ("start", "end"))
        grouped = rows.groupBy(ours("times"), ours("by"), ours("top"))
    else:
        newest = ours("t") - F.pmod(ours("t"), F.lit(window.every_ms))
        ago = range(0, window.size_ms, window.every_ms)
        starts = F.array(*(newest - past for past in ago))
        rows = rows.withColumn(f"{OURS}start", F.explode(starts))
        start, end = ours("start"), ours("start") + window.size_ms
        grouped = rows.groupBy(ours("start"), ours("by"), ours("top"))
    parts = grouped.agg(
        F.max(ours("t")).alias("last"),
        F.max(ours("accepted_at_ms")).alias("accepted"),
        F.count(F.lit(1)).alias("n"),
        *(_part(of, kinds).alias(f"p{nth}") for nth, of in enumerate(computes)),
    )
    names = [name for name in parts.columns if not name.startswith(OURS)]
    return parts.select(
        start.alias("start"),
        end.alias("end"),
        ours("by").alias("by"),
        ours("top").alias("top"),
        *map(column, names),
    )


def lost_of(pipeline: Pipeline, events: DataFrame) -> DataFrame:
    """What is written of the events that are late or dead: columns as in ROWS."""
    rows = fates_of(pipeline, events)
    return rows.where((F.col("outcome") == DEAD) | F.col("topic").isNotNull())


def fates_of(pipeline: Pipeline, events: DataFrame) -> DataFrame:
    """The events that come to no window."""
    is_late, to = ours("outcome") == LATE, pipeline.late_to
    topic = F.when(is_late, stream_topic(to.stream) if isinstance(to, ToStream) else None)
    headers = F.when(is_late, headers_of(pipeline, F.lit(0))).otherwise(ours("headers"))
    kept = ("partition", "offset", "nth", "outcome", "reason", "event_time_ms", "accepted_at_ms")
    return events.where(ours("fate").isNotNull()).select(
        *(ours(name).alias(name) for name in kept),
        topic.cast("string").alias("topic"),
        # They go by their keys.
        F.lit(None).cast("int").alias("to_partition"),
        *(ours(name).alias(name) for name in ("key", "value")),
        headers.alias("headers"),
    )


def partials_of(pipeline: Pipeline, found: Sequence[Mapping[str, Any]]) -> Iterator[Partial]:
    """What Spark has found, as it is merged."""
    computes = _computes(pipeline)
    for row in found:
        parts = [_read(of, row[f"p{nth}"], row) for nth, of in enumerate(computes)]
        yield Partial(
            row["start"], row["end"], row["by"] or "{}", row["last"], row["accepted"], parts
        )


def _window(pipeline: Pipeline) -> WindowOf:
    assert pipeline.window is not None, "a pipeline that counts has a window"
    return pipeline.window


def _computes(pipeline: Pipeline) -> list[Computed]:
    return [computed(text) for text in _window(pipeline).compute.values()]


def _kinds(rows: DataFrame, computes: Sequence[Computed]) -> dict[str, DataType]:
    """Of which type is what they are of."""
    texts = list(dict.fromkeys(of.of for of in computes if of.of))
    made = rows.select(*(F.expr(text).alias(f"{nth}") for nth, text in enumerate(texts)))
    return {text: field.dataType for text, field in zip(texts, made.schema.fields, strict=True)}


def _part(of: Computed, kinds: Mapping[str, DataType]) -> Column:
    value = F.expr(of.of) if of.of else F.lit(1)
    kind = kinds.get(of.of, DoubleType())
    text = _text(value, kind)
    with_value = F.struct(value.alias("value"), text.alias("text"))
    place = (ours(each) for each in ("t", "partition", "offset"))
    with_place = F.struct(*place, text.alias("text"))
    # What is null, or no number that JSON has, is passed by.
    there = text.isNotNull()
    parts = {
        "count": lambda: F.count(value),
        "count_if": lambda: F.count_if(value),
        "sum": lambda: _sum(value, kind),
        "avg": lambda: F.struct(_sum(value, kind).alias("sum"), F.count(value).alias("count")),
        "min": lambda: F.min(F.when(there, with_value)).getField("text"),
        "max": lambda: F.max(F.when(there, with_value)).getField("text"),
        "first": lambda: F.min(F.when(there, with_place)),
        "last": lambda: F.max(F.when(there, with_place)),
        "approx_count_distinct": lambda: F.collect_set(_rank(value)),
        "collect_set": lambda: F.slice(F.sort_array(F.collect_set(text)), 1, SET_MAX + 1),
        # It is counted by its values.
        "top": lambda: F.lit(None).cast("string"),
    }
    return parts[of.aggregate]()


def _sum(value: Column, kind: DataType) -> Column:
    """Exact where the numbers are."""
    if isinstance(kind, DoubleType | FloatType):
        return F.sum(value.cast("double"))
    exact = value if isinstance(kind, DecimalType) else value.cast(_DIGITS)
    return F.sum(exact).cast("string")


def _text(value: Column, kind: DataType) -> Column:
    """The value as JSON; null if it is null, or no number that JSON has."""
    if isinstance(kind, DoubleType | FloatType):
        number = value.cast("double")
        is_finite = ~F.isnan(number) & (F.abs(number) < float("inf"))
        value = F.when(is_finite, value)
    whole = F.to_json(F.struct(value.alias("v")))
    # Without {"v": and }.
    return F.when(value.isNotNull(), F.substring(whole, F.lit(6), F.length(whole) - 6))


def _rank(value: Column) -> Column:
    """Which register the hash of a value is of, and how rare it is there."""
    seen = F.xxhash64(value)
    register = F.pmod(seen, F.lit(REGISTERS))
    rest = F.shiftrightunsigned(seen, _REGISTER_BITS)
    zeros = F.bit_count(rest.bitwiseAND(-rest) - 1)
    rank = F.when(rest == 0, _RANK_MAX).otherwise(zeros + 1)
    return F.when(value.isNotNull(), register * RANKS + rank)


def _read(of: Computed, raw: Any, row: Mapping[str, Any]) -> Part:
    match of.aggregate:
        case "avg":
            return [raw["sum"], raw["count"]]
        case "first" | "last":
            return None if raw is None else list(raw.values())
        case "approx_count_distinct":
            return packed(set(raw))
        case "collect_set":
            kept, is_cut = kept_of(set(raw))
            return {"v": kept, "cut": is_cut}
        case "top":
            text = row["top"]
            return {"v": {} if text is None else {text: row["n"]}, "cut": False}
        case _:
            return raw
