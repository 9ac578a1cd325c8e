"""Makes a Spark plan of a pipeline: the only way from records of its stream to rows for Kafka.

Every event takes each step, whatever becomes of it: one that is filtered or cannot be read carries
its fate along and leaves as a row too, so that all are accounted for. Nothing here shuffles, so
that the rows of an event stay together, in the order of its stream.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.members import members_of
from pipelines.shards import NO_SHARDS, Partitionings, partition_at
from shared.config.pipeline import FACTS, Explode, Key, Pipeline, Select, Step, ToStream, Where
from shared.event.derived import HOPS_MAX, ORIGIN, VIA
from shared.event.envelope import ACCEPTED_AT, EVENT_BYTES_MAX, EVENT_ID, EVENT_TIME, TRACEPARENT
from shared.event.topics import stream_topic
from shared.proof.receipt import PASSED
from shared.runtime.spark.session import map_arrow

# What an event may become: so many rows, and so many bytes in all of them.
ROWS_MAX = 1_000
ROWS_BYTES_MAX = 16 * EVENT_BYTES_MAX
# What a record may have of value and key, as much as the gateway takes: our headers have a few
# hundred bytes of what is left.
RECORD_BYTES_MAX = 1_040_000

FILTERED = "filtered"
DEAD = "dead"
# Whose rows go nowhere.
NOT_PASSED = (FILTERED,)
# Why an event is a dead letter.
NOT_READABLE = "not_readable"
TOO_MANY_ROWS = "too_many_rows"
TOO_LARGE = "too_large"
TOO_MANY_HOPS = "too_many_hops"
UNKNOWN_SHARD = "unknown_shard"
BY_PIPELINE = "by_pipeline"

_HEADERS = "headers array<struct<key: string, value: binary>>"
# What a plan takes: of Spark's Kafka source what it needs.
RECORDS = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    f" {_HEADERS}"
)
# What it gives: the rows of an event are numbered, and have one outcome. Of a dead letter, key,
# value and headers are those of the event itself.
ROWS = (
    "partition int, offset bigint, nth int, outcome string, reason string, event_time_ms bigint,"
    f" accepted_at_ms bigint, topic string, to_partition int, key binary, value binary, {_HEADERS}"
)
# Ours begin so among the columns of a plan; no member that is read does.
OURS = f"{FACTS}:"
_CORRUPT = f"{OURS}corrupt"
_READING = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
}
_TIME_PATTERN = "^-?[0-9]{1,18}$"
_DIGITS_MAX = 18
# Between these Spark's times can be reckoned with: the years 1 and 9999.
_TIMES_MS = (-62_135_596_800_000, 253_402_300_799_999)
# As long as an id or a trace that Hifi writes can be (see envelope.py).
_TEXT_BYTES_MAX = 8_192
# A trace has 55 characters; a longer one is somebody's mistake, and goes no further.
_TRACE_BYTES_MAX = 512


def planned(
    pipeline: Pipeline, records: DataFrame, streams: Partitionings = NO_SHARDS
) -> DataFrame:
    """The rows that become of records: columns as in ROWS, at least one row for each record.

    What goes to one of these streams goes where its shard is.
    """
    rows = opened(pipeline, records)
    for step in pipeline.steps:
        rows = after(step, rows)
    rows = _written(pipeline, rows, streams)
    _check_closed(rows)
    return map_arrow(rows, whole_events, ROWS) if pipeline.explodes else rows


def _check_closed(rows: DataFrame) -> None:
    """No expression may hold a statement: whoever has not judged them finds out here."""
    if not rows._jdf.queryExecution().analyzed().subqueriesAll().isEmpty():  # noqa: SLF001 - no other way
        raise ValueError("there is a statement within an expression")


def opened(pipeline: Pipeline, records: DataFrame) -> DataFrame:
    """The events as they come: their members, and what Hifi knows of them."""
    kept = {name: F.col(name) for name in ("topic", "partition", "offset", "key", "headers")}
    value = F.coalesce("value", F.lit(b""))
    # Of two headers of one name the last counts, as in Kafka's own `lastHeader`.
    known = {"known": F.map_from_entries("headers")}
    rows = records.select(*_named(**kept, value=value, **known), F.col("timestamp"))
    via = _known(VIA).cast("string")
    too_far = F.when(F.size(F.split(via, ",")) >= HOPS_MAX, TOO_MANY_HOPS)
    fate = F.when(F.find_in_set(F.lit(pipeline.name), via) > 0, FILTERED).otherwise(too_far)
    rows = rows.select(
        *(_ours(name).alias(f"{OURS}{name}") for name in (*kept, "value")),
        *_named(
            fate=F.when(via.isNotNull(), fate),
            via=via,
            trace=_known(TRACEPARENT),
            event_id=_event_id(),
            event_time_ms=_time_ms(_known(EVENT_TIME)),
            accepted_at_ms=_time_ms(_known(ACCEPTED_AT)),
            at=F.lit(0),
            count=F.lit(1),
        ),
    )
    facts = F.struct(
        _ours("event_id").alias("event_id"),
        _timestamp(_ours("event_time_ms")).alias("event_time"),
        _timestamp(_ours("accepted_at_ms")).alias("accepted_at"),
        _ours("key").cast("string").alias("key"),
        _ours("value").cast("string").alias("text"),
    )
    rows = rows.withColumns({FACTS: facts, f"{OURS}out_key": _ours("key")})
    return _read(rows, members_of(pipeline.schema)) if pipeline.schema else rows


def after(step: Step, rows: DataFrame) -> DataFrame:
    """The events after one more step."""
    match step:
        case Where():
            return _with_fate(rows, ~F.coalesce(F.expr(step.where), F.lit(False)), FILTERED)
        case Select():
            made = [_alive(F.expr(text)).alias(name) for name, text in step.select.items()]
            return rows.select(*_kept(rows), *made)
        case Explode():
            ((name, text),) = step.explode.items()
            return _exploded(rows, name, F.expr(text))
        case Key():
            key = F.expr(step.key).cast("string").cast("binary")
            return rows.withColumn(f"{OURS}out_key", _alive(key))


def whole_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Has all rows of an event leave, or none of them: they may have ended differently."""
    schema: pa.Schema | None = None

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal schema
        for batch in batches:
            schema = batch.schema
            yield from batch.to_pylist()

    for _, event in groupby(rows(), key=lambda row: (row["partition"], row["offset"])):
        yield pa.RecordBatch.from_pylist(settled(event), schema)


def settled(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one event that count, numbered: one that is dead, or those that passed."""
    passed: list[dict[str, Any]] = []
    filtered: list[dict[str, Any]] = []
    for row in rows:
        if row["outcome"] == DEAD:
            # Each holds the whole event: no second one is kept in memory.
            return [{**row, "nth": 0}]
        if row["outcome"] == PASSED:
            passed.append(row)
        elif not filtered:
            filtered.append(row)
    return [{**row, "nth": nth} for nth, row in enumerate(passed or filtered)]


def columns_of(rows: DataFrame) -> list[str]:
    """The columns that people see: the members of the event as it is by now."""
    return [name for name in rows.columns if name != FACTS and not name.startswith(OURS)]


def _read(rows: DataFrame, members: StructType) -> DataFrame:
    """With the members of the event; one that cannot be read as such has its fate."""
    shape = StructType([*members.fields, StructField(_CORRUPT, StringType())])
    read = F.from_json(_alive(_ours("value").cast("string")), shape, _READING)
    kept = [name for name in rows.columns if name != f"{OURS}fate"]
    rows = rows.withColumn(f"{OURS}event", read)
    is_broken = _ours("event").isNull() | _ours("event").getField(_CORRUPT).isNotNull()
    fate = F.coalesce(_ours("fate"), F.when(is_broken, NOT_READABLE)).alias(f"{OURS}fate")
    columns = [_ours("event").getField(name).alias(name) for name in members.fieldNames()]
    return rows.select(*map(column, kept), fate, *columns)


def _exploded(rows: DataFrame, name: str, elements: Column) -> DataFrame:
    rows = rows.withColumn(f"{OURS}list", _alive(elements))
    count = F.coalesce(F.size(_ours("list")), F.lit(0))
    fate = F.when(count < 1, FILTERED).when(count > ROWS_MAX, TOO_MANY_ROWS)
    rows = rows.withColumns({f"{OURS}count": count, f"{OURS}fate": F.coalesce(_ours("fate"), fate)})
    others = [
        column(each) for each in rows.columns if each not in {f"{OURS}at", f"{OURS}list", name}
    ]
    each = F.posexplode_outer(_alive(_ours("list"))).alias(f"{OURS}at", name)
    return rows.select(*others, each)


def _written(pipeline: Pipeline, rows: DataFrame, streams: Partitionings) -> DataFrame:
    """The events as they leave, each to its outputs."""
    value = _ours("value")
    if pipeline.rewrites:
        made = F.to_json(F.struct(*(column(name) for name in columns_of(rows))))
        value = _alive(made).cast("binary")
    wants = [
        F.lit(True) if output.when is None else F.coalesce(F.expr(output.when), F.lit(False))
        for output in pipeline.to
    ]
    is_one = pipeline.takes_first or len(pipeline.to) == 1
    chosen = _first(wants) if is_one else _all(wants)
    rows = rows.withColumns({f"{OURS}out_value": value, f"{OURS}to": _alive(chosen)})
    rows = rows.withColumns(
        {
            f"{OURS}place:{nth}": _alive(partition_at(streams[output.stream], _ours("out_value")))
            for nth, output in _sharded(pipeline, streams)
        }
    )
    fate = _last_fate(pipeline, streams, is_one=is_one)
    rows = rows.withColumns({f"{OURS}fate": fate, f"{OURS}row": F.lit(0)})
    if not is_one:
        kept = [column(name) for name in rows.columns if name not in {f"{OURS}to", f"{OURS}row"}]
        each = F.posexplode_outer(_alive(_ours("to"))).alias(f"{OURS}row", f"{OURS}to")
        rows = rows.select(*kept, each)
    return rows.select(*_row(pipeline, streams))


def _sharded(pipeline: Pipeline, streams: Partitionings) -> list[tuple[int, ToStream]]:
    """The outputs to streams of shards, with their numbers."""
    return [
        (nth, output)
        for nth, output in enumerate(pipeline.to)
        if isinstance(output, ToStream) and output.stream in streams
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
    return F.array_compact(F.array(*(F.when(wanted, nth) for nth, wanted in enumerate(wants))))


def _last_fate(pipeline: Pipeline, streams: Partitionings, *, is_one: bool) -> Column:
    """What becomes of an event now that it is known what it is, and who wants it."""
    to = _ours("to")
    size = F.octet_length(_ours("out_value")) + F.coalesce(
        F.octet_length(_ours("out_key")), F.lit(0)
    )
    size_max = F.least(F.lit(RECORD_BYTES_MAX), F.floor(F.lit(ROWS_BYTES_MAX) / _ours("count")))
    fate = F.when(to.isNull() if is_one else F.size(to) < 1, FILTERED)

    def is_wanted(nth: int) -> Column:
        return to == nth if is_one else F.array_contains(to, nth)

    for nth, output in enumerate(pipeline.to):
        if not isinstance(output, ToStream):
            fate = fate.when(is_wanted(nth), BY_PIPELINE)
    for nth, _ in _sharded(pipeline, streams):
        fate = fate.when(is_wanted(nth) & _ours(f"place:{nth}").isNull(), UNKNOWN_SHARD)
    return F.coalesce(_ours("fate"), fate.when(size > size_max, TOO_LARGE))


def _row(pipeline: Pipeline, streams: Partitionings) -> list[Column]:
    """The columns of ROWS."""
    fate, is_passed = _ours("fate"), _ours("fate").isNull()
    is_dead = fate.isNotNull() & (fate != FILTERED)
    nth = F.coalesce(_ours("at"), F.lit(0)) * len(pipeline.to) + F.coalesce(_ours("to"), F.lit(0))
    topic = F.when(F.lit(False), F.lit(""))
    for to, output in enumerate(pipeline.to):
        if isinstance(output, ToStream):
            topic = topic.when(_ours("to") == to, stream_topic(output.stream))
    place = F.when(F.lit(False), F.lit(0))
    for to, _ in _sharded(pipeline, streams):
        place = place.when(_ours("to") == to, _ours(f"place:{to}"))

    def either(passed: Column, dead: Column) -> Column:
        return F.when(is_passed, passed).when(is_dead, dead)

    return [
        _ours("partition").alias("partition"),
        _ours("offset").alias("offset"),
        F.coalesce(_ours("row"), F.lit(0)).alias("nth"),
        F.when(is_passed, PASSED).when(is_dead, DEAD).otherwise(FILTERED).alias("outcome"),
        F.when(is_dead, fate).alias("reason"),
        _ours("event_time_ms").alias("event_time_ms"),
        _ours("accepted_at_ms").alias("accepted_at_ms"),
        F.when(is_passed, topic).alias("topic"),
        F.when(is_passed, place).alias("to_partition"),
        either(_ours("out_key"), _ours("key")).alias("key"),
        either(_ours("out_value"), _ours("value")).alias("value"),
        either(_headers(pipeline, nth), _ours("headers")).alias("headers"),
    ]


def _headers(pipeline: Pipeline, nth: Column) -> Column:
    """What is known of an event that was made: in the order in which all are written."""
    place = (_ours("topic"), _ours("partition"), _ours("offset"))
    made_by = F.lit(f"{pipeline.name}/{pipeline.generation}")
    event_id = F.sha2(F.concat_ws("/", made_by, *place, nth), 256)
    for to, output in enumerate(pipeline.to):
        if isinstance(output, ToStream) and output.repost:
            event_id = F.when(_ours("to") == to, _ours("event_id")).otherwise(event_id)
    trace = F.when(F.octet_length(_ours("trace")).between(1, _TRACE_BYTES_MAX), _ours("trace"))
    via = F.concat_ws(",", F.nullif(_ours("via"), F.lit("")), F.lit(pipeline.name))
    return F.array_compact(
        F.array(
            _pair(EVENT_ID, event_id),
            _pair(EVENT_TIME, _ours("event_time_ms").cast("string")),
            _pair(ACCEPTED_AT, _ours("accepted_at_ms").cast("string")),
            F.when(trace.isNotNull(), _pair(TRACEPARENT, trace)),
            _pair(ORIGIN, F.concat_ws(":", *place)),
            _pair(VIA, via),
        )
    )


def _pair(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _ours(name: str) -> Column:
    return column(OURS + name)


def column(name: str) -> Column:
    """The column of that name, whatever is in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def _named(**columns: Column) -> list[Column]:
    return [column.alias(f"{OURS}{name}") for name, column in columns.items()]


def _kept(rows: DataFrame) -> list[Column]:
    """All that is not a member of the event."""
    seen = columns_of(rows)
    return [column(name) for name in rows.columns if name not in seen]


def _alive(made: Column) -> Column:
    """Only for events that are still on their way: the others have no use for it."""
    return F.when(_ours("fate").isNull(), made)


def _with_fate(rows: DataFrame, is_so: Column, fate: str) -> DataFrame:
    # What is decided is named once, so that Spark makes one projection of several such steps.
    return rows.withColumn(f"{OURS}fate", F.coalesce(_ours("fate"), F.when(is_so, fate)))


def _known(name: str) -> Column:
    """The header of this name, as bytes."""
    return _ours("known").getItem(name)


def _event_id() -> Column:
    """As `event_id_of` reads it."""
    raw = _known(EVENT_ID)
    is_one = F.octet_length(raw).between(1, _TEXT_BYTES_MAX)
    place = F.concat_ws(":", _ours("topic"), _ours("partition"), _ours("offset"))
    return F.coalesce(F.when(is_one, F.try_validate_utf8(raw.cast("string"))), place)


def _time_ms(raw: Column) -> Column:
    """As `open_stream_record` reads it: the record's own time where a header says none."""
    text = raw.cast("string")
    number = text.cast("bigint")
    # As we write it; whoever writes it otherwise has it looked at more closely.
    is_plain = (number.cast("string") == text) & (F.length(text) <= _DIGITS_MAX)
    written = F.when(is_plain | text.rlike(_TIME_PATTERN), number)
    return F.coalesce(written, F.unix_millis(F.col("timestamp")))


def _timestamp(at_ms: Column) -> Column:
    return F.when(at_ms.between(*_TIMES_MS), F.timestamp_millis(at_ms))
