"""Decides how Spark reads what the audit needs: records become evidence where they are read.

Each task folds the records of one Kafka partition into intervals, ids and roots; only these few
come back. The audit reads no event's value, and of the log only what somebody seems to have lost.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from shared.acked import AckedRow, audited_minute
from shared.envelope import open_stream_record
from shared.evidence import Evidence
from shared.intervals import Offsets
from shared.merkle import merkle_root
from shared.record import Origin
from shared.runtime.arrow_rows import records_of
from shared.runtime.spark import map_arrow

Where = tuple[str, int]
# [first, end) of each Kafka partition that is to be read.
Ranges = Mapping[Where, tuple[int, int]]

LEDGER, RECEIPT = "ledger", "receipt"
_ONE = "part binary"


@dataclass(frozen=True, slots=True)
class Named:
    """The ids of one stream's minute, and of single offsets that somebody asked for."""

    roots: Mapping[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    # By topic, partition and offset: ids in the order in which they were claimed.
    ids: Mapping[tuple[str, int, int], list[str]] = field(default_factory=dict)

    def with_roots(self, only: Mapping[tuple[str, int], Sequence[str]]) -> "Named":
        """The same, with roots of minutes that no row of the ledger is about."""
        made = {key: (merkle_root(ids), len(set(ids))) for key, ids in only.items()}
        return Named({**made, **self.roots}, self.ids)


@dataclass(frozen=True, slots=True)
class Found:
    """An event that the log has."""

    where: Where
    offset: int
    event_id: str
    minute: int
    accepted_at_ms: int


class AuditJob:
    """What the audit asks Spark for."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str) -> None:
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers

    def gather(self, ranges: Mapping[str, Ranges]) -> Evidence:
        """Read records of several kinds, in one job; `ranges` is by kind."""
        frames = [
            map_arrow(
                _read(
                    self._spark,
                    self._bootstrap_servers,
                    found,
                    with_headers=kind not in {LEDGER, RECEIPT},
                ),
                partial(_summarise, kind=kind),
                _ONE,
            )
            for kind, found in ranges.items()
            if found
        ]
        evidence = Evidence()
        for part in _collect(frames):
            evidence.merge(Evidence.from_json(part))
        return evidence

    def name(
        self,
        ledger: Ranges,
        *,
        minutes: Mapping[str, Sequence[int]],
        offsets: Mapping[Where, Offsets],
        extra: Mapping[tuple[str, int], Sequence[str]],
    ) -> Named:
        """Roots over the ids of whole minutes (by topic), and the ids of single offsets."""
        wanted = {topic: set(found) for topic, found in minutes.items()}
        spans = {where: list(found) for where, found in offsets.items()}
        frames = [
            map_arrow(
                _read(self._spark, self._bootstrap_servers, ledger, with_headers=False),
                partial(_name, wanted=wanted, spans=spans, extra=dict(extra)),
                _ONE,
            )
        ]
        roots: dict[tuple[str, int], tuple[bytes, int]] = {}
        ids: dict[tuple[str, int, int], list[str]] = {}
        for part in _collect(frames if ledger else []):
            found = json.loads(part)
            for topic, minute, root, count in found["roots"]:
                roots[topic, minute] = (bytes.fromhex(root), count)
            for topic, partition, offset, event_id in found["ids"]:
                ids.setdefault((topic, partition, offset), []).append(event_id)
        return Named(roots, ids)

    def look_up(self, wanted: Mapping[Where, Offsets], log: Ranges) -> list[Found]:
        """Those of the offsets that the log has."""
        ranges: dict[Where, tuple[int, int]] = {}
        for where, offsets in wanted.items():
            start, end = log.get(where, (0, 0))
            low, high = max(start, next(iter(offsets), (end, end))[0]), min(end, offsets.end)
            if low < high:
                ranges[where] = (low, high)
        if not ranges:
            return []
        frame = _read(self._spark, self._bootstrap_servers, ranges, with_headers=True)
        spans = {where: list(offsets) for where, offsets in wanted.items()}
        return [
            Found((topic, partition), offset, event_id, minute, accepted_at_ms)
            for part in _collect([map_arrow(frame, partial(_look, spans=spans), _ONE)])
            for topic, partition, offset, event_id, minute, accepted_at_ms in json.loads(part)
        ]


def _read(
    spark: SparkSession, bootstrap_servers: str, ranges: Ranges, *, with_headers: bool
) -> DataFrame:
    """Just these offsets, a task for each Kafka partition."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (first, end) in ranges.items():
        starts.setdefault(topic, {})[str(partition)] = first
        ends.setdefault(topic, {})[str(partition)] = end
    assigned = {topic: sorted(map(int, found)) for topic, found in starts.items()}
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        # What is gone is the very thing that is looked for: it must not stop the reading.
        .option("failOnDataLoss", "false")
        .option("includeHeaders", str(with_headers).lower())
        .option("groupIdPrefix", "hifi-audit")
        .load()
    )
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    if with_headers:
        # Values are the customer's, and not needed: they do not travel.
        return frame.selectExpr(
            "cast(null as binary) as key", "cast('' as binary) as value", *columns[2:]
        )
    return frame.select("partition", "offset", "value")


def _collect(frames: Sequence[DataFrame]) -> Iterator[bytes]:
    if not frames:
        return
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    for row in whole.collect():
        yield bytes(row[0])


def _part(value: bytes) -> pa.RecordBatch:
    fields = pa.schema([pa.field("part", pa.binary())])
    return pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], schema=fields)


def _summarise(batches: Iterable[pa.RecordBatch], kind: str) -> Iterator[pa.RecordBatch]:
    evidence = Evidence()
    for batch in batches:
        if kind == LEDGER:
            for partition, offset, value in _rows(batch):
                evidence.take_ledger(value, partition=partition, offset=offset)
        elif kind == RECEIPT:
            for _, _, value in _rows(batch):
                evidence.take_receipt(value)
        else:
            for record in records_of(batch):
                evidence.take_record(kind, record.headers)
    yield _part(evidence.to_json())


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes]]:
    columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "value"))
    for partition, offset, value in zip(*columns, strict=True):
        yield partition, offset, value or b""


def _name(
    batches: Iterable[pa.RecordBatch],
    wanted: Mapping[str, set[int]],
    spans: Mapping[Where, list[tuple[int, int]]],
    extra: Mapping[tuple[str, int], Sequence[str]],
) -> Iterator[pa.RecordBatch]:
    """All rows of a stream's ledger are in one Kafka partition, so one task sees a whole minute."""
    minutes: dict[tuple[str, int], list[str]] = {}
    asked = {where: Offsets.of(found) for where, found in spans.items()}
    single: list[tuple[str, int, int, str]] = []
    for batch in batches:
        for _, _, value in _rows(batch):
            row = AckedRow.from_bytes(value)
            at = 0
            offsets = asked.get((row.topic, row.partition), Offsets())
            for minute, first, end in row.claims():
                ids = list(row.ids[at : at + end - first])
                at += end - first
                if minute in wanted.get(row.topic, ()):
                    minutes.setdefault((row.topic, minute), []).extend(ids)
                for low, high in offsets.within(first, end):
                    single += [
                        (row.topic, row.partition, offset, ids[offset - first])
                        for offset in range(low, high)
                    ]
    roots = []
    for (topic, minute), members in minutes.items():
        distinct = {*members, *extra.get((topic, minute), ())}
        roots.append((topic, minute, merkle_root(distinct).hex(), len(distinct)))
    yield _part(json.dumps({"roots": roots, "ids": single}).encode())


def _look(
    batches: Iterable[pa.RecordBatch], spans: Mapping[Where, list[tuple[int, int]]]
) -> Iterator[pa.RecordBatch]:
    wanted = {where: Offsets.of(found) for where, found in spans.items()}
    found = []
    for batch in batches:
        for record in records_of(batch):
            origin = record.origin
            if origin.offset in wanted[origin.topic, origin.partition]:
                event = open_stream_record(record)
                minute = audited_minute(event.event_time_ms, event.accepted_at_ms)
                found.append((*_place(origin), event.event_id, minute, event.accepted_at_ms))
    yield _part(json.dumps(found).encode())


def _place(origin: Origin) -> tuple[str, int, int]:
    return origin.topic, origin.partition, origin.offset
