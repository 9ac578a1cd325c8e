"""Converts Spark's rows, with the columns of its Kafka source, to records for the core."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

from shared.event.record import Headers, Origin, RecordIn

# The columns of Spark's Kafka source, without `timestampType`.
_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
COLUMNS_IN = tuple(_TYPES)
SCHEMA_IN = pa.schema(_TYPES)


def records_of(rows: pa.RecordBatch) -> Iterator[RecordIn]:
    """Yield the records of an Arrow batch, in order."""
    columns = (
        rows.column("topic").to_pylist(),
        rows.column("partition").to_pylist(),
        rows.column("offset").to_pylist(),
        rows.column("timestamp").cast(pa.int64()).to_pylist(),
        rows.column("key").to_pylist(),
        rows.column("value").to_pylist(),
        headers_of(rows.column("headers")),
    )
    for topic, partition, offset, time_us, key, value, headers in zip(*columns, strict=True):
        yield RecordIn(
            origin=Origin(topic, partition, offset),
            timestamp_ms=time_us // 1000,
            key=key,
            # A record without a value (somebody's tombstone) is an event of no bytes.
            value=b"" if value is None else value,
            headers=headers,
        )


def headers_of(column: Any) -> Iterator[Headers]:
    """Yield each row's headers from the flat child arrays: far cheaper than a dict per header."""
    names = column.values.field("key").to_pylist()
    values = column.values.field("value").to_pylist()
    ends = column.offsets.to_pylist()
    for start, end in pairwise(ends):
        yield tuple(
            (name, value or b"")
            for name, value in zip(names[start:end], values[start:end], strict=True)
        )
