"""Looking up rows for a batch of events: each gets its key's row, and no key causes an error."""

from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.tables.look_ups import CopyRows, GivenRows, TableNotReadyError
from shared.config.table import Table
from shared.runtime.clock import now_ms
from shared.runtime.tables.copy import Change, WrittenCopy
from shared.runtime.tables.folders import HeardFile, copy_folder

TABLE = Table("people", retention_ms=60_000)


def written(folder: Path, *changes: Change) -> None:
    writer = WrittenCopy(copy_folder(folder, TABLE), bytes_max=1_048_576)
    writer.take(changes, len(changes))
    writer.be_whole()
    writer.close()
    HeardFile(copy_folder(folder, TABLE), is_writer=True).close()


def test_each_event_has_the_row_of_its_key_as_of_one_moment(tmp_path: Path) -> None:
    at_ms = now_ms()
    old = Change(b"old", b"{}", 1, at_ms - 61_000)
    written(tmp_path, Change(b"ada", b'{"n":1}', 0, at_ms), old, Change(b"bo", b"{}", 2, at_ms))
    keys = pa.array(["bo", "ada", None, "old", "nobody", "ada", "", "x" * 5_000, "\0"])
    found = CopyRows(str(tmp_path), TABLE)(keys, pa.array([0] * len(keys)))
    assert [each["row"] for each in found.to_pylist()] == [
        *("{}", '{"n":1}', None, None, None, '{"n":1}', None, None, None)
    ]
    assert {each["at"] for each in found.to_pylist()} == {3}


def test_without_a_copy_nothing_is_looked_up(tmp_path: Path) -> None:
    with pytest.raises(TableNotReadyError, match="no copy of people"):
        CopyRows(str(tmp_path / "none"), TABLE)(pa.array(["a"]), pa.array([0]))


def test_each_test_of_a_document_has_its_own_rows() -> None:
    given = GivenRows({0: {"a": "{}"}, 1: {"a": '{"n":1}'}})
    found = given(pa.array(["a", "a", "b", None]), pa.array([0, 1, 1, 0])).to_pylist()
    assert [each["row"] for each in found] == ["{}", '{"n":1}', None, None]
    everywhere = GivenRows({-1: {"a": "{}"}})
    assert everywhere(pa.array(["a"]), pa.array([7])).to_pylist() == [{"row": "{}", "at": 0}]
