"""Makes a Spark plan of a pipeline: the only way from records of its stream to rows for Kafka.

Every event passes every step. One that is filtered out or unreadable carries its fate with it and
also becomes a row, so that all events are accounted for. Nothing here shuffles, so the rows of an
event stay together, in the order of its stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.functions.calls import with_answers
from pipelines.members import members_of
from pipelines.parts.columns import (
    OURS,
    alive,
    column,
    event_id,
    header,
    named,
    ours,
    pair,
    time_ms,
    timestamp,
)
from pipelines.parts.enriched import TABLE, enriched, names_row
from pipelines.parts.for_sinks import SINK_COLUMNS, for_a_sink, made_id
from pipelines.parts.heap import fit
from pipelines.parts.numbers import expression
from pipelines.parts.times import with_all_digits
from pipelines.parts.whole_events import DEAD, FILTERED, GONE, whole_events
from pipelines.shards import NO_SHARDS, Partitionings, partition_at
from pipelines.tables.look_ups import NO_TABLES, LookUp, Tables
from shared.config.outside.call import Call
from shared.config.pipeline import (
    Enrich,
    Explode,
    Key,
    Output,
    Pipeline,
    Select,
    Step,
    ToArchive,
    ToDatabase,
    ToDead,
    ToStream,
    ToTable,
    Where,
)
from shared.config.steps.expression import FACTS
from shared.config.steps.window import Dedupe, WindowStep
from shared.config.table import Table
from shared.event.derived import HOPS_MAX, ORIGIN, VIA
from shared.event.envelope import ACCEPTED_AT, EVENT_BYTES_MAX, EVENT_ID, EVENT_TIME, TRACEPARENT
from shared.event.topics import stream_topic
from shared.proof.receipt import PASSED
from shared.runtime.spark.session import map_arrow

# The limits of one event's results: this many rows, and this many bytes in all of them.
ROWS_MAX = 1_000
ROWS_BYTES_MAX = 16 * EVENT_BYTES_MAX
# The largest value and key together, as much as the gateway takes: our headers need a few
# hundred bytes of the rest.
RECORD_BYTES_MAX = 1_040_000

# The reasons of dead letters.
NOT_READABLE = "not_readable"
TOO_MANY_ROWS = "too_many_rows"
TOO_LARGE = "too_large"
TOO_MANY_HOPS = "too_many_hops"
UNKNOWN_SHARD = "unknown_shard"
BY_PIPELINE = "by_pipeline"
NO_ROW_KEY = "no_row_key"

_HEADERS = "headers array<struct<key: string, value: binary>>"
# The input of a plan: the columns that it needs from Spark's Kafka source.
RECORDS = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    f" {_HEADERS}"
)
# The output of a plan: the rows of an event are numbered, and have one outcome. A dead letter has
# the key, value and headers of the event itself.
ROWS = (
    "partition int, offset bigint, nth int, outcome string, reason string, event_time_ms bigint,"
    f" accepted_at_ms bigint, topic string, to_partition int, key binary, value binary, {_HEADERS},"
    " stored_ms bigint, seen string"
)
_CORRUPT = f"{OURS}corrupt"
_READING = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    # With single quotes, a text could hide parts from the checks before parsing.
    "allowSingleQuotes": "false",
}
# A trace has 55 characters; a longer one is a mistake and is not passed on.
_TRACE_BYTES_MAX = 512


@dataclass(frozen=True, slots=True)
class _Targets:
    """The facts that a plan needs about the targets of events."""

    streams: Partitionings
    tables: Mapping[str, Table]


def planned(
    pipeline: Pipeline,
    records: DataFrame,
    streams: Partitionings = NO_SHARDS,
    tables: Tables = NO_TABLES,
) -> DataFrame:
    """Return the rows made of records: columns as in ROWS, at least one row for each record.

    `streams` are the target streams that place events by shard.
    """
    rows = opened(pipeline, records)
    for step in pipeline.steps:
        rows = after(step, rows, tables.look_ups)
    rows = _written(pipeline, rows, _Targets(streams, tables.written))
    check_closed(rows)
    schema = ROWS if pipeline.sink is None else f"{ROWS}, {SINK_COLUMNS}"
    return map_arrow(rows, whole_events, schema) if pipeline.explodes else rows


def check_closed(rows: DataFrame) -> None:
    """Refuse expressions that contain a statement, for callers that have not judged them."""
    if not rows._jdf.queryExecution().analyzed().subqueriesAll().isEmpty():  # noqa: SLF001 - no other way
        raise ValueError("an expression contains a statement")


def opened(pipeline: Pipeline, records: DataFrame) -> DataFrame:
    """Return the events as they arrive: their members, and the facts that Hifi adds."""
    kept = {name: F.col(name) for name in ("topic", "partition", "offset", "key", "headers")}
    if pipeline.sink is not None:
        kept |= {"raw": F.col("value"), "time_ms": F.unix_millis("timestamp")}
    # The last of two headers of one name counts, as in Kafka's own `lastHeader`.
    read = {"known": F.map_from_entries("headers"), "value": F.coalesce("value", F.lit(b""))}
    rows = records.select(*named(**kept, **read), F.col("timestamp"))
    via = header(VIA).cast("string")
    too_far = F.when(F.size(F.split(via, ",")) >= HOPS_MAX, TOO_MANY_HOPS)
    fate = F.when(F.find_in_set(F.lit(pipeline.name), via) > 0, FILTERED).otherwise(too_far)
    # Events that go to a sink do not come back, so they cannot loop.
    fate = F.when(via.isNotNull() & F.lit(pipeline.sink is None), fate)
    fate = F.when(ours("raw").isNull(), GONE) if pipeline.to_database else fate
    rows = rows.select(
        *(ours(name).alias(f"{OURS}{name}") for name in (*kept, "value")),
        *named(
            fate=fate,
            via=via,
            trace=header(TRACEPARENT),
            event_id=event_id(),
            event_time_ms=time_ms(header(EVENT_TIME)),
            accepted_at_ms=time_ms(header(ACCEPTED_AT)),
            stored_ms=F.unix_millis("timestamp"),
            at=F.lit(0),
            count=F.lit(1),
        ),
    )
    facts = F.struct(
        ours("event_id").alias("event_id"),
        timestamp(ours("event_time_ms")).alias("event_time"),
        timestamp(ours("accepted_at_ms")).alias("accepted_at"),
        ours("key").cast("string").alias("key"),
        ours("value").cast("string").alias("text"),
    )
    rows = rows.withColumns({FACTS: facts, f"{OURS}out_key": ours("key")})
    return _read(rows, members_of(pipeline.schema)) if pipeline.schema else rows


def after(step: Step, rows: DataFrame, look_ups: Mapping[str, LookUp]) -> DataFrame:
    """Return the events after one more step."""
    match step:
        case Where():
            rows = with_fate(rows, ~F.coalesce(expression(step.where), F.lit(False)), FILTERED)
        case Select():
            made = [alive(expression(text)).alias(name) for name, text in step.select.items()]
            rows = rows.select(*_kept(rows), *made)
        case Explode():
            ((name, text),) = step.explode.items()
            rows = _exploded(rows, name, expression(text))
        case Enrich():
            rows = enriched(rows, step.enrich, look_ups[step.enrich.table])
        case Call():
            rows = with_answers(rows, step.call, given_of(rows), alive, into=f"{OURS}answers")
        case Key():
            key = expression(step.key).cast("string").cast("binary")
            rows = rows.withColumn(f"{OURS}out_key", alive(key))
        case Dedupe():
            # The caller keeps the keys, and finds out whether this key was seen before.
            seen = F.substring(F.sha2(expression(step.dedupe.key).cast("string"), 256), 1, 32)
            rows = rows.withColumn(f"{OURS}seen", alive(seen))
        case WindowStep():
            pass
    return rows


def columns_of(rows: DataFrame) -> list[str]:
    """The columns that people see: the members of the event after the steps so far."""
    return [name for name in rows.columns if name != FACTS and not name.startswith(OURS)]


def given_of(rows: DataFrame) -> dict[str, Column]:
    """The values that functions may read: the event's members so far, and its bytes."""
    return {"value": ours("value")} | {each: column(each) for each in columns_of(rows)}


def _read(rows: DataFrame, members: StructType) -> DataFrame:
    """Add the members of the event; an event that cannot be read gets its fate."""
    shape = StructType([*members.fields, StructField(_CORRUPT, StringType())])
    text = ours("value").cast("string")
    read = F.from_json(alive(fit(text, members)), shape, _READING)
    kept = [column(name) for name in rows.columns if name != f"{OURS}fate"]
    rows = rows.withColumn(f"{OURS}event", read)
    is_broken = ours("event").isNull() | ours("event").getField(_CORRUPT).isNotNull()
    fate = F.coalesce(ours("fate"), F.when(is_broken, NOT_READABLE)).alias(f"{OURS}fate")
    columns = [ours("event").getField(name).alias(name) for name in members.fieldNames()]
    return rows.select(*kept, fate, *columns)


def _exploded(rows: DataFrame, name: str, elements: Column) -> DataFrame:
    rows = rows.withColumn(f"{OURS}list", alive(elements))
    count = F.coalesce(F.size(ours("list")), F.lit(0))
    fate = F.when(count < 1, FILTERED).when(count > ROWS_MAX, TOO_MANY_ROWS)
    rows = rows.withColumns({f"{OURS}count": count, f"{OURS}fate": F.coalesce(ours("fate"), fate)})
    gone = {f"{OURS}at", f"{OURS}list", name}
    others = [column(each) for each in rows.columns if each not in gone]
    each = F.posexplode_outer(alive(ours("list"))).alias(f"{OURS}at", name)
    return rows.select(*others, each)


def _written(pipeline: Pipeline, rows: DataFrame, targets: _Targets) -> DataFrame:
    """Return the events as they leave, each to its outputs."""
    value = ours("value")
    if pipeline.rewrites:
        kinds = {field.name: field.dataType for field in rows.schema}
        members = [
            with_all_digits(column(name), kinds[name]).alias(name) for name in columns_of(rows)
        ]
        value = alive(F.to_json(F.struct(*members))).cast("binary")
    wants = [
        F.lit(True) if output.when is None else F.coalesce(expression(output.when), F.lit(False))
        for output in pipeline.to
    ]
    is_one = pipeline.takes_first or len(pipeline.to) == 1
    chosen = _first(wants) if is_one else _all(wants)
    rows = rows.withColumns({f"{OURS}out_value": value, f"{OURS}to": alive(chosen)})
    rows = rows.withColumns(
        {
            f"{OURS}place:{number}": alive(
                partition_at(targets.streams[output.stream], ours("out_value"))
            )
            for number, output in _sharded(pipeline, targets)
        }
    )
    fate = _last_fate(pipeline, targets, is_one=is_one)
    rows = rows.withColumns({f"{OURS}fate": fate, f"{OURS}row": F.lit(0)})
    if not is_one:
        kept = [column(name) for name in rows.columns if name not in {f"{OURS}to", f"{OURS}row"}]
        each = F.posexplode_outer(alive(ours("to"))).alias(f"{OURS}row", f"{OURS}to")
        rows = rows.select(*kept, each)
    return rows.select(*_row(pipeline, targets))


def _sharded(pipeline: Pipeline, targets: _Targets) -> list[tuple[int, ToStream]]:
    """The outputs to streams of shards, with their numbers."""
    return [
        (number, output)
        for number, output in enumerate(pipeline.to)
        if isinstance(output, ToStream) and output.stream in targets.streams
    ]


def _first(wants: list[Column]) -> Column:
    """The number of the first output that wants an event; null if none does."""
    return reduce(
        lambda chosen, one: chosen.when(one[1], one[0]),
        enumerate(wants[1:], start=1),
        F.when(wants[0], 0),
    )


def _all(wants: list[Column]) -> Column:
    """The numbers of all outputs that want an event."""
    return F.array_compact(F.array(*(F.when(wanted, at) for at, wanted in enumerate(wants))))


def _last_fate(pipeline: Pipeline, targets: _Targets, *, is_one: bool) -> Column:
    """Return the fate of an event, now that its content and its outputs are known."""
    to = ours("to")
    size = F.octet_length(ours("out_value")) + F.coalesce(F.octet_length(ours("out_key")), F.lit(0))
    size_max = F.least(F.lit(RECORD_BYTES_MAX), F.floor(F.lit(ROWS_BYTES_MAX) / ours("count")))
    fate = F.when(to.isNull() if is_one else F.size(to) < 1, FILTERED)

    def is_wanted(nth: int) -> Column:
        return to == nth if is_one else F.array_contains(to, nth)

    for number, output in enumerate(pipeline.to):
        if isinstance(output, ToDead):
            fate = fate.when(is_wanted(number), BY_PIPELINE)
        elif isinstance(output, ToTable):
            fate = fate.when(is_wanted(number) & ~names_row(), NO_ROW_KEY)
            row_bytes_max = targets.tables[output.table].row_bytes_max
            is_large = F.octet_length(ours("out_value")) > row_bytes_max
            fate = fate.when(is_wanted(number) & is_large, TOO_LARGE)
    for number, _ in _sharded(pipeline, targets):
        fate = fate.when(is_wanted(number) & ours(f"place:{number}").isNull(), UNKNOWN_SHARD)
    if pipeline.sink is None:
        fate = fate.when(size > size_max, TOO_LARGE)
    return F.coalesce(ours("fate"), fate)


def _row(pipeline: Pipeline, targets: _Targets) -> list[Column]:
    """The columns of ROWS."""
    fate, is_gone = ours("fate"), F.equal_null(ours("fate"), F.lit(GONE))
    is_passed, is_dead = fate.isNull() | is_gone, (fate != FILTERED) & ~is_gone
    number = F.coalesce(ours("at"), F.lit(0)) * len(pipeline.to) + F.coalesce(ours("to"), F.lit(0))
    topic = F.when(F.lit(False), F.lit(""))
    for to, output in enumerate(pipeline.to):
        if (name := _topic(output, targets)) is not None:
            topic = topic.when(ours("to") == to, name)
    place = F.when(F.lit(False), F.lit(0))
    for to, _ in _sharded(pipeline, targets):
        place = place.when(ours("to") == to, ours(f"place:{to}"))

    def either(passed: Column, dead: Column) -> Column:
        return F.when(is_passed, passed).when(is_dead, dead)

    key, value, headers = ours("out_key"), ours("out_value"), headers_of(pipeline, number)
    if pipeline.sink is not None and pipeline.keeps_events:
        key, value, headers = ours("key"), ours("raw"), ours("headers")
    if pipeline.to_database:
        key, value = F.when(is_gone, ours("key")).otherwise(key), F.when(~is_gone, value)
    return [
        ours("partition").alias("partition"),
        ours("offset").alias("offset"),
        F.coalesce(ours("row"), F.lit(0)).alias("nth"),
        F.when(is_passed, PASSED).when(is_dead, DEAD).otherwise(FILTERED).alias("outcome"),
        F.when(is_dead, fate).alias("reason"),
        ours("event_time_ms").alias("event_time_ms"),
        ours("accepted_at_ms").alias("accepted_at_ms"),
        F.when(is_passed, topic).alias("topic"),
        F.when(is_passed, place).alias("to_partition"),
        either(key, ours("key")).alias("key"),
        either(value, ours("value")).alias("value"),
        either(headers, ours("headers")).alias("headers"),
        ours("stored_ms").alias("stored_ms"),
        (ours("seen") if pipeline.dedupe else F.lit(None).cast("string")).alias("seen"),
        *(for_a_sink(pipeline, number) if pipeline.sink is not None else ()),
    ]


def _topic(output: Output, targets: _Targets) -> str | None:
    match output:
        case ToStream():
            return stream_topic(output.stream)
        case ToTable():
            return targets.tables[output.table].topic
        case ToDead() | ToArchive() | ToDatabase():
            return None


def headers_of(pipeline: Pipeline, nth: Column) -> Column:
    """The headers of a derived event, in the order in which Hifi writes headers."""
    place = (ours("topic"), ours("partition"), ours("offset"))
    event_id = made_id(pipeline, nth)
    for to, output in enumerate(pipeline.to):
        if isinstance(output, ToStream) and output.repost:
            event_id = F.when(ours("to") == to, ours("event_id")).otherwise(event_id)
    trace = F.when(F.octet_length(ours("trace")).between(1, _TRACE_BYTES_MAX), ours("trace"))
    via = F.concat_ws(",", F.nullif(ours("via"), F.lit("")), F.lit(pipeline.name))
    before = [
        pair(EVENT_ID, event_id),
        pair(EVENT_TIME, ours("event_time_ms").cast("string")),
        pair(ACCEPTED_AT, ours("accepted_at_ms").cast("string")),
    ]
    behind = [
        pair(ORIGIN, F.concat_ws(":", *place)),
        pair(VIA, via),
        *([pair(TABLE, ours("used"))] if pipeline.tables_from else []),
    ]
    # `array_compact` would need one array only, but Spark would not compile its elements.
    traced = F.array(*before, pair(TRACEPARENT, trace), *behind)
    return F.when(trace.isNotNull(), traced).otherwise(F.array(*before, *behind))


def _kept(rows: DataFrame) -> list[Column]:
    """All columns that are not members of the event."""
    seen = columns_of(rows)
    return [column(name) for name in rows.columns if name not in seen]


def with_fate(rows: DataFrame, is_so: Column, fate: str) -> DataFrame:
    # Each decision is a named column, so that Spark merges several such steps into one projection.
    return rows.withColumn(f"{OURS}fate", F.coalesce(ours("fate"), F.when(is_so, fate)))
