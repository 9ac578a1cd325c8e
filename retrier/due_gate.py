"""Shows Spark those waiting events whose tier's delay has passed, and no other.

A streaming source of our own. Its newest offset is not the end of a tier's topic but the place
where records stop being old enough, so nothing sleeps, nothing is rewritten while it waits, and
Spark's checkpoint records the position. Records are stamped by the broker (LogAppendTime), so
within a Kafka partition they become due in their order; and the broker is asked what time it is,
so that no clock of ours can make an event early.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from retrier.broker import broker
from shared.event.topics import is_of_parked
from shared.runtime.kafka.spark_options import by_partition, by_topic
from shared.runtime.setup_error import KafkaUnavailableError
from shared.runtime.spark.arrow_rows import SCHEMA_IN, batch_in

# An election takes seconds. A Kafka that is away for longer than this is a failure to be seen: the
# query ends, and its keeper says so and starts it again.
_AWAY_S_MAX = 30.0

# As many Kafka partitions' worth of events is what a micro-batch has room for.
_MICRO_BATCH_PARTITIONS = 2
# The least that parked events get of what others may.
_PARKED_PART = 10

# What Spark keeps in its checkpoint: {topic: {partition: offset}}, as its own Kafka source does.
SparkOffsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class DueRange(InputPartition):
    """The due records of one Kafka partition: one Spark task."""

    topic: str
    partition: int
    start: int
    end: int


class DueGateSource(DataSource):
    """Registered with Spark under its name; options are strings, as Spark has them."""

    @classmethod
    def name(cls) -> str:
        return "hifi_due_gate"

    def schema(self) -> str:
        return SCHEMA_IN

    def streamReader(self, schema: object) -> "DueGate":  # noqa: ARG002, N802 - Spark's interface
        return DueGate(
            bootstrap_servers=self.options["bootstrap_servers"],
            delays_s=json.loads(self.options["delays_s"]),
            events_max=int(self.options["events_max"]),
            begin=json.loads(self.options["begin"]),
        )


class DueGate(DataSourceStreamReader):
    """Reads each tier's topic up to what is due, and not more than `events_max` at a time."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        delays_s: Mapping[str, float],
        events_max: int,
        begin: SparkOffsets,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._delays_s = delays_s
        self._events_max = events_max
        # Where a lane goes on that has lost its checkpoint.
        self._begin = by_partition(begin)
        self._heard_s = time.monotonic()

    def initialOffset(self) -> SparkOffsets:  # noqa: N802 - Spark's interface
        starts = broker(self._bootstrap_servers).starts(list(self._delays_s))
        return by_topic({**starts, **self._begin})

    def latestOffset(self, start: SparkOffsets, limit: object) -> SparkOffsets:  # noqa: ARG002, N802
        kafka = broker(self._bootstrap_servers)
        try:
            now_ms = kafka.now_ms()
            ends = kafka.due_ends(
                {topic: now_ms - round(delay_s * 1000) for topic, delay_s in self._delays_s.items()}
            )
        except KafkaUnavailableError:
            if time.monotonic() - self._heard_s > _AWAY_S_MAX:
                raise
            # An election: nothing is known to be due, and the query need not die of it.
            return start
        self._heard_s = time.monotonic()
        return bounded(start, by_topic(ends), events_max=self._events_max)

    def partitions(self, start: SparkOffsets, end: SparkOffsets) -> list[DueRange]:
        return due_ranges(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, DueRange), "Spark gives back what partitions() made"
        due = broker(self._bootstrap_servers).read(
            partition.topic, partition.partition, partition.start, partition.end
        )
        for records in due:
            yield batch_in(records)


def bounded(start: SparkOffsets, due: SparkOffsets, *, events_max: int) -> SparkOffsets:
    """How far the next micro-batch goes: never back, and not further than `events_max`.

    What was parked may be a crowd of one destination's: it has the room that what was tried leaves,
    and a tenth in any case.
    """
    ends = by_partition(due)
    # A Kafka partition that is new since then starts at its beginning.
    begins = {**dict.fromkeys(ends, 0), **by_partition(start)}
    counts = {where: max(0, ends.get(where, at) - at) for where, at in begins.items()}
    tried = [min(count, events_max) for w, count in counts.items() if not is_of_parked(w.topic)]
    parked = [count for where, count in counts.items() if count and is_of_parked(where.topic)]
    room = _MICRO_BATCH_PARTITIONS * events_max - sum(tried)
    share = room // max(1, len(parked))
    parked_max = max(1, events_max // _PARKED_PART, min(events_max, share))
    return by_topic(
        {
            where: at + min(counts[where], parked_max if is_of_parked(where.topic) else events_max)
            for where, at in begins.items()
        }
    )


def due_ranges(start: SparkOffsets, end: SparkOffsets) -> list[DueRange]:
    """The Kafka partitions that have something due between two positions."""
    begins = by_partition(start)
    return [
        DueRange(*where, begin, to_offset)
        for where, to_offset in sorted(by_partition(end).items())
        if (begin := begins.get(where, 0)) < to_offset
    ]
