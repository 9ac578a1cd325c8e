"""Events that Kafka has deleted are found in the archive, offset by offset."""

from pathlib import Path

import pytest

from deploy.cli.archive.archived_events import ArchivedEvents, earlier
from deploy.cli.archive.places import StoreError
from shared.event.record import KafkaPartition
from tests.support.pipelines.archive_made import (
    ARCHIVE,
    AT_MS,
    RANGES,
    bucket_of,
    kept,
    row,
    sink_of,
)

TOPIC = "hifi.stream.orders"
ONE, TWO = (KafkaPartition(TOPIC, number) for number in range(2))


def found(folder: Path, **starts: int) -> ArchivedEvents:
    log_starts = {ONE: starts.get("one", 0), TWO: starts.get("two", 0)}
    return earlier(bucket_of(folder), ARCHIVE, TOPIC, log_starts, from_ms=AT_MS)


def test_offsets_are_read_as_kafka_would_give_them(tmp_path: Path) -> None:
    kept(sink_of(tmp_path), row(0, 12), row(0, 13, b"\x00"), row(0, 39), row(1, 11))
    there = found(tmp_path, one=39, two=20)
    records = [*there.records(ONE, 13, 39), *there.records(TWO, 0, 20)]
    assert [(each.origin, each.value) for each in records] == [
        ((TOPIC, 0, 13), b"\x00"),
        ((TOPIC, 1, 11), b"{}"),
    ]
    assert records[0].timestamp_ms == AT_MS + 13
    assert records[0].headers == (("a", b"1"), ("a", b""))
    assert len(there.records(ONE, 39, 40)) == 1
    assert there.records(ONE, 14, 20) == []


def test_a_time_is_an_offset_of_it_or_where_the_log_begins(tmp_path: Path) -> None:
    kept(sink_of(tmp_path), row(0, 12), row(0, 20), row(0, 35))
    there = found(tmp_path, one=30, two=5)
    assert there.at(ONE, AT_MS) == 12
    assert there.at(ONE, AT_MS + 13) == 20
    assert there.at(ONE, AT_MS + 21) == 30, "the log has the events from offset 30 on"
    assert there.at(ONE, AT_MS + 99) == 30
    assert there.at(TWO, AT_MS) == 5


def test_what_nobody_has_is_counted(tmp_path: Path) -> None:
    kept(sink_of(tmp_path), row(0, 12))
    there = found(tmp_path, one=50)
    assert there.missing(ONE, 12) == 10


def test_what_is_not_as_it_was_is_not_sent(tmp_path: Path) -> None:
    (said,) = kept(sink_of(tmp_path), row(0, 12))
    there = found(tmp_path, one=50)
    (tmp_path / said.path).unlink()
    with pytest.raises(StoreError, match="is missing"):
        there.records(ONE, *RANGES[ONE])
    (tmp_path / said.manifest_path).write_text("{}")
    with pytest.raises(StoreError, match="is unreadable"):
        found(tmp_path, one=50)
