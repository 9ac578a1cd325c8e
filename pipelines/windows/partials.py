"""Has Spark compute parts of windows: the additions of a job's events to each of their windows.

An event has one row here until its windows are known. Whether it is late depends on the broker's
clock when its record was stored, and on how far the whole stream has been read, but on no other
event.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType

from pipelines.functions.reducing import with_states
from pipelines.parts.columns import OURS, alive, column, ours
from pipelines.parts.columns import timestamp as as_timestamp
from pipelines.parts.numbers import expression
from pipelines.parts.times import with_all_digits
from pipelines.parts.whole_events import DEAD, FILTERED, LATE
from pipelines.plan import (
    TOO_LARGE,
    after,
    check_closed,
    given_of,
    headers_of,
    opened,
    with_fate,
)
from pipelines.tables.look_ups import LookUp
from pipelines.windows.aggregates import (
    OVERFLOW,
    RANKS,
    REGISTERS,
    Part,
    kept_of,
    most_of,
    packed,
    states_of,
)
from pipelines.windows.open_windows import Partial
from shared.config.pipeline import Pipeline, ToDead, ToStream
from shared.config.steps.computed import LISTING, ComputedColumn, computed
from shared.config.steps.window import WindowOf
from shared.event.topics import stream_topic
from shared.proof.receipt import PASSED

# An event's time is at most this far ahead of its record's time; a later time is cut to this limit.
AHEAD_MS_MAX = 300_000
# The maximum size of a value that a window is grouped by, and of a value that it keeps.
BY_BYTES_MAX = VALUE_BYTES_MAX = 1_024
# Aggregates that keep values of events.
_KEEPING = frozenset({"min", "max", "first", "last", "collect_set", "top"})
# The number of the row for all other aggregates, beside the rows of listed values.
_ALL_ELSE = -1
_REGISTER_BITS = REGISTERS.bit_length() - 1
# The number of ranks: one more than the bits of a hash that do not choose its register.
_RANK_MAX = 64 - _REGISTER_BITS + 1
_DIGITS = "decimal(20,0)"


def events_of(
    pipeline: Pipeline, records: DataFrame, *, frontier_ms: int, look_ups: Mapping[str, LookUp]
) -> DataFrame:
    """Return the events as they enter their windows, each with its fate and its time."""
    window = _window(pipeline)
    rows = opened(pipeline, records)
    for step in pipeline.steps[:-1]:
        rows = after(step, rows, look_ups)
    at_ms = ours("event_time_ms")
    if window.time is not None:
        at_ms = F.coalesce(F.unix_millis(expression(window.time)), at_ms)
    at_ms = F.least(at_ms, ours("stored_ms") + AHEAD_MS_MAX)
    types = {field.name: field.dataType for field in rows.schema}
    values = [with_all_digits(column(name), types[name]).alias(name) for name in window.by]
    by = F.to_json(F.struct(*values)) if values else F.lit("{}")
    rows = rows.withColumns({f"{OURS}t": at_ms, f"{OURS}by": by})
    read_ms = F.greatest(ours("stored_ms"), F.lit(frontier_ms))
    rows = with_fate(rows, ours("t") < read_ms - window.late_ms, LATE)
    rows = with_fate(rows, F.octet_length(ours("by")) > BY_BYTES_MAX, TOO_LARGE)
    computes = _computes(pipeline)
    kinds = _kinds(rows, computes)
    for text in dict.fromkeys(of.of for of in computes if of.aggregate in _KEEPING):
        size = F.octet_length(_text(alive(expression(text)), kinds[text]))
        rows = with_fate(rows, F.coalesce(size, F.lit(0)) > VALUE_BYTES_MAX, TOO_LARGE)
    for index, of in enumerate(computes):
        if of.function:
            state = f"state:{index}"
            rows = with_states(rows, of.function, given_of(rows), alive, into=OURS + state)
            size = F.coalesce(F.octet_length(ours(state)), F.lit(0))
            rows = with_fate(rows, size > VALUE_BYTES_MAX, TOO_LARGE)
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
    """Return, for each window and group, the part of each aggregate from these events."""
    window, computes = _window(pipeline), _computes(pipeline)
    rows = events.where(ours("fate").isNull())
    kinds = _kinds(rows, computes)
    rows = rows.withColumns(
        {f"{OURS}nth": F.lit(_ALL_ELSE), f"{OURS}text": F.lit(None).cast("string")}
    )
    if listed := [index for index, of in enumerate(computes) if of.aggregate in LISTING]:
        rows = _listed(rows, {index: _one_text(index, computes[index], kinds) for index in listed})
    if window.gap_ms:
        times = F.session_window(as_timestamp(ours("t")), f"{window.gap_ms} milliseconds")
        rows = rows.withColumn(f"{OURS}times", times)
        start, end = (F.unix_millis(ours("times").getField(each)) for each in ("start", "end"))
        grouped = rows.groupBy(*map(ours, ("times", "by", "nth", "text")))
    else:
        newest = ours("t") - F.pmod(ours("t"), F.lit(window.every_ms))
        ago = range(0, window.size_ms, window.every_ms)
        starts = F.array(*(newest - past for past in ago))
        rows = rows.withColumn(f"{OURS}start", F.explode(starts))
        start, end = ours("start"), ours("start") + window.size_ms
        grouped = rows.groupBy(*map(ours, ("start", "by", "nth", "text")))
    parts = grouped.agg(
        F.max(ours("t")).alias("last"),
        F.max(ours("accepted_at_ms")).alias("accepted"),
        F.count(F.lit(1)).alias("n"),
        *(_part(of, kinds).alias(f"p{index}") for index, of in enumerate(computes)),
    )
    names = [name for name in parts.columns if not name.startswith(OURS)]
    return parts.select(
        start.alias("start"),
        end.alias("end"),
        ours("by").alias("by"),
        ours("nth").alias("nth"),
        ours("text").alias("text"),
        *map(column, names),
    )


def _listed(rows: DataFrame, listed: Mapping[int, Column]) -> DataFrame:
    """Add one row for each listed value, by which it is counted.

    So a list becomes rows, which Spark can spill to disk, and does not grow in its memory.
    """
    all_else = F.struct(F.lit(_ALL_ELSE).alias("nth"), F.lit(None).cast("string").alias("text"))
    values = (F.struct(F.lit(at).alias("nth"), text.alias("text")) for at, text in listed.items())
    rows = rows.withColumn(f"{OURS}one", F.explode(F.array(all_else, *values)))
    rows = rows.withColumns(
        {f"{OURS}{name}": ours("one").getField(name) for name in ("nth", "text")}
    )
    return rows.where((ours("nth") == _ALL_ELSE) | ours("text").isNotNull())


def lost_of(pipeline: Pipeline, events: DataFrame) -> DataFrame:
    """The rows that are written for late or dead events: columns as in ROWS."""
    rows = fates_of(pipeline, events)
    return rows.where((F.col("outcome") == DEAD) | F.col("topic").isNotNull())


def fates_of(pipeline: Pipeline, events: DataFrame) -> DataFrame:
    """The events that enter no window."""
    is_late, to = ours("outcome") == LATE, pipeline.late_to
    topic = F.when(is_late, stream_topic(to.stream) if isinstance(to, ToStream) else None)
    headers = F.when(is_late, headers_of(pipeline, F.lit(0))).otherwise(ours("headers"))
    kept = ("partition", "offset", "nth", "outcome", "reason", "event_time_ms", "accepted_at_ms")
    return events.where(ours("fate").isNotNull()).select(
        *(ours(name).alias(name) for name in kept),
        topic.cast("string").alias("topic"),
        # Kafka's producer places them by their keys.
        F.lit(None).cast("int").alias("to_partition"),
        *(ours(name).alias(name) for name in ("key", "value")),
        headers.alias("headers"),
    )


def partials_of(pipeline: Pipeline, found: Sequence[Mapping[str, Any]]) -> Iterator[Partial]:
    """Yield Spark's results in the form in which windows merge them."""
    computes = _computes(pipeline)
    lists: dict[tuple[int, int, str, int], dict[str, int]] = {}
    for row in found:
        if row["nth"] != _ALL_ELSE:
            where = row["start"], row["end"], row["by"] or "{}", row["nth"]
            lists.setdefault(where, {})[row["text"]] = row["n"]
    for row in found:
        if row["nth"] != _ALL_ELSE:
            continue
        start, end, by = row["start"], row["end"], row["by"] or "{}"
        parts = [
            _list(of, lists.get((start, end, by, index), {}))
            if of.aggregate in LISTING
            else _read(of, row[f"p{index}"])
            for index, of in enumerate(computes)
        ]
        yield Partial(start, end, by, row["last"], row["accepted"], parts)


def _window(pipeline: Pipeline) -> WindowOf:
    assert pipeline.window is not None, "a pipeline that counts has a window"
    return pipeline.window


def _computes(pipeline: Pipeline) -> list[ComputedColumn]:
    return [computed(text) for text in _window(pipeline).compute.values()]


def _kinds(rows: DataFrame, computes: Sequence[ComputedColumn]) -> dict[str, DataType]:
    """The types of the expressions that are aggregated."""
    texts = list(dict.fromkeys(of.expression for of in computes if of.expression))
    made = rows.select(*(expression(text).alias(f"{index}") for index, text in enumerate(texts)))
    return {text: field.dataType for text, field in zip(texts, made.schema.fields, strict=True)}


def _part(of: ComputedColumn, kinds: Mapping[str, DataType]) -> Column:
    # The row of a listed value counts for no other aggregate.
    value = F.when(
        ours("nth") == _ALL_ELSE, expression(of.expression) if of.expression else F.lit(1)
    )
    kind = kinds.get(of.expression, DoubleType())
    text = _text(value, kind)
    with_value = F.struct(value.alias("value"), text.alias("text"))
    place = (ours(each) for each in ("t", "partition", "offset"))
    with_place = F.struct(*place, text.alias("text"))
    # Nulls, and numbers that JSON does not have, are skipped.
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
        # Listed aggregates are counted by their values instead.
        "collect_set": lambda: F.lit(None).cast("string"),
        "top": lambda: F.lit(None).cast("string"),
        "call": lambda: F.lit(None).cast("string"),
    }
    return parts[of.aggregate]()


def _sum(value: Column, kind: DataType) -> Column:
    """Sum a column, exactly if its numbers are exact."""
    if isinstance(kind, DoubleType | FloatType):
        return F.sum(value.cast("double"))
    exact = value if isinstance(kind, DecimalType) else value.cast(_DIGITS)
    # Spark's sum is null if there was nothing to add, or if it has too many digits.
    overflow = F.when(F.count(value) > 0, F.lit(OVERFLOW))
    return F.coalesce(F.sum(exact).cast("string"), overflow)


def _text(value: Column, kind: DataType) -> Column:
    """The value as JSON; null if it is null, or a number that JSON lacks."""
    if isinstance(kind, DoubleType | FloatType):
        number = value.cast("double")
        is_finite = ~F.isnan(number) & (F.abs(number) < float("inf"))
        value = F.when(is_finite, value)
    whole = F.to_json(F.struct(value.alias("v")))
    # Strip {"v": and }.
    return F.when(value.isNotNull(), F.substring(whole, F.lit(6), F.length(whole) - 6))


def _one_text(nth: int, of: ComputedColumn, kinds: Mapping[str, DataType]) -> Column:
    """The text that an event adds to a list."""
    return ours(f"state:{nth}") if of.function else _text(expression(of.of), kinds[of.of])


def _rank(value: Column) -> Column:
    """The register of a value's hash, and its rank: how rare the rest of the hash is."""
    seen = F.xxhash64(value)
    register = F.pmod(seen, F.lit(REGISTERS))
    rest = F.shiftrightunsigned(seen, _REGISTER_BITS)
    zeros = F.bit_count(rest.bitwiseAND(-rest) - 1)
    rank = F.when(rest == 0, _RANK_MAX).otherwise(zeros + 1)
    return F.when(value.isNotNull(), register * RANKS + rank)


def _list(of: ComputedColumn, counts: Mapping[str, int]) -> Part:
    if of.function:
        return states_of(counts)
    if of.aggregate == "top":
        return most_of(counts)
    kept, is_cut = kept_of(set(counts))
    return {"v": kept, "cut": is_cut}


def _read(of: ComputedColumn, raw: Any) -> Part:
    match of.aggregate:
        case "avg":
            return [raw["sum"], raw["count"]]
        case "first" | "last":
            return None if raw is None else list(raw.values())
        case "approx_count_distinct":
            return packed(set(raw))
        case _:
            return raw
