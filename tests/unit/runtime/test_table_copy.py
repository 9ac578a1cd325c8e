"""A copy of a table has all that it took, ordered by key and by change, and is bounded."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shared.config.table import Table
from shared.runtime.tables.copy import (
    Change,
    ClosedError,
    DamagedError,
    FullError,
    TableCopy,
    WrittenCopy,
)
from shared.runtime.tables.folders import DAMAGED, TableCopies, copy_folder

MIB = 1_048_576
WRITER = """
import sys
from pathlib import Path
from shared.runtime.tables.copy import Change, WrittenCopy
from shared.runtime.tables.folders import HeardFile

folder, value, is_whole = Path(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
writer = WrittenCopy(folder, bytes_max=1_048_576)
offset = writer.extent().offset
writer.take([Change(b"a", value, offset, 1_000)], offset + 1)
HeardFile(folder, is_writer=True).at_ms = 77
if is_whole:
    writer.be_whole()
writer.close()
"""


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[WrittenCopy]:
    opened = WrittenCopy(tmp_path / "t.1", bytes_max=4 * MIB)
    yield opened
    opened.close()


def change(key: str, value: str, offset: int) -> Change:
    return Change(key.encode(), value.encode(), offset, 1_000 + offset)


def keys(copy: TableCopy, begin: str = "", end: str | None = None) -> list[str]:
    return [row.key for row in copy.page(begin, end).rows]


def test_the_last_change_of_a_key_is_its_row(copy: WrittenCopy) -> None:
    assert copy.extent().offset == 0
    copy.take([change("b", "{}", 0), change("a", '{"n":1}', 1), change("b", '{"n":2}', 2)], 3)
    row, extent = copy.row("b")
    assert row is not None
    assert (row.value, row.offset, row.time_ms) == (b'{"n":2}', 2, 1_002)
    assert (extent.offset, extent.time_ms, extent.is_whole) == (3, 1_002, False)
    copy.take([change("b", "", 3)], 4)
    assert copy.row("b")[0] is None
    copy.be_whole()
    assert copy.extent().is_whole
    assert copy.look_up([b"a", b"b"])[0] == [b'{"n":1}', None]
    assert copy.look_up([b"a"], since_ms=1_002)[0] == [None]


def test_rows_are_read_in_the_order_of_their_keys_page_by_page(copy: WrittenCopy) -> None:
    names = ["a", "ab", "b", "ä", "ba"]
    copy.take([change(name, "{}", nth) for nth, name in enumerate(names)], 5)
    in_order = sorted(names, key=str.encode)
    assert keys(copy) == in_order
    assert keys(copy, "ab", "ba") == ["ab", "b"]
    assert keys(copy, "a", "b") == ["a", "ab"]
    first = copy.page(limit=2)
    assert ([row.key for row in first.rows], first.more_after) == (["a", "ab"], "ab")
    assert copy.page("b").more_after is None
    assert [row.key for row in copy.page(is_wanted=lambda row: row.key > "b").rows] == ["ba", "ä"]


def test_a_page_has_an_end_in_bytes_too(copy: WrittenCopy) -> None:
    large = '{"x":"' + "y" * 400_000 + '"}'
    copy.take([change(name, large, nth) for nth, name in enumerate("abcd")], 4)
    page = copy.page()
    assert ([row.key for row in page.rows], page.more_after) == (["a", "b"], "b")


def test_whoever_watches_hears_of_each_row_once_and_of_deletions(copy: WrittenCopy) -> None:
    copy.take([change("a", "{}", 0), change("b", "{}", 1), change("a", '{"n":2}', 2)], 3)
    copy.take([change("b", "", 3), change("x", "", 4), change("c", "{}", 5)], 6)
    news = copy.news(0)
    assert [(row.key, row.value, row.offset) for row in news.rows] == [
        ("a", b'{"n":2}', 2),
        ("b", b"", 3),
        ("c", b"{}", 5),
    ]
    assert (news.until, news.misses_some) == (6, False)
    part = copy.news(0, limit=2)
    assert ([row.key for row in part.rows], part.until) == (["a", "b"], 5)
    assert [row.key for row in copy.news(part.until).rows] == ["c"]
    assert copy.news(6).rows == []


def test_of_deletions_the_newest_are_told_and_whoever_missed_some_hears_that(
    copy: WrittenCopy,
) -> None:
    count = 10_050
    copy.take([change(f"k{nth}", "{}", nth) for nth in range(count)], count)
    copy.take([change(f"k{nth}", "", count + nth) for nth in range(count)], 2 * count)
    assert copy.news(0).misses_some
    assert not copy.news(count + 60).misses_some
    assert copy.page().rows == []


def test_rows_older_than_their_time_are_let_go_of(copy: WrittenCopy) -> None:
    copy.take([change(name, "{}", nth) for nth, name in enumerate("abc")], 3)
    copy.take([change("a", "{}", 3)], 4)
    assert copy.expire(1_003, limit=1) == 1
    assert copy.expire(1_003, limit=9) == 1
    assert keys(copy) == ["a"]
    assert copy.expire(5_000, limit=9) == 1
    assert copy.expire(5_000, limit=9) == 0


def test_a_table_takes_no_more_room_than_it_may(copy: WrittenCopy) -> None:
    large = '{"x":"' + "y" * 100_000 + '"}'
    with pytest.raises(FullError):
        copy.take([change(f"k{nth}", large, nth) for nth in range(100)], 100)
    # The copy takes none of these changes, and remains usable.
    assert copy.extent().offset == 0
    copy.take([change("a", large, 0)], 1)
    assert 100_000 < copy.used_bytes() < MIB


def test_rows_that_fill_a_table_can_all_be_written_anew_and_deleted(copy: WrittenCopy) -> None:
    large = '{"x":"' + "y" * 3_000 + '"}'
    rows = [change(f"k{nth}", large, nth) for nth in range(900)]
    copy.take(rows, 900)
    assert copy.used_bytes() > 0.85 * 4 * MIB
    copy.take([row._replace(offset=900 + row.offset) for row in rows], 1_800)
    copy.take([change(f"k{nth}", "", 1_800 + nth) for nth in range(900)], 2_700)
    assert copy.page().rows == []


def test_what_is_taken_away_at_once_takes_no_room(copy: WrittenCopy) -> None:
    large = '{"x":"' + "y" * 100_000 + '"}'
    rows = [change(f"k{nth}", large, nth) for nth in range(100)]
    copy.take([*rows, *(change(f"k{nth}", "", 100 + nth) for nth in range(99))], 199)
    assert keys(copy) == ["k99"]
    assert [row.key for row in copy.news(0).rows] == ["k99"]


def test_whoever_opens_it_again_goes_on_where_it_was(tmp_path: Path) -> None:
    first = WrittenCopy(tmp_path / "t.1", bytes_max=MIB)
    first.take([change("a", "{}", 7)], 8)
    first.close()
    again = WrittenCopy(tmp_path / "t.1", bytes_max=2 * MIB)
    assert again.extent().offset == 8
    again.bring_to_disk()
    again.free_dead_readers()
    again.close()


def test_what_is_no_copy_is_said_to_be_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "t.1"
    with pytest.raises(DamagedError):
        TableCopy(folder, bytes_max=MIB)
    WrittenCopy(folder, bytes_max=MIB).close()
    (folder / "data.mdb").write_bytes(b"x" * 8_192)
    with pytest.raises(DamagedError):
        WrittenCopy(folder, bytes_max=MIB)


def test_readers_find_a_copy_once_it_is_whole_and_follow_it_to_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.runtime.tables.folders._LOOK_S", 0.0)
    copies, table = TableCopies(tmp_path), Table("t")
    folder = copy_folder(tmp_path, table)

    def written(value: str, *, is_whole: bool = True) -> None:
        """Write from another process: no process may open a file twice."""
        words = [str(folder), value, str(int(is_whole))]
        subprocess.run([sys.executable, "-c", WRITER, *words], check=True, timeout=60)

    assert copies.of(table) is None
    written("{}", is_whole=False)
    assert copies.of(table) is None
    written('{"n":1}')
    there = copies.of(table)
    assert there is not None
    assert there.copy.look_up([b"a"])[0] == [b'{"n":1}']
    assert there.heard.at_ms == 77
    # Another process writes, and the open copy sees it.
    written('{"n":2}')
    assert there.copy.look_up([b"a"])[0] == [b'{"n":2}']
    # The copy's writer has closed it: the copy stays known until there is another.
    folder.rename(tmp_path / "old")
    assert copies.of(table) is there
    assert there.copy.look_up([b"a"])[0] == [b'{"n":2}']
    written('{"n":3}')
    anew = copies.of(table)
    assert anew is not None
    assert anew.copy.look_up([b"a"])[0] == [b'{"n":3}']
    copies.damaged(table)
    assert (folder / DAMAGED).exists()
    copies.close()


def files_of(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open."""
    found: list[str] = []
    for each in Path("/proc/self/fd").iterdir():
        # The listing's own folder is already closed.
        with suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]


def test_the_room_of_a_copy_is_given_back_once_another_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.runtime.tables.folders._LOOK_S", 0.0)
    copies, tables = TableCopies(tmp_path), [Table("t", generation=n) for n in (1, 2)]
    for table in tables:
        words = [str(copy_folder(tmp_path, table)), "{}", "1"]
        subprocess.run([sys.executable, "-c", WRITER, *words], check=True, timeout=60)
    former, now = (copies.of(table) for table in tables)
    assert former is not None
    assert now is not None
    # As long as the copy's folder exists, somebody may still ask for it.
    assert former.copy.look_up([b"a"])[0] == [b"{}"]
    shutil.rmtree(copy_folder(tmp_path, tables[0]))
    assert files_of(copy_folder(tmp_path, tables[0]))
    assert copies.of(tables[1]) is now
    with pytest.raises(ClosedError):
        former.copy.extent()
    assert not files_of(copy_folder(tmp_path, tables[0]))
    assert now.copy.look_up([b"a"])[0] == [b"{}"]
    copies.close()
