"""Has Spark tasks hand events to targets outside Kafka, and brings back what they report.

A pipeline whose output is a sink has jobs of its own, as its target may be slow or away. Such a job
takes three steps (ADR 0084):

1. The range of each Kafka partition is stored with the position before anything is written. After
   a crash the *same* range is repeated, never a longer one.
2. Each task opens the sink's writer and hands it the events of its Kafka partitions, each in order.
   The writer returns two things for the driver: reports, in a form of its own, and events that it
   refuses, which become dead letters.
3. The driver makes records of the reports. They are stored with receipts and position in one Kafka
   transaction.

A writer whose target does not answer raises `SinkAwayError`: its range is tried again after longer
and longer waits, and no event is blamed. A writer may get the same range again, whether or not the
last attempt succeeded, so it must itself know which events it has written.
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

# The results of a task: rows with a topic are for Kafka, the others for the driver.
TOLD = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>,"
    " said string"
)
_FOR_KAFKA = ("topic", "key", "value", "headers")


class SinkAwayError(Exception):
    """The sink's target takes nothing at the moment; the text is for people, without secrets."""

    def __init__(self, why: str, *, is_wrongly_set: bool = False) -> None:
        super().__init__(why)
        # If true, the target answers, but somebody has to change the document, or the target.
        self.is_wrongly_set = is_wrongly_set


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """An event that the sink will never take; it becomes a dead letter."""

    # A row of SINK_COLUMNS.
    event: dict[str, Any]
    reason: str
    why: str = ""


Said: TypeAlias = "str | RefusedEvent"


class SinkWriter(Protocol):
    """The writer that a task hands its events to."""

    def take(self, events: pa.RecordBatch) -> Iterable[Said]:
        """Take events of one Kafka partition in order, with the columns of SINK_COLUMNS.

        Once events of another partition come, the previous partition has no more.
        """

    def end(self) -> Iterable[Said]:
        """End the writing: no more events come. Return once all of them are stored."""


class Sink(Protocol):
    """The target of a pipeline's events. It travels to the tasks, so it holds plain values."""

    @property
    def tasks(self) -> int:
        """How many tasks run at once: a waiting task occupies its place in Spark."""

    def open(self, ranges: Ranges) -> AbstractContextManager[SinkWriter]:
        """Open a writer, in a task, for the job's ranges of Kafka partitions."""

    def records(self, ranges: Ranges, reports: Sequence[str]) -> Iterable[RecordOut]:
        """Return, in the driver, the records to store with receipts and position after writing."""


@dataclass(frozen=True, slots=True)
class SinkKind:
    """How pipelines reach one kind of output, which `Pipeline.sink.member` names."""

    gathering: Gathering
    # Takes the pipeline, and the id of its stream's topic.
    # It may raise SinkAwayError: the target that the document names may be unavailable.
    made: Callable[[Pipeline, str], Sink]
    # Takes the pipeline, and the error that its job has ended with, or None.
    ended: Callable[[Pipeline, Exception | None], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class TaskReports:
    """The reports of a job's tasks."""

    reports: list[str] = field(default_factory=list)
    # Keyed by the dead letters' reason, and the events' Kafka partition.
    refused: dict[tuple[str, KafkaPartition], Offsets] = field(default_factory=dict)


def handed_over(rows: DataFrame, sink: Sink, pipeline: Pipeline, ranges: Ranges) -> DataFrame:
    """Rows as in TOLD, from a plan's rows in which dead events are already dead letters."""
    hand = partial(hand_over, sink=sink, lane=pipeline.lane_id, ranges=ranges)
    return map_arrow(rows.coalesce(sink.tasks), hand, TOLD)


def hand_over(
    batches: Iterable[pa.RecordBatch], *, sink: Sink, lane: str, ranges: Ranges
) -> Iterator[pa.RecordBatch]:
    """Hand the rows of a task to the sink's writer."""
    rest = iter(batches)
    if (first := next(rest, None)) is None:
        return
    telling = _Telling(first.schema, lane, next(iter(ranges)).topic)
    try:
        with sink.open(ranges) as writer:
            for batch in chain([first], rest):
                yield from _taken(writer, batch, telling)
            yield from telling.of(writer.end())
    except SinkAwayError as away:
        # Read the rest and drop it: to Spark, a task that stops reading has failed.
        for _ in rest:
            pass
        wrong = {"is_wrongly_set": True} if away.is_wrongly_set else {}
        yield telling.said({"away": str(away), **wrong})


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

    def _letter(self, refused: RefusedEvent) -> pa.RecordBatch:
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


def heard(pipeline: Pipeline, said: Iterable[str]) -> TaskReports:
    """Collect the rows for the driver; raise SinkAwayError if a task's target was away."""
    handed, topic = TaskReports(), stream_topic(pipeline.source.stream)
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
