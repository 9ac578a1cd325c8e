"""A task hands a sink the events of each Kafka partition, and reports the rest to the driver."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from pipelines.jobs.sink import RefusedEvent, Said, SinkAwayError, hand_over, heard
from shared.config.pipeline import Pipeline
from shared.event.envelope import ORIGIN_OFFSET, REASON
from shared.event.record import KafkaPartition, Ranges, RecordOut
from shared.event.topics import DEAD, stream_topic
from shared.proof.intervals import Offsets

PIPELINE = Pipeline.of({"name": "p", "from": {"stream": "s"}, "to": [{"stream": "t"}]})
TOPIC = stream_topic("s")
RANGES = {KafkaPartition(TOPIC, number): (0, 10) for number in range(2)}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_EVENT = [("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS)]
_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("outcome", pa.string()),
    pa.field("topic", pa.string()),
    *(pa.field(name, kind) for name, kind in _EVENT),
    pa.field("time_ms", pa.int64()),
    pa.field("origin", pa.struct(_EVENT)),
]
SCHEMA = pa.schema(_FIELDS)


@dataclass
class KeepingSink:
    """A sink that keeps its events, and refuses odd offsets of the second Kafka partition."""

    is_away: bool = False
    tasks: int = 1
    taken: list[list[tuple[int, int]]] = field(default_factory=list)

    @contextmanager
    def open(self, ranges: Ranges) -> Iterator["KeepingSink"]:
        assert ranges == RANGES
        yield self

    def take(self, events: pa.RecordBatch) -> Iterable[Said]:
        rows = events.to_pylist()
        self.taken.append([(row["partition"], row["offset"]) for row in rows])
        if self.is_away:
            raise SinkAwayError("nobody is there")
        for row in rows:
            if row["partition"] and row["offset"] % 2:
                yield RefusedEvent(row, "odd", "we take even ones")

    def end(self) -> Iterable[Said]:
        yield f"{sum(map(len, self.taken))} kept"

    def records(self, _: Ranges, reports: Sequence[str]) -> Iterable[RecordOut]:
        return [RecordOut("told", None, report.encode()) for report in reports]


def row(partition: int, offset: int, outcome: str = "passed") -> dict[str, Any]:
    is_dead = outcome == "dead"
    return {
        "partition": partition,
        "offset": offset,
        "outcome": outcome,
        "topic": DEAD if is_dead else None,
        "value": b"letter" if is_dead else b"made",
        "headers": [],
        "time_ms": 5,
        "origin": {"key": b"k", "value": b"came", "headers": None},
    }


def handed(sink: KeepingSink, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    batches = [pa.RecordBatch.from_pylist(list(rows), SCHEMA)] if rows else []
    told = hand_over(batches, sink=sink, lane=PIPELINE.lane_id, ranges=RANGES)
    return [row for batch in told for row in batch.to_pylist()]


def test_events_come_by_kafka_partition_and_dead_letters_pass_by() -> None:
    sink = KeepingSink()
    told = handed(sink, row(0, 1), row(0, 2, "dead"), row(0, 3), row(1, 0))
    assert sink.taken == [[(0, 1), (0, 3)], [(1, 0)]]
    assert [each["value"] for each in told if each["topic"] == DEAD] == [b"letter"]
    assert [each["said"] for each in told if each["said"]] == ['{"report": "3 kept"}']


def test_what_a_sink_refuses_is_the_letter_of_the_event_as_it_came() -> None:
    told = handed(KeepingSink(), row(1, 0), row(1, 1))
    (letter,) = (each for each in told if each["topic"] == DEAD)
    headers = {each["key"]: each["value"] for each in letter["headers"]}
    assert (letter["value"], headers[REASON], headers[ORIGIN_OFFSET]) == (b"came", b"odd", b"1")
    found = heard(PIPELINE, [each["said"] for each in told if each["said"]])
    assert found.refused == {("odd", KafkaPartition(TOPIC, 1)): Offsets.of([(1, 2)])}
    assert found.reports == ["2 kept"]


def test_a_sink_that_is_away_is_told_to_the_driver_and_the_rest_is_read() -> None:
    batch = pa.RecordBatch.from_pylist([row(0, 1)], SCHEMA)
    rest = iter([batch, batch, batch])
    told = list(
        hand_over(rest, sink=KeepingSink(is_away=True), lane=PIPELINE.lane_id, ranges=RANGES)
    )
    assert next(rest, None) is None
    said = [json.loads(each["said"]) for part in told for each in part.to_pylist()]
    assert said == [{"away": "nobody is there"}]
    with pytest.raises(SinkAwayError, match="nobody is there"):
        heard(PIPELINE, map(json.dumps, said))


def test_where_nothing_passes_no_sink_is_opened() -> None:
    assert handed(KeepingSink(is_away=True)) == []
