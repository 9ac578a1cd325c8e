"""Has tasks of Spark's hand events to somewhere else than Kafka, and brings back what they say.

A pipeline whose output is a sink has jobs of its own, as what is elsewhere may be slow or away. How
such a job goes (ADR 0084):

1. The range of each Kafka partition is stored with the position before anything is written. After
   a crash the *same* range is done again, never a longer one.
2. Each task opens the sink's writer and hands it the events of its Kafka partitions, each in its
   order. The writer answers with what the driver has to know: reports, in its own words, and events
   that it refuses, which become dead letters.
3. The driver makes records of the reports. They are stored with receipts and position in one
   transaction of Kafka's.

A writer that finds nobody at home raises `SinkAwayError`: its range is tried again, later each
time, and no event is blamed for it. A writer may be asked for the same range again whatever came of
it before, and so has to know by itself what it has written.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pipelines.jobs.letters import letter_of
from pipelines.lanes.gathering import Gathering
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Origin, Ranges, RecordIn, RecordOut
from shared.event.topics import DEAD, stream_topic
from shared.proof.intervals import Offsets
from shared.proof.receipt import PASSED
from shared.runtime.spark.session import map_arrow

# What comes of a task: rows with a topic are for Kafka, the others for the driver.
TOLD = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>,"
    " said string"
)
_FOR_KAFKA = ("topic", "key", "value", "headers")


class SinkAwayError(Exception):
    """What is elsewhere does not take anything just now: a word for people, without secrets."""

    def __init__(self, why: str, *, is_wrongly_set: bool = False) -> None:
        super().__init__(why)
        # It is there and well: somebody has to change what the document says, or what it finds.
        self.is_wrongly_set = is_wrongly_set


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that the sink will never take; it rests as a dead letter."""

    # A row of SINK_COLUMNS.
    event: dict[str, Any]
    reason: str
    why: str = ""


Said: TypeAlias = "str | Refused"


class SinkWriter(Protocol):
    """What a task hands its events to."""

    def take(self, events: pa.RecordBatch) -> Iterable[Said]:
        """Some events of one Kafka partition, as in SINK_COLUMNS, in their order.

        When those of another come, the one before has no more.
        """

    def end(self) -> Iterable[Said]:
        """There are no more events; once this returns, all are where they should be."""


class Sink(Protocol):
    """Where the events of a pipeline go. It travels to the tasks, so it holds plain values."""

    @property
    def tasks(self) -> int:
        """So many at once: while they wait, their places in Spark are nobody else's."""

    def open(self, ranges: Ranges) -> AbstractContextManager[SinkWriter]:
        """In a task, for what the job has of each Kafka partition."""

    def records(self, ranges: Ranges, reports: Sequence[str]) -> Iterable[RecordOut]:
        """In the driver, once all is written: what is stored with receipts and position."""


@dataclass(frozen=True, slots=True)
class SinkKind:
    """How pipelines get to one kind of output: by what `Pipeline.sink.member` names."""

    gathering: Gathering
    # May raise SinkAwayError: what its document names may not be there just now.
    # With the id of its stream's topic.
    made: Callable[[Pipeline, str], Sink]
    # How a job of a pipeline has ended: without an error, or with that.
    ended: Callable[[Pipeline, Exception | None], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Handed:
    """What the tasks of a job have said."""

    reports: list[str] = field(default_factory=list)
    # By why they rest, and where they were.
    refused: dict[tuple[str, KafkaPartition], Offsets] = field(default_factory=dict)


def handed_over(rows: DataFrame, sink: Sink, pipeline: Pipeline, ranges: Ranges) -> DataFrame:
    """Rows as in TOLD, of those of a plan in which dead events are dead letters already."""
    hand = partial(hand_over, sink=sink, lane=pipeline.lane_id, ranges=ranges)
    return map_arrow(rows.coalesce(sink.tasks), hand, TOLD)


def hand_over(
    batches: Iterable[pa.RecordBatch], *, sink: Sink, lane: str, ranges: Ranges
) -> Iterator[pa.RecordBatch]:
    """What a task does."""
    rest = iter(batches)
    if (first := next(rest, None)) is None:
        return
    told = _Telling(first.schema, lane, next(iter(ranges)).topic)
    try:
        with sink.open(ranges) as writer:
            for batch in chain([first], rest):
                yield from _taken(writer, batch, told)
            yield from told.of(writer.end())
    except SinkAwayError as away:
        # What is left is read for nothing: Spark takes a task that stops reading for broken.
        for _ in rest:
            pass
        wrong = {"is_wrongly_set": True} if away.is_wrongly_set else {}
        yield told.said({"away": str(away), **wrong})


def _taken(writer: SinkWriter, batch: pa.RecordBatch, told: "_Telling") -> Iterator[pa.RecordBatch]:
    is_passed = pc.equal(batch.column("outcome"), pa.scalar(PASSED))
    passed = batch.filter(is_passed)
    if dead := batch.num_rows - passed.num_rows:
        yield told.passed_by(batch.filter(pc.invert(is_passed)), dead)
    at = 0
    for _, run in groupby(passed.column("partition").to_pylist()):
        count = sum(1 for _ in run)
        yield from told.of(writer.take(passed.slice(at, count)))
        at += count


@dataclass(frozen=True, slots=True)
class _Telling:
    """Makes rows as in TOLD."""

    given: pa.Schema
    lane: str
    topic: str

    @property
    def _schema(self) -> pa.Schema:
        fields = [self.given.field(name) for name in _FOR_KAFKA]
        return pa.schema([*fields, pa.field("said", pa.string())])

    def passed_by(self, letters: pa.RecordBatch, count: int) -> pa.RecordBatch:
        columns = [letters.column(name) for name in _FOR_KAFKA]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.nulls(count, pa.string())], schema=self._schema
        )

    def said(self, what: dict[str, Any]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"said": json.dumps(what)}], self._schema)

    def of(self, answers: Iterable[Said]) -> Iterator[pa.RecordBatch]:
        for answer in answers:
            if isinstance(answer, str):
                yield self.said({"report": answer})
            else:
                yield self._letter(answer)
                event = answer.event
                yield self.said({"refused": [answer.reason, event["partition"], event["offset"]]})

    def _letter(self, refused: Refused) -> pa.RecordBatch:
        event = refused.event
        came = event["origin"] or event
        headers = tuple((each["key"], each["value"] or b"") for each in came["headers"] or ())
        record = RecordIn(
            Origin(self.topic, event["partition"], event["offset"]),
            event["time_ms"],
            came["key"],
            came["value"] or b"",
            headers,
        )
        letter = letter_of(record, self.lane, reason=refused.reason, why=refused.why)
        row = {
            "topic": DEAD,
            "key": letter.key,
            "value": letter.value,
            "headers": [{"key": name, "value": raw} for name, raw in letter.headers],
        }
        return pa.RecordBatch.from_pylist([row], self._schema)


def heard(pipeline: Pipeline, said: Iterable[str]) -> Handed:
    """What the rows for the driver come to; SinkAwayError if a task found nobody."""
    handed, topic = Handed(), stream_topic(pipeline.source.stream)
    for each in map(json.loads, said):
        if "away" in each:
            raise SinkAwayError(each["away"], is_wrongly_set=each.get("is_wrongly_set", False))
        if "report" in each:
            handed.reports.append(each["report"])
        else:
            reason, partition, offset = each["refused"]
            where = KafkaPartition(topic, partition)
            offsets = handed.refused.setdefault((reason, where), Offsets())
            offsets.add(offset, offset + 1)
    return handed
