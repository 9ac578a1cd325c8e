"""Spark makes dead letters of rows like `dead_headers` does, and labels possible repeats."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.jobs.dead_rows import with_dead_letters
from pipelines.jobs.job import MAYBE_DUPLICATE, labelled
from pipelines.lanes.portions import PipelinePortion
from pipelines.plan import NOT_READABLE, RECORDS, planned
from shared.event.envelope import (
    EVENT_BYTES_MAX,
    EVENT_ID,
    History,
    MalformedRecord,
    dead_headers,
    dead_value,
    event_headers,
    open_retry_record,
    open_stream_record,
)
from shared.event.record import Headers, KafkaPartition, Origin, RecordIn
from shared.event.topics import DEAD, stream_topic
from tests.support.pipelines.pipeline_runs import document

pytestmark = pytest.mark.integration

NOW_MS = 1_767_225_600_000
TOPIC = stream_topic("s")
PIPELINE = document(
    "p", "s", schema="n BIGINT", steps=[{"select": {"n": "n"}}], to=[{"stream": "t"}]
)
PLAIN = event_headers(event_id="e1", event_time_ms=5, accepted_at_ms=6, traceparent="00-ab-cd-01")
# None of these records is a readable event.
ODD: list[tuple[bytes | None, bytes, Headers]] = [
    (b"key", b"[1]", PLAIN),
    (None, b"no json", ()),
    (b"", b"\xff\x00", ((EVENT_ID, b"\xff"), ("event-time-ms", b"x"), ("accepted-at-ms", b"7"))),
    (b"\x00k", b"", ((EVENT_ID, b"first"), (EVENT_ID, b"last"))),
    (
        None,
        b"x" * (EVENT_BYTES_MAX + 10),
        event_headers(event_id="ä", event_time_ms=-1, accepted_at_ms=0),
    ),
]


def test_each_says_what_delivery_would_have_said(locked_spark: SparkSession) -> None:
    stored = datetime.fromtimestamp(NOW_MS / 1000, tz=UTC)
    given = [
        (TOPIC, 1, offset, stored, key, value, list(headers))
        for offset, (key, value, headers) in enumerate(ODD)
    ]
    rows = planned(PIPELINE, locked_spark.createDataFrame(given, RECORDS))
    found = with_dead_letters(rows, PIPELINE, now_ms=F.lit(NOW_MS)).orderBy("offset").collect()
    assert [row["outcome"] for row in found] == ["dead"] * len(ODD)
    history = History(1, 0, NOW_MS, NOW_MS, NOW_MS, cause=NOT_READABLE)
    for row, (key, value, headers) in zip(found, ODD, strict=True):
        envelope = open_stream_record(
            RecordIn(Origin(TOPIC, 1, row["offset"]), NOW_MS, key, value, headers)
        )
        truth = dead_headers(
            envelope, PIPELINE.lane_id, history, reason=NOT_READABLE, dead_at_ms=NOW_MS
        )
        made = tuple((header["key"], bytes(header["value"])) for header in row["headers"])
        assert made == truth
        assert (row["topic"], bytes(row["key"])) == (DEAD, PIPELINE.lane_id.encode())
        assert bytes(row["value"]) == dead_value(value)
        place = Origin(DEAD, 0, row["offset"])
        letter = open_retry_record(RecordIn(place, NOW_MS, row["key"], dead_value(value), made))
        assert not isinstance(letter, MalformedRecord)


def test_what_may_have_been_written_says_so_and_nothing_else_does(
    locked_spark: SparkSession,
) -> None:
    places = [(number, offset) for number in range(2) for offset in range(4)]
    given = [
        (TOPIC, *place, datetime.fromtimestamp(0, tz=UTC), None, b'{"n":1}', list(PLAIN))
        for place in places
    ]
    rows = planned(PIPELINE, locked_spark.createDataFrame(given, RECORDS))
    ranges = {KafkaPartition(TOPIC, number): (0, 4) for number in range(2)}

    def marked(repeats: dict[KafkaPartition, int]) -> list[tuple[int, int]]:
        headers = labelled(PipelinePortion("s/pipeline:p", ranges, 0, repeats)).alias("headers")
        found = rows.select("partition", "offset", headers).collect()
        assert len(found) == len(places)
        return sorted(
            (row["partition"], row["offset"])
            for row in found
            if any(header["key"] == MAYBE_DUPLICATE for header in row["headers"])
        )

    assert marked({}) == []
    assert marked({KafkaPartition(TOPIC, 1): 2}) == [(1, 0), (1, 1)]
    both = {KafkaPartition(TOPIC, 0): 1, KafkaPartition(TOPIC, 1): 9}
    assert marked(both) == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]
