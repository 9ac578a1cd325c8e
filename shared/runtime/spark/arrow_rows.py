"""Carries rows between Spark and the core: Arrow batches in, Arrow batches out.

The columns are those of Spark's Kafka source and sink; the due gate yields the same ones.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from shared.event.record import Headers, Origin, RecordIn, RecordOut

_HEADERS: pa.DataType = pa.list_(
    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
)

# What Spark's Kafka source gives, less `timestampType`.
COLUMNS_IN = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
# The same for a source of our own, in Spark's words.
SCHEMA_IN = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key: string, value: binary>>"
)
# What Spark's Kafka sink takes; the topic column sends each row where it belongs.
SCHEMA_OUT = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"
)
# The stubs of pyarrow do not know what pa.field returns.
_FIELDS_IN: list[Any] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("headers", _HEADERS),
]
_FIELDS_OUT: list[Any] = [
    pa.field("topic", pa.string()),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", _HEADERS),
]
ARROW_IN = pa.schema(_FIELDS_IN)
ARROW_OUT = pa.schema(_FIELDS_OUT)


def records_of(rows: pa.RecordBatch | Sequence[RecordIn]) -> Iterator[RecordIn]:
    """The records of an Arrow batch, in order; in real time they have been unpacked already."""
    if not isinstance(rows, pa.RecordBatch):
        yield from rows
        return
    batch = rows
    columns = (
        batch.column("topic").to_pylist(),
        batch.column("partition").to_pylist(),
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        headers_of(batch.column("headers")),
    )
    for topic, partition, offset, time_us, key, value, headers in zip(*columns, strict=True):
        yield RecordIn(
            origin=Origin(topic, partition, offset),
            timestamp_ms=time_us // 1000,
            key=key,
            # A record without a value (a tombstone somebody wrote) is an event of no bytes.
            value=b"" if value is None else value,
            headers=headers,
        )


def batch_of(records: Sequence[RecordOut]) -> pa.RecordBatch:
    """An Arrow batch for the Kafka sink."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.topic for record in records], pa.string()),
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.headers for record in records], _HEADERS),
        ],
        schema=ARROW_OUT,
    )


def batch_in(records: Sequence[RecordIn]) -> pa.RecordBatch:
    """An Arrow batch as the Kafka source would give it, for a source of our own."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.origin.topic for record in records], pa.string()),
            pa.array([record.origin.partition for record in records], pa.int32()),
            pa.array([record.origin.offset for record in records], pa.int64()),
            pa.array([record.timestamp_ms * 1000 for record in records], pa.int64()).cast(
                pa.timestamp("us", tz="UTC")
            ),
            pa.array([record.headers for record in records], _HEADERS),
        ],
        schema=ARROW_IN,
    )


def headers_of(column: Any) -> Iterator[Headers]:
    """Headers of each row, read from the flat child arrays: far cheaper than a dict per header."""
    names = column.values.field("key").to_pylist()
    values = column.values.field("value").to_pylist()
    ends = column.offsets.to_pylist()
    for start, end in pairwise(ends):
        yield tuple(
            (name, value or b"")
            for name, value in zip(names[start:end], values[start:end], strict=True)
        )
