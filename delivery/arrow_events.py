"""Reads a stream's events without opening each of them: by Arrow column, not by record.

Almost every event is delivered at the first try. All that is needed of it then are its bytes and,
for the receipt, three numbers. The envelopes of events that fail are made when they fail.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from shared.event.envelope import (
    ACCEPTED_AT,
    EVENT_ID,
    EVENT_TIME,
    TRACEPARENT,
    Envelope,
    event_id_of,
    trace_of,
)
from shared.event.record import Origin, RecordIn
from shared.event.topics import stream_of
from shared.proof.receipt import Covered, Facts, cover

# The headers of a record as the gateway writes it; a trace follows if the caller had one.
_REGULAR = (EVENT_ID, EVENT_TIME, ACCEPTED_AT)
# As many as the core reads as a number; 13 are enough until the year 2286.
_TIME_DIGITS_MAX = 18
# For fewer rows the columns cost more than the envelopes (measured: they are equal at 20).
_ROWS_MIN = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The events of an Arrow batch, which come from one Kafka partition. Made by `columns_of`."""

    batch: pa.RecordBatch
    topic: str
    partition: int
    offsets: list[int]
    event_times_ms: list[int]
    accepted_ats_ms: list[int]
    # Where each value begins in its column's buffer, and where the last one ends.
    value_starts: list[int]

    def __len__(self) -> int:
        return self.batch.num_rows

    def cut(self, *, count_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
        """Where `chunks` would cut these events for a JSON array."""
        starts = self.value_starts
        first = 0
        while first < len(self):
            end = min(first + count_max, len(self))
            # Each event has a comma or the closing bracket behind it, and there is one before all.
            end_max = bytes_max - 1 + starts[first] + first
            if starts[end] + end > end_max:
                # As many as keep to the size, or one event.
                ends = range(end)
                end = bisect_right(ends, end_max, lo=first + 2, key=lambda at: starts[at] + at) - 1
            yield first, end
            first = end

    def json_body(self, first: int, end: int) -> bytes:
        """What `join_body` makes of these events: their own bytes, copied once."""
        column: Any = self.batch.column("value")
        values: list[bytes] = column.slice(first, end - first).to_pylist()
        values[0] = b"[" + values[0]
        values[-1] += b"]"
        return b",".join(values)

    def facts(self, first: int, end: int) -> Facts:
        """What their receipt needs to know."""
        offsets = self.offsets[first:end]
        if offsets[-1] - offsets[0] == end - first - 1:
            covered: tuple[Covered, ...] = (
                Covered(self.topic, self.partition, offsets[0], offsets[-1] + 1),
            )
        else:
            covered = cover([(self.topic, self.partition, offset) for offset in offsets])
        return Facts(covered, self.event_times_ms[first:end], self.accepted_ats_ms[first:end])

    def envelopes(self, first: int, end: int) -> list[Envelope]:
        """What `open_stream_record` makes of each of these events."""
        rows = self.batch.slice(first, end - first)
        headers: Any = rows.column("headers")
        header_values = headers.flatten().field("value").to_pylist()
        widths = headers.value_lengths().to_pylist()
        stream = stream_of(self.topic)
        columns = (
            rows.column("value").to_pylist(),
            rows.column("key").to_pylist(),
            self.offsets[first:end],
            self.event_times_ms[first:end],
            self.accepted_ats_ms[first:end],
            accumulate(widths[:-1], initial=0),
            widths,
        )
        return [
            Envelope(
                origin=(origin := Origin(self.topic, self.partition, offset)),
                value=value,
                key=key,
                stream=stream,
                event_id=event_id_of(header_values[start], origin),
                event_time_ms=event_time_ms,
                accepted_at_ms=accepted_at_ms,
                traceparent=trace_of(header_values[start + len(_REGULAR)])
                if width > len(_REGULAR)
                else None,
            )
            for value, key, offset, event_time_ms, accepted_at_ms, start, width in zip(
                *columns, strict=True
            )
        ]


def columns_of(rows: pa.RecordBatch | Sequence[RecordIn]) -> EventColumns | None:
    """The events as columns; None if a record is not as the gateway writes it, or they are few."""
    if not isinstance(rows, pa.RecordBatch) or rows.num_rows < _ROWS_MIN:
        return None
    batch = rows
    topics, partitions = pc.unique(batch.column("topic")), pc.unique(batch.column("partition"))
    times = _times_of(batch.column("headers"))
    offsets = _whole_numbers(batch.column("offset"))
    value_starts = _starts(batch.column("value"))
    if times is None or value_starts is None or len(topics) != 1 or len(partitions) != 1:
        return None
    # Then the ends of a slice say whether it has gaps.
    if any(after <= before for before, after in pairwise(offsets)):
        return None
    return EventColumns(
        batch, topics[0].as_py(), partitions[0].as_py(), offsets, *times, value_starts
    )


def _times_of(headers: Any) -> tuple[list[int], list[int]] | None:
    """Event times and acceptance times; None if any record has other headers than the gateway's."""
    starts = headers.offsets.slice(0, len(headers))
    widths = pc.unique(headers.value_lengths()).to_pylist()
    if not set(widths) <= {len(_REGULAR), len(_REGULAR) + 1}:
        return None
    names, values = headers.values.field("key"), headers.values.field("value")
    for at, name in enumerate(_REGULAR):
        if pc.unique(names.take(pc.add(starts, at))).to_pylist() != [name]:
            return None
    if len(_REGULAR) + 1 in widths:
        traced = pc.filter(starts, pc.equal(headers.value_lengths(), pa.scalar(len(_REGULAR) + 1)))
        if pc.unique(names.take(pc.add(traced, len(_REGULAR)))).to_pylist() != [TRACEPARENT]:
            return None
    event_times = _digits(values.take(pc.add(starts, 1)))
    accepted_ats = _digits(values.take(pc.add(starts, 2)))
    return None if event_times is None or accepted_ats is None else (event_times, accepted_ats)


def _digits(column: Any) -> list[int] | None:
    """Numbers written in digits; None if one is anything else."""
    if column.null_count or pc.max(pc.binary_length(column)).as_py() > _TIME_DIGITS_MAX:
        return None
    try:
        texts = column.cast(pa.string())
        if not pc.all(pc.ascii_is_decimal(texts)).as_py():
            return None
        return _whole_numbers(texts.cast(pa.int64()))
    except pa.ArrowInvalid:
        return None


def _whole_numbers(column: Any) -> list[int]:
    """A column of 64-bit numbers, ten times as fast as value by value."""
    numbers = memoryview(column.buffers()[1]).cast("q")
    return numbers[column.offset : column.offset + len(column)].tolist()


def _starts(column: Any) -> list[int] | None:
    """Where each value begins; None if one is missing or empty, which is not its own JSON."""
    if column.null_count or pc.min(pc.binary_length(column)).as_py() == 0:
        return None
    starts = memoryview(column.buffers()[1]).cast("i")
    return starts[column.offset : column.offset + len(column) + 1].tolist()
