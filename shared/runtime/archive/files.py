"""Writes and reads the objects of archives: Parquet, so that others can read them too."""

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shared.event.record import KafkaPartition
from shared.runtime.spark.arrow_rows import SCHEMA_IN

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("offset", pa.int64()),
    # When Kafka got the event.
    pa.field("time_ms", pa.int64()),
    pa.field("event_id", pa.string()),
    pa.field("event_time_ms", pa.int64()),
    pa.field("accepted_at_ms", pa.int64()),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", _HEADERS),
]
SCHEMA = pa.schema(_FIELDS)
COLUMNS = SCHEMA.names


class UnreadableError(ValueError):
    """An object is not one of our Parquet files, or not a complete one."""


class ObjectFile:
    """An object that is being written."""

    def __init__(self) -> None:
        # Arrow's own buffer grows by doubling, and must be copied at the end.
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer,
            SCHEMA,
            compression="zstd",
            use_dictionary=False,
            write_statistics=["offset", "time_ms", "event_time_ms"],
            write_page_checksum=True,
        )

    def add(self, events: pa.RecordBatch) -> None:
        self._writer.write_batch(events)

    def end(self, said: Mapping[str, str]) -> bytes:
        """Return the complete object, with its metadata."""
        self._writer.add_key_value_metadata(dict(said))
        self._writer.close()
        return self._buffer.getvalue()


def of_ours(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events with the columns of an object."""
    columns = [events.column(name).cast(SCHEMA.field(name).type) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def raw_bytes(events: pa.RecordBatch) -> list[int]:
    """Return the bytes of each event's key and value."""
    columns: list[Any] = [events.column(name) for name in ("key", "value")]
    sizes = [pc.binary_length(column).to_pylist() for column in columns]
    return [(key or 0) + (value or 0) for key, value in zip(*sizes, strict=True)]


def read_object(data: bytes, columns: Iterable[str] | None = None) -> pa.Table:
    """Read an object; raise UnreadableError if it is not readable."""
    try:
        return pq.read_table(
            pa.BufferReader(data),
            columns=None if columns is None else [*columns],
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(str(error).split("\n", 1)[0]) from error


def said_of(data: bytes) -> dict[str, str]:
    """Return the metadata in the object itself."""
    try:
        known = pq.read_metadata(pa.BufferReader(data)).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(str(error).split("\n", 1)[0]) from error
    return {
        name.decode(): value.decode() for name, value in known.items() if name != b"ARROW:schema"
    }


def require_same(one: bytes, other: bytes) -> None:
    """Raise UnreadableError if two objects have different events; their encodings may differ."""
    if not read_object(one).equals(read_object(other)):
        raise UnreadableError("it has other events")


def rows_of(events: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in events.to_batches(max_chunksize=1_000):
        yield from batch.to_pylist()


def log_rows(parts: Iterable[tuple[bytes, KafkaPartition, int, int]]) -> pa.Table:
    """Return the offsets [begin, end) of each object, with the columns of Spark's Kafka source."""
    tables = [SCHEMA_IN.empty_table()]
    for data, where, begin, end in parts:
        events = read_object(data)
        is_wanted = pc.and_(
            pc.greater_equal(events["offset"], pa.scalar(begin)),
            pc.less(events["offset"], pa.scalar(end)),
        )
        events = events.filter(is_wanted)
        columns = {
            "key": events["key"],
            "value": events["value"],
            "topic": pa.repeat(pa.scalar(where.topic), events.num_rows),
            "partition": pa.repeat(pa.scalar(where.partition), events.num_rows),
            "offset": events["offset"],
            "timestamp": events["time_ms"].cast(pa.timestamp("ms", tz="UTC")),
            "headers": events["headers"],
        }
        tables.append(pa.table(columns).cast(SCHEMA_IN))
    return pa.concat_tables(tables)
