"""Folds records into evidence, Merkle roots and named events, within a Spark task.

It runs in Spark's Python workers, and without Spark. What comes back is one small row a task.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from observe.audit.arrow_ids import root_of_lines
from observe.audit.evidence import Evidence
from shared.event.envelope import open_stream_record
from shared.event.record import KafkaPartition
from shared.proof.acked import AckedRow, audited_minute
from shared.proof.intervals import Offsets
from shared.runtime.spark.arrow_rows import headers_of, records_of

# Kinds of records besides those of `observe.audit.minutes`.
LEDGER, RECEIPT = "ledger", "receipt"
_COORDINATES = ("topic", "partition", "offset", "value")
# The one column that every task answers with.
PART = "part binary"


def summarise(
    batches: Iterable[pa.RecordBatch], *, kinds: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Evidence out of records; `kinds` says by topic what they are."""
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
    yield _part(evidence.to_bytes())


def name(
    batches: Iterable[pa.RecordBatch],
    *,
    wanted: Mapping[str, set[int]],
    spans: Mapping[KafkaPartition, list[tuple[int, int]]],
    extra: Mapping[tuple[str, int], Sequence[str]],
) -> Iterator[pa.RecordBatch]:
    """Roots over the ids of minutes, and the ids of single offsets.

    There is one such task, which sees all rows of a minute.
    """
    # Ids as the ledger has them: a line each.
    minutes: dict[tuple[str, int], list[bytes]] = {}
    asked = {where: Offsets.of(offsets) for where, offsets in spans.items()}
    single: list[tuple[str, int, int, str]] = []
    for batch in batches:
        for value in batch.column("value").to_pylist():
            head, _, ids = (value or b"").partition(b"\n")
            try:
                row = AckedRow.from_bytes(head)
            except (ValueError, KeyError, TypeError):
                # As when it was read for its claims: nothing is known of its events.
                continue
            _take_row(row, ids, minutes, wanted.get(row.topic, ()))
            offsets = asked.get(KafkaPartition(row.topic, row.partition))
            if offsets is not None:
                single += _single(row, ids, offsets)
    roots = []
    for (topic, minute), lines in minutes.items():
        root, count = root_of_lines(lines, extra.get((topic, minute), ()))
        roots.append((topic, minute, root.hex(), count))
        lines.clear()
    yield _part(json.dumps({"roots": roots, "ids": single}).encode())


def _take_row(
    row: AckedRow,
    ids: bytes,
    minutes: dict[tuple[str, int], list[bytes]],
    wanted: Iterable[int],
) -> None:
    claimed = {minute for minute, _, _ in row.claims()}
    ours = claimed.intersection(wanted)
    if not ids:
        return
    if len(claimed) == 1 and ours:
        # Nearly every row: its ids are not even taken apart.
        minutes.setdefault((row.topic, claimed.pop()), []).append(ids)
    elif ours:
        lines = ids.split(b"\n")
        at = 0
        for minute, first, end in row.claims():
            if minute in ours:
                part = b"\n".join(lines[at : at + end - first])
                minutes.setdefault((row.topic, minute), []).append(part)
            at += end - first


def _single(row: AckedRow, ids: bytes, asked: Offsets) -> Iterator[tuple[str, int, int, str]]:
    lines: list[bytes] = []
    at = 0
    for _, first, end in row.claims():
        for low, high in asked.within(first, end):
            lines = lines or ids.split(b"\n")
            for offset in range(low, high):
                yield row.topic, row.partition, offset, lines[at + offset - first].decode()
        at += end - first


def look(
    batches: Iterable[pa.RecordBatch], *, spans: Mapping[KafkaPartition, list[tuple[int, int]]]
) -> Iterator[pa.RecordBatch]:
    """Those of some offsets that the log has."""
    wanted = {where: Offsets.of(offsets) for where, offsets in spans.items()}
    events = []
    for batch in batches:
        for record in records_of(batch):
            origin = record.origin
            if origin.offset in wanted[KafkaPartition(origin.topic, origin.partition)]:
                event = open_stream_record(record)
                minute = audited_minute(event.event_time_ms, event.accepted_at_ms)
                place = (origin.topic, origin.partition, origin.offset)
                events.append((*place, event.event_id, minute, event.accepted_at_ms))
    yield _part(json.dumps(events).encode())


def _part(value: bytes) -> pa.RecordBatch:
    fields = pa.schema([pa.field("part", pa.binary())])
    return pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], schema=fields)
