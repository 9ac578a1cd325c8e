"""Archive objects of a task, by range and size: a repeated task writes the same ones."""

from pathlib import Path

import pytest

from pipelines.archive import sink as sink_module
from pipelines.jobs.sink import SinkAwayError
from shared.runtime.archive.files import read_object, rows_of
from shared.runtime.archive.reading import Damage, fetched, listed
from tests.support.pipelines.archive_made import (
    ARCHIVE,
    AT_MS,
    RANGES,
    bucket_of,
    kept,
    row,
    sink_of,
)


def test_an_object_is_about_the_range_and_holds_the_events_as_they_came(tmp_path: Path) -> None:
    rows = [row(0, 12), row(0, 13, None), row(1, 10, b"\x00\xff")]
    objects = kept(sink_of(tmp_path), *rows)
    assert [(it.partition, it.first, it.end, it.count) for it in objects] == [
        (0, 10, 40, 2),
        (1, 10, 40, 1),
    ]
    assert (objects[0].event_from_ms, objects[0].event_to_ms) == (AT_MS - 13, AT_MS - 12)
    there = listed(bucket_of(tmp_path), ARCHIVE)
    assert sorted(there.objects, key=lambda it: it.partition) == objects
    found = [
        {"partition": said.partition, **each}
        for said, data in fetched(bucket_of(tmp_path), objects)
        if isinstance(data, bytes)
        for each in rows_of(read_object(data))
    ]
    assert found == rows
    (record, _) = sink_of(tmp_path).records(RANGES, [it.to_json().decode() for it in objects])
    assert (record.key, record.topic) == (objects[0].path.encode(), "hifi.archive")


def test_objects_are_cut_by_their_bytes_and_all_offsets_are_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "OBJECT_BYTES_MAX", 10)
    sizes = {11: 4, 15: 6, 20: 1, 21: 30, 22: 2, 30: 9}
    rows = [row(0, offset, b"x" * size) for offset, size in sizes.items()]
    objects = kept(sink_of(tmp_path), *rows)
    assert [(it.first, it.end, it.count) for it in objects] == [
        (10, 20, 2),
        (20, 21, 1),
        (21, 22, 1),
        (22, 30, 1),
        (30, 40, 1),
    ]


def test_who_does_a_range_again_finds_what_is_there_and_leaves_it(tmp_path: Path) -> None:
    rows = [row(0, 12), row(0, 13)]
    (first,) = kept(sink_of(tmp_path), *rows)
    # The writer was killed between the object and its manifest.
    (tmp_path / first.manifest_path).unlink()
    assert kept(sink_of(tmp_path), *rows) == [first]
    assert kept(sink_of(tmp_path), *rows) == [first]


def test_what_an_earlier_document_kept_of_a_range_stays(tmp_path: Path) -> None:
    (first,) = kept(sink_of(tmp_path), row(0, 12), row(0, 13))
    (again,) = kept(sink_of(tmp_path, document="e"), row(0, 12))
    assert (again.sha256, again.path) == (first.sha256, first.path)


def test_something_else_under_the_name_is_not_taken_for_it(tmp_path: Path) -> None:
    (first,) = kept(sink_of(tmp_path), row(0, 12))
    with pytest.raises(SinkAwayError, match="with other contents"):
        kept(sink_of(tmp_path), row(0, 12, b"other"))
    (tmp_path / first.path).write_bytes(b"no object")
    with pytest.raises(SinkAwayError, match="with other contents"):
        kept(sink_of(tmp_path), row(0, 12))


def test_each_damage_is_named(tmp_path: Path) -> None:
    flipped, gone = kept(sink_of(tmp_path), row(0, 12), row(1, 12))
    path = tmp_path / flipped.path
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    (tmp_path / gone.path).unlink()
    wrong = [data for _, data in fetched(bucket_of(tmp_path), [flipped, gone])]
    assert [(it.path, it.kind) for it in wrong if isinstance(it, Damage)] == [
        (flipped.path, "changed"),
        (gone.path, "missing"),
    ]
