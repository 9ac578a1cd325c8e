"""Reads the audit's records with Spark.

Each task turns the records it reads into intervals, roots and ids (`spark_tasks.py`), and returns
only these. The audit never reads an event's value. From the log it reads only ids, to compare them
with the ledger's.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from observe.audit.evidence import Evidence
from observe.audit.ids.log_reader import read_ids
from observe.audit.minutes import PASSED
from observe.audit.spark_tasks import PART, LoggedRun, MinuteRoots, look, name, summarise
from shared.event.record import KafkaPartition, Ranges
from shared.event.topics import ACKED, RECEIPTS
from shared.proof.intervals import Offsets
from shared.runtime.kafka.spark_options import range_options
from shared.runtime.spark.session import ArrowFunction, map_arrow

_COORDINATES = ("topic", "partition", "offset")
# A Kafka partition takes a task 0.3 s, mostly waiting. Two tasks share the waiting; more would take
# the lanes' cores when there is a backlog to read.
TASK_PLACES = 2
# The maximum number of unneeded ledger rows to read in order to save a source: a source costs
# 100 ms of planning, and a row some 100 µs.
_GAP_ROWS_MAX = 1_000
# A plan grows with its sources, so further stretches are joined.
_SOURCES_MAX = 8


class AuditReads:
    """The audit's reads with Spark."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str) -> None:
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers

    def gather(self, ranges: Mapping[str, Ranges]) -> Evidence:
        """Read records of several kinds, in one job; `ranges` is by kind."""
        # In a quiet minute a source costs more than its records: use one for everything read once.
        once = [(kind, spans) for kind, spans in ranges.items() if kind != PASSED and spans]
        evidence = Evidence()
        for parts in (once, [(PASSED, ranges.get(PASSED, {}))]):
            whole = {where: span for _, spans in parts for where, span in spans.items()}
            kinds = {topic: kind for kind, spans in parts for topic, _ in spans}
            if whole:
                rows = self._read(whole, *_COORDINATES, _ours(), "headers")
                for part in _collect(rows, partial(summarise, kinds=kinds), tasks=TASK_PLACES):
                    evidence.merge(msgspec.msgpack.decode(part, type=Evidence))
        return evidence

    def name(
        self,
        ledger: Mapping[int, Offsets],
        *,
        minutes: Collection[tuple[str, int]],
        offsets: Mapping[KafkaPartition, Offsets],
        extra: Mapping[tuple[str, int], Sequence[str]],
        compare: Mapping[tuple[str, int], Mapping[int, Offsets]],
    ) -> MinuteRoots:
        """Return roots over the ids of whole minutes (by topic), and the ids of single offsets.

        `ledger` has the records to read, by Kafka partition of the ledger; `compare` has the
        offsets of each minute at which to read the log as well.
        """
        sources = [self._read(ranges, "value") for ranges in stretches(ledger)]
        if not sources:
            return MinuteRoots()
        rows = reduce(DataFrame.union, sources)
        function = partial(
            name,
            wanted=frozenset(minutes),
            spans={where: list(asked) for where, asked in offsets.items()},
            extra=dict(extra),
            read_ids=partial(read_ids, self._bootstrap_servers),
            compare={
                minute: {at: list(spans) for at, spans in places.items()}
                for minute, places in compare.items()
            },
        )
        # One task, as it must see all rows of a minute.
        part = next(_collect(rows, function, tasks=1), None)
        return MinuteRoots() if part is None else msgspec.msgpack.decode(part, type=MinuteRoots)

    def look_up(self, wanted: Mapping[KafkaPartition, Offsets], log: Ranges) -> list[LoggedRun]:
        """Read the events at those of the offsets that exist in the log."""
        ranges: dict[KafkaPartition, tuple[int, int]] = {}
        for where, offsets in wanted.items():
            start, end = log.get(where, (0, 0))
            low, high = max(start, next(iter(offsets), (end, end))[0]), min(end, offsets.end)
            if low < high:
                ranges[where] = (low, high)
        if not ranges:
            return []
        columns = [f.lit(None).cast("binary").alias("key"), f.lit(b"").alias("value")]
        # Values belong to the customer and are not needed, so they are not transferred.
        frame = self._read(ranges, *columns, *_COORDINATES, "timestamp", "headers")
        spans = {where: list(offsets) for where, offsets in wanted.items()}
        return [
            run
            for part in _collect(frame, partial(look, spans=spans), tasks=TASK_PLACES)
            for run in msgspec.msgpack.decode(part, type=list[LoggedRun])
        ]

    def _read(self, ranges: Ranges, *columns: str | Column) -> DataFrame:
        """Read exactly these offsets."""
        options = {
            **range_options(self._bootstrap_servers, ranges),
            # The audit looks for lost records, so a lost record must not stop it.
            "failOnDataLoss": "false",
            "groupIdPrefix": "hifi-audit",
        }
        return self._spark.read.format("kafka").options(**options).load().select(*columns)


def _ours() -> Column:
    """Return a column with the values of receipts and, without their ids, of ledger rows."""
    text = f.col("value").cast("string")
    head_of_ledger = f.when(f.col("topic") == ACKED, f.substring_index(text, "\n", 1))
    return head_of_ledger.when(f.col("topic") == RECEIPTS, text).cast("binary").alias("value")


def stretches(ledger: Mapping[int, Offsets]) -> list[dict[KafkaPartition, tuple[int, int]]]:
    """Return ranges to read in order: all Kafka partitions' first stretches, then the second."""
    parts: list[dict[KafkaPartition, tuple[int, int]]] = []
    for partition, rows in ledger.items():
        spans = list(rows)
        gaps = sorted(later[0] - before[1] for before, later in pairwise(spans))
        # To stay within _SOURCES_MAX sources, join the spans with the smallest gaps.
        bridged = max([_GAP_ROWS_MAX, *gaps[: len(gaps) - _SOURCES_MAX + 1]])
        # Extended by that length, spans with such a gap touch and become one.
        longer = Offsets.of((first, end + bridged) for first, end in spans)
        for at, (first, end) in enumerate(longer):
            if at == len(parts):
                parts.append({})
            parts[at][KafkaPartition(ACKED, partition)] = (first, end - bridged)
    return parts


def _collect(rows: DataFrame, function: ArrowFunction, *, tasks: int) -> Iterator[bytes]:
    """Yield the results of `tasks` tasks; each reads its Kafka partitions in order."""
    for row in map_arrow(rows.coalesce(tasks), function, PART).collect():
        yield bytes(row[0])
