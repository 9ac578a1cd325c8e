"""Decides how a task's rows are opened, whichever way they came.

A micro-batch has them as Spark's Arrow batches; a real-time task, which has few at a time, unpacks
each as it comes.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa

from delivery import arrow_events
from delivery.arrow_events import EventColumns
from shared.event.envelope import Envelope, open_stream_record
from shared.event.record import Origin, RecordIn
from shared.runtime.spark import arrow_rows

Rows: TypeAlias = pa.RecordBatch | Sequence[RecordIn]


def columns_of(rows: Rows) -> EventColumns | None:
    """Events that need not be opened one by one; None if they are not such, or few."""
    return arrow_events.columns_of(rows) if isinstance(rows, pa.RecordBatch) else None


def envelopes_of(rows: Rows) -> list[Envelope]:
    """The events of a stream."""
    if isinstance(rows, pa.RecordBatch):
        return arrow_rows.envelopes_of(rows)
    return [open_stream_record(record) for record in rows]


def records_of(rows: Rows) -> Iterable[RecordIn]:
    return arrow_rows.records_of(rows) if isinstance(rows, pa.RecordBatch) else rows


def first_place(rows: Rows) -> Origin | None:
    """Where the first row was read; a task reads one Kafka partition, in its order."""
    if not isinstance(rows, pa.RecordBatch):
        return rows[0].origin if rows else None
    if not rows.num_rows:
        return None
    columns = (rows.column(name) for name in ("topic", "partition", "offset"))
    return Origin(*(column[0].as_py() for column in columns))
