"""Turns records into evidence, Merkle roots and named events, within a Spark task.

The functions run in Spark's Python workers, but need no Spark. Each task returns one small row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec
import pyarrow as pa

from observe.audit.evidence import Evidence, unite
from observe.audit.ids.arrow_ids import root_of_lines
from observe.audit.ids.log_ids import LogIds, RowIds
from shared.event.derived import VIA
from shared.event.envelope import open_stream_record
from shared.event.record import KafkaPartition
from shared.proof.acked import AckedRow, audited_minute
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root
from shared.runtime.spark.arrow_rows import headers_of, records_of

# Kinds of records besides those of `observe.audit.minutes`.
LEDGER, RECEIPT = "ledger", "receipt"
_COORDINATES = ("topic", "partition", "offset", "value")
# Reads the ids that the log has at some offsets.
ReadIds: TypeAlias = Callable[[Mapping[KafkaPartition, Offsets]], LogIds]
# The only column of every task's result.
PART = "part binary"


@dataclass(frozen=True, slots=True)
class MinuteRoots:
    """The roots over the ids of minutes, and the ids at single requested offsets."""

    roots: Mapping[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    # By topic, partition and offset: ids in the order of the claims.
    ids: Mapping[tuple[str, int, int], list[str]] = field(default_factory=dict)
    # The number of each minute's events that were found in the log; and the offsets at which the
    # log has another event, with the minute and the id that the ledger has there.
    compared: Mapping[tuple[str, int], int] = field(default_factory=dict)
    wrong: Mapping[tuple[str, int, int], tuple[int, str]] = field(default_factory=dict)

    def with_roots(self, only: Mapping[tuple[str, int], Sequence[str]]) -> "MinuteRoots":
        """Return a copy with roots of minutes that no row of the ledger covers."""
        made = {
            key: (merkle_root(ids), len(set(ids)))
            for key, ids in only.items()
            if key not in self.roots
        }
        return replace(self, roots={**made, **self.roots})


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """Consecutive events of one minute in the log."""

    where: KafkaPartition
    first: int
    minute: int
    # The latest moment at which one of them was accepted.
    accepted_at_ms: int
    ids: list[str]
    # Whether a pipeline wrote them.
    is_derived: bool = False

    @property
    def end(self) -> int:
        return self.first + len(self.ids)


def summarise(
    batches: Iterable[pa.RecordBatch], *, kinds: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Turn records into evidence; `kinds` has the kind of the records of each topic."""
    evidence = Evidence()
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in _COORDINATES)
        headers = headers_of(batch.column("headers"))
        for topic, partition, offset, value, record_headers in zip(*columns, headers, strict=True):
            kind = kinds[topic]
            if kind == LEDGER:
                evidence.take_ledger(value or b"", partition=partition, offset=offset)
            elif kind == RECEIPT:
                evidence.take_sheet(value or b"")
            else:
                evidence.take_record(kind, record_headers)
    yield _part(evidence)


def name(
    batches: Iterable[pa.RecordBatch],
    *,
    wanted: frozenset[tuple[str, int]],
    spans: Mapping[KafkaPartition, list[tuple[int, int]]],
    extra: Mapping[tuple[str, int], Sequence[str]],
    compare: Mapping[tuple[str, int], Mapping[int, list[tuple[int, int]]]],
    read_ids: ReadIds,
) -> Iterator[pa.RecordBatch]:
    """Find the roots of minutes, the ids at single offsets, and rows that the log contradicts.

    Only one task runs this, so that it sees all rows of a minute. `compare` has the offsets of each
    minute at which to compare the ids of the log with the ledger's.
    """
    # Ids as in the ledger: one in each line.
    minutes: dict[tuple[str, int], list[bytes]] = {}
    asked = {where: Offsets.of(offsets) for where, offsets in spans.items()}
    ids_at: dict[tuple[str, int, int], list[str]] = {}
    beside = _Comparison(compare)
    for batch in batches:
        for value in batch.column("value").to_pylist():
            head, _, ids = (value or b"").partition(b"\n")
            try:
                row = AckedRow.from_bytes(head)
            except ValueError:
                # Its claims were unreadable as well, so nothing is known about its events.
                continue
            _take_row(row, ids, minutes, wanted)
            beside.take(row, ids)
            offsets = asked.get(KafkaPartition(row.topic, row.partition))
            if offsets is not None:
                for offset, event_id in _single(row, ids, offsets):
                    ids_at.setdefault((row.topic, row.partition, offset), []).append(event_id)
    roots = {}
    for minute, lines in minutes.items():
        roots[minute] = root_of_lines(lines, extra.get(minute, ()))
        lines.clear()
    yield _part(MinuteRoots(roots, ids_at, *beside.laid(read_ids(beside.wanted))))


def _take_row(
    row: AckedRow,
    ids: bytes,
    minutes: dict[tuple[str, int], list[bytes]],
    wanted: frozenset[tuple[str, int]],
) -> None:
    claimed = {(row.topic, minute) for minute, _, _ in row.claims()}
    ours = claimed & wanted
    if not ids:
        return
    if len(claimed) == 1 and ours:
        # This is nearly every row: no need to split its ids.
        minutes.setdefault(claimed.pop(), []).append(ids)
    elif ours:
        lines = ids.split(b"\n")
        at = 0
        for minute, first, end in row.claims():
            if (row.topic, minute) in ours:
                part = b"\n".join(lines[at : at + end - first])
                minutes.setdefault((row.topic, minute), []).append(part)
            at += end - first


class _Comparison:
    """The ledger's ids at the offsets to compare with the log."""

    def __init__(
        self, compare: Mapping[tuple[str, int], Mapping[int, list[tuple[int, int]]]]
    ) -> None:
        self._asked = {
            minute: {partition: Offsets.of(spans) for partition, spans in places.items()}
            for minute, places in compare.items()
        }
        self._rows: dict[tuple[str, int, int], RowIds] = {}

    @property
    def wanted(self) -> dict[KafkaPartition, Offsets]:
        """The offsets to compare, of all minutes together."""
        wanted: dict[KafkaPartition, Offsets] = {}
        for (topic, _), places in self._asked.items():
            unite(wanted, {KafkaPartition(topic, at): spans for at, spans in places.items()})
        return wanted

    def take(self, row: AckedRow, ids: bytes) -> None:
        claims = list(row.claims())
        minutes = {minute for minute, _, _ in claims}
        parts = [
            (self._asked.get((row.topic, minute), {}).get(row.partition), minute)
            for minute in minutes
        ]
        if not ids or not any(offsets for offsets, _ in parts):
            return
        ((asked, minute), *more) = parts
        spans = [(first, end) for _, first, end in claims]
        if not more and asked is not None and Offsets.of(spans).minus(asked) == Offsets():
            # This is nearly every row: no need to split its ids.
            self._of(row, minute).add(spans, ids)
            return
        lines, at = ids.split(b"\n"), 0
        for minute, first, end in claims:
            asked = self._asked.get((row.topic, minute), {}).get(row.partition, Offsets())
            for low, high in asked.within(first, end):
                part = b"\n".join(lines[at + low - first : at + high - first])
                self._of(row, minute).add([(low, high)], part)
            at += end - first

    def _of(self, row: AckedRow, minute: int) -> RowIds:
        return self._rows.setdefault((row.topic, minute, row.partition), RowIds())

    def laid(
        self, log: LogIds
    ) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int, int], tuple[int, str]]]:
        """Return the number of each minute's events in the log, and offsets with another event."""
        compared: dict[tuple[str, int], int] = {}
        wrong: dict[tuple[str, int, int], tuple[int, str]] = {}
        for (topic, minute, partition), rows in self._rows.items():
            count, odd = rows.beside(log, KafkaPartition(topic, partition))
            compared[topic, minute] = compared.get((topic, minute), 0) + count
            for offset, event_id in odd.items():
                wrong[topic, partition, offset] = (minute, event_id)
        return compared, wrong


def _single(row: AckedRow, ids: bytes, asked: Offsets) -> Iterator[tuple[int, str]]:
    lines: list[bytes] = []
    at = 0
    for _, first, end in row.claims():
        for low, high in asked.within(first, end):
            lines = lines or ids.split(b"\n")
            for offset in range(low, high):
                yield offset, lines[at + offset - first].decode()
        at += end - first


def look(
    batches: Iterable[pa.RecordBatch], *, spans: Mapping[KafkaPartition, list[tuple[int, int]]]
) -> Iterator[pa.RecordBatch]:
    """Return the events that the log has at some offsets; records come in order."""
    wanted = {where: Offsets.of(offsets) for where, offsets in spans.items()}
    runs: list[LoggedRun] = []
    for batch in batches:
        for record in records_of(batch):
            origin = record.origin
            where = origin.log
            if origin.offset in wanted[where]:
                event = open_stream_record(record)
                minute = audited_minute(event.event_time_ms, event.accepted_at_ms)
                names = {name for name, _ in record.headers}
                one = LoggedRun(
                    where, origin.offset, minute, event.accepted_at_ms, [event.event_id],
                    VIA in names,
                )  # fmt: skip
                if runs and _are_one(runs[-1], one):
                    runs[-1].ids.append(event.event_id)
                    latest_ms = max(runs[-1].accepted_at_ms, one.accepted_at_ms)
                    runs[-1] = replace(runs[-1], accepted_at_ms=latest_ms)
                else:
                    runs.append(one)
    yield _part(runs)


def _are_one(run: LoggedRun, more: LoggedRun) -> bool:
    return (run.where, run.end, run.minute, run.is_derived) == (
        more.where, more.first, more.minute, more.is_derived,
    )  # fmt: skip


def _part(content: Evidence | MinuteRoots | list[LoggedRun]) -> pa.RecordBatch:
    """Return the content as MessagePack, as JSON has no keys of several parts."""
    value = msgspec.msgpack.encode(content)
    return pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], names=["part"])
