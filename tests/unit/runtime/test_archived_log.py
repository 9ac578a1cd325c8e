"""The objects of a Kafka partition, from an offset or a time on, are found by their names."""

from pathlib import Path

import pytest

from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS
from shared.proof.archived import ArchivedObject
from shared.runtime.archive import archived_log
from shared.runtime.archive.archived_log import ArchivedLog, DamagedObjectError, sound_bytes
from tests.support.pipelines.archive_made import ARCHIVE, AT_MS, bucket_of, kept, row, sink_of

ONE = KafkaPartition("hifi.stream.orders", 0)


def made(folder: Path, first: int, end: int, *, days: int = 0) -> ArchivedObject:
    """Write an object with an event at each of its offsets, this many days later."""
    rows = [row(0, at) for at in range(first, end)]
    for each in rows:
        each["time_ms"] += days * DAY_MS
    (said,) = kept(sink_of(folder), *rows, ranges={ONE: (first, end)})
    return said


def found(folder: Path, at: int, border: int = 1_000) -> list[tuple[int, int]]:
    """Return the first offset to read and the end of each object."""
    there = ArchivedLog(bucket_of(folder), ARCHIVE, 0).objects(at, border)
    return [(it.from_offset, it.archived.end) for it in there]


def test_what_follows_an_offset_is_found_day_by_day_up_to_the_border(tmp_path: Path) -> None:
    for nth in range(6):
        made(tmp_path, 10 * nth, 10 * nth + 10, days=nth // 2)
    assert found(tmp_path, 0)[0] == (0, 10)
    assert found(tmp_path, 35) == [(35, 40), (40, 50), (50, 60)]
    assert found(tmp_path, 35, 50) == [(35, 40), (40, 50)], "Kafka has the later events"
    assert found(tmp_path, 60) == []


def test_what_is_missing_in_between_ends_it_and_is_seen_at_its_beginning(tmp_path: Path) -> None:
    made(tmp_path, 10, 20)
    made(tmp_path, 30, 40)
    assert found(tmp_path, 0) == [(10, 20)]
    assert found(tmp_path, 20) == [(30, 40)]


def test_what_was_kept_twice_is_read_once(tmp_path: Path) -> None:
    made(tmp_path, 10, 20)
    made(tmp_path, 10, 25)
    made(tmp_path, 22, 30)
    assert found(tmp_path, 10) == [(10, 25), (25, 30)]


def test_at_once_there_are_so_many_objects_of_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in range(3):
        said = made(tmp_path, 10 * nth, 10 * nth + 10)
    monkeypatch.setattr(archived_log, "OBJECTS_MAX", 2)
    assert len(found(tmp_path, 0)) == 2
    monkeypatch.setattr(archived_log, "BYTES_MAX", said.size - 1)
    assert len(found(tmp_path, 0)) == 1, "an object beyond the limit comes alone"


def test_what_was_filtered_is_no_part_of_a_log(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    filtered = type(sink)(sink.store, sink.id, sink.document, is_whole=False, folders=tmp_path)
    kept(filtered, row(0, 12), ranges={ONE: (10, 20)})
    assert found(tmp_path, 0) == []


def test_a_time_is_the_first_offset_of_it_or_later(tmp_path: Path) -> None:
    for nth in range(4):
        made(tmp_path, 10 * nth, 10 * nth + 10, days=nth // 2)
    there = ArchivedLog(bucket_of(tmp_path), ARCHIVE, 0)
    assert there.first_at(0) == 0
    assert there.first_at(AT_MS + 15) == 15
    assert there.first_at(AT_MS + DAY_MS) == 20, "the next day's object"
    assert there.first_at(AT_MS + DAY_MS + 31) == 31
    assert there.first_at(AT_MS + 2 * DAY_MS) is None
    assert ArchivedLog(bucket_of(tmp_path), ARCHIVE, 1).first_at(0) is None


def test_what_is_not_as_it_was_written_is_named(tmp_path: Path) -> None:
    first, second = made(tmp_path, 0, 10), made(tmp_path, 10, 20)
    (tmp_path / second.path).write_bytes(b"else")
    with pytest.raises(DamagedObjectError, match=f"{second.path} is changed"):
        sound_bytes(bucket_of(tmp_path), second)
    (tmp_path / first.path).unlink()
    with pytest.raises(DamagedObjectError, match=f"{first.path} is missing"):
        sound_bytes(bucket_of(tmp_path), first)
    # The earlier object is read first.
    (tmp_path / second.manifest_path).write_text("{")
    assert found(tmp_path, 0) == [(0, 10)]
    with pytest.raises(DamagedObjectError, match=f"{second.manifest_path} is unreadable"):
        found(tmp_path, 10)
    with pytest.raises(DamagedObjectError, match="is unreadable"):
        ArchivedLog(bucket_of(tmp_path), ARCHIVE, 0).first_at(AT_MS + 5)
