"""Reads a stream's events as columns, without opening each of them.

Almost every event is delivered at the first attempt, which needs only its bytes and, for the
receipt, three numbers. The envelopes of events are made only when the events fail.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

from shared.event.envelope import (
    ACCEPTED_AT,
    EVENT_ID,
    EVENT_TIME,
    TRACEPARENT,
    Envelope,
    event_id_of,
    trace_of,
)
from shared.event.record import Headers, KafkaPartition, Origin, RecordIn
from shared.event.topics import stream_of
from shared.proof.receipt import CoveredOffsets, Facts, cover

# The core reads at most this many digits as a number; 13 are enough until the year 2286.
_TIME_DIGITS_MAX = 18


class KafkaRecord(Protocol):
    """A record as the Kafka client decodes it."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records of one Kafka partition in offset order, as they came from the log."""

    where: KafkaPartition
    records: Sequence[KafkaRecord]

    @property
    def first(self) -> Origin | None:
        return Origin(*self.where, self.records[0].offset) if self.records else None

    def opened(self) -> list[RecordIn]:
        """Return the records; Kafka's null values become empty ones."""
        return [
            RecordIn(
                origin=Origin(*self.where, record.offset),
                timestamp_ms=record.timestamp,
                key=record.key,
                value=record.value or b"",
                headers=_without_nulls(record.headers),
            )
            for record in self.records
        ]


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events of one Kafka partition. Made by `columns_of`."""

    fetched: FetchedRecords
    offsets: list[int]
    values: list[bytes]
    event_times_ms: list[int]
    accepted_ats_ms: list[int]
    # Where each value begins among their bytes, and where the last one ends.
    value_starts: list[int]

    def __len__(self) -> int:
        return len(self.offsets)

    def json_body(self, first: int, end: int) -> bytes:
        """Return the same body as `join_body`: the events' own bytes, copied once."""
        values = self.values[first:end]
        values[0] = b"[" + values[0]
        values[-1] += b"]"
        return b",".join(values)

    def facts(self, first: int, end: int) -> Facts:
        """Return the facts that the receipt of these events needs."""
        offsets = self.offsets[first:end]
        if offsets[-1] - offsets[0] == end - first - 1:
            covered: tuple[CoveredOffsets, ...] = (
                CoveredOffsets(*self.fetched.where, offsets[0], offsets[-1] + 1),
            )
        else:
            covered = cover([(*self.fetched.where, offset) for offset in offsets])
        return Facts(covered, self.event_times_ms[first:end], self.accepted_ats_ms[first:end])

    def traceparents(self, first: int, end: int) -> Iterator[str]:
        """Yield the traces of these events, each once."""
        records = self.fetched.records[first:end]
        # The headers after the three that every record has.
        raw = dict.fromkeys(header[1] or b"" for each in records for header in each.headers[3:])
        return filter(None, map(trace_of, raw))

    def envelopes(self, first: int, end: int) -> list[Envelope]:
        """Return the same envelopes as `open_stream_record`, one for each of these events."""
        stream = stream_of(self.fetched.where.topic)
        records = self.fetched.records[first:end]
        times = self.event_times_ms[first:end], self.accepted_ats_ms[first:end]
        return [
            Envelope(
                origin=(origin := Origin(*self.fetched.where, record.offset)),
                value=record.value or b"",
                key=record.key,
                stream=stream,
                event_id=event_id_of(record.headers[0][1] or b"", origin),
                event_time_ms=event_time_ms,
                accepted_at_ms=accepted_at_ms,
                traceparent=trace_of(record.headers[3][1] or b"")
                if len(record.headers) > 3  # noqa: PLR2004 - after the three that all have
                else None,
            )
            for record, event_time_ms, accepted_at_ms in zip(records, *times, strict=True)
        ]


def columns_of(fetched: FetchedRecords) -> EventColumns | None:
    """Return the events as columns; None if a record is not as the gateway writes it."""
    offsets, values = [], []
    event_times, accepted_ats = [], []
    try:
        for record in fetched.records:
            (id_name, _), (event_name, event_time), (accepted_name, accepted_at), *trace = (
                record.headers
            )
            value = record.value
            if (
                not value
                or id_name != EVENT_ID
                or event_name != EVENT_TIME
                or accepted_name != ACCEPTED_AT
                or (trace and (len(trace) > 1 or trace[0][0] != TRACEPARENT))
            ):
                return None
            offsets.append(record.offset)
            values.append(value)
            event_times.append(_number(event_time))
            accepted_ats.append(_number(accepted_at))
    except ValueError:
        return None
    # With growing offsets, the ends of a slice show whether it has gaps.
    if any(after <= before for before, after in pairwise(offsets)):
        return None
    value_starts = list(accumulate(map(len, values), initial=0))
    return EventColumns(fetched, offsets, values, event_times, accepted_ats, value_starts)


def _number(digits: bytes | None) -> int:
    """Return a number written in digits; ValueError if it is anything else."""
    if digits is None or not digits.isdigit() or len(digits) > _TIME_DIGITS_MAX:
        raise ValueError("not a number of ours")
    return int(digits)


def _without_nulls(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    return tuple((name, value or b"") for name, value in headers)
