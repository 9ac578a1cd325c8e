"""Events become rows exactly once, except bad ones: in an SQLite file, and in a real Postgres."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.databases.database import OpenTable, PositionOf, Target
from pipelines.databases.postgres import PostgresTable
from pipelines.databases.refusals import DatabaseError, PositionMovedError, SettingError
from pipelines.databases.rows import EventRows
from pipelines.databases.sqlite import SqliteTable
from pipelines.databases.sync import TablePosition
from tests.support.pipelines.postgres_fixtures import server_of

PLACE = PositionOf("sales", "hifi.stream.orders", 3)
SALES = Target("sales", ("id", "country", "price"), key=("id",))
INSERTS = Target("sales", ("id", "country", "price"), inserts_only=True)
MADE = "CREATE TABLE sales (id {id} PRIMARY KEY, country TEXT, price {price} CHECK (price < 1000))"


@dataclass(frozen=True)
class Ground:
    """A database, with an independent way to look into it."""

    open: Callable[[Target], OpenTable]
    run: Callable[[str], None]
    rows: Callable[[str], list[tuple[Any, ...]]]
    types: dict[str, str]

    def make_sales(self) -> None:
        self.run(MADE.format(**self.types))

    def sync(
        self,
        events: Sequence[EventRows],
        *,
        target: Target = SALES,
        begin: int = 0,
        end: int | None = None,
        place: PositionOf = PLACE,
    ) -> TablePosition:
        with closing(self.open(target)) as table:
            end = events[-1].offset + 1 if end is None else end
            return synced(TablePosition(table, target.key, place, begin, end), events)

    def position(self) -> int:
        (found,) = self.rows("SELECT next_offset FROM hifi_positions")
        return int(found[0])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.integration)])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    if request.param == "sqlite":
        path = tmp_path / "shop.sqlite"

        def run(statement: str) -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(statement)

        def rows(query: str) -> list[tuple[Any, ...]]:
            with closing(sqlite3.connect(path)) as connection:
                return connection.execute(query).fetchall()

        types = {"id": "TEXT", "price": "NUMERIC"}
        yield Ground(lambda target: SqliteTable(path, target), run, rows, types)
        return
    server = request.getfixturevalue("postgres")
    name: str = request.getfixturevalue("database")
    yield Ground(
        lambda target: PostgresTable(server_of(server, name), target),
        lambda statement: server.run(statement, database=name),
        lambda query: server.rows(query, database=name),
        {"id": "TEXT", "price": "NUMERIC"},
    )


def synced(position: TablePosition, events: Sequence[EventRows]) -> TablePosition:
    for each in events:
        position.take(each)
    position.finish()
    return position


def event(offset: int, key: bytes | None = b"k", **members: Any) -> EventRows:
    return EventRows(offset, key, (json.dumps(members).encode(),))


def gone(offset: int, key: bytes) -> EventRows:
    return EventRows(offset, key, (None,))


def sale(offset: int, number: int | None = None, price: Any = 1) -> EventRows:
    return event(offset, id=f"s-{offset if number is None else number}", country="DE", price=price)


def test_rows_are_written_once_and_the_position_stands_at_the_end(ground: Ground) -> None:
    ground.make_sales()
    events = [sale(offset) for offset in range(10, 20)]
    assert ground.sync(events, begin=10, end=25).written == 10
    assert ground.position() == 25
    again = ground.sync(events, begin=10, end=25)
    assert (again.written, again.skipped, again.refused) == (0, 10, {})
    more = ground.sync([*events, sale(30)], begin=10)
    assert (more.written, more.skipped) == (1, 10)
    assert ground.position() == 31
    assert ground.rows("SELECT count(*), count(DISTINCT id) FROM sales") == [(11, 11)]


def test_the_last_change_of_a_row_is_what_stays(ground: Ground) -> None:
    ground.make_sales()
    ground.sync([sale(0, 1, 1), sale(1, 2, 5), sale(2, 1, 2)])
    ground.sync([sale(3, 1, 3), gone(4, b"s-2"), sale(5, 3), gone(6, b"s-3"), gone(7, b"s-9")])
    assert ground.rows("SELECT id, price FROM sales") == [("s-1", 3)]
    ground.sync([gone(8, b"s-1"), sale(9, 1, 9)])
    assert ground.rows("SELECT id, price FROM sales") == [("s-1", 9)]


def test_keys_that_are_the_same_to_the_database_are_changed_in_their_order(
    ground: Ground,
) -> None:
    ground.run("CREATE TABLE numbers (id INTEGER PRIMARY KEY, n INTEGER)")
    target = Target("numbers", ("id", "n"), key=("id",))
    ground.sync([event(0, id=7, n=1)], target=target)
    came = ground.sync([gone(1, b"07"), event(2, id=7, n=2), gone(3, b"9")], target=target)
    assert (came.written, came.refused) == (3, {})
    assert ground.rows("SELECT id, n FROM numbers") == [(7, 2)]
    ground.sync([event(4, id=8, n=3), event(5, id=7, n=4), gone(6, b"08")], target=target)
    assert ground.rows("SELECT id, n FROM numbers") == [(7, 4)]


def test_a_row_with_a_key_of_several_columns_is_taken_away_by_its_json(ground: Ground) -> None:
    ground.run("CREATE TABLE sums (country TEXT, day DATE, n INTEGER, PRIMARY KEY (country, day))")
    target = Target("sums", ("n", "day", "country"), key=("country", "day"))
    rows = [event(nth, country=it, day="2026-11-24", n=nth) for nth, it in enumerate("abcd")]
    ground.sync(rows, target=target)
    keys = [b'["a","2026-11-24"]', b'{"day":"2026-11-24","country":"b"}', b"c", None]
    came = ground.sync(
        [EventRows(10 + nth, key, (None,)) for nth, key in enumerate(keys)], target=target
    )
    assert ground.rows("SELECT country, n FROM sums ORDER BY country") == [("c", 2), ("d", 3)]
    assert {at: "ordering key" in why for at, why in came.refused.items()} == {12: True, 13: True}


def test_what_is_inserted_only_is_refused_the_second_time(ground: Ground) -> None:
    ground.make_sales()
    came = ground.sync([sale(0, 1), sale(1, 2), sale(2, 1)], target=INSERTS)
    assert (came.written, [*came.refused]) == (2, [2])
    assert "UNIQUE" in came.refused[2].upper()
    with_no_key = ground.sync([gone(3, b"s-1")], target=INSERTS)
    assert "no value" in with_no_key.refused[3]


def test_one_bad_row_in_ten_thousand_is_refused_and_the_others_are_written(ground: Ground) -> None:
    ground.make_sales()
    bad = 7_321
    events = [sale(nth, price=1_000 if nth == bad else 1) for nth in range(10_000)]
    came = ground.sync(events)
    assert list(came.refused) == [bad]
    assert "check" in came.refused[bad].lower(), "the reason lacks the server's own words"
    assert came.written == 9_999
    assert ground.rows("SELECT count(*) FROM sales WHERE price = 1") == [(9_999,)]
    assert ground.position() == 10_000


def test_what_was_refused_is_told_until_somebody_has_heard_of_it(ground: Ground) -> None:
    ground.make_sales()
    events = [
        sale(0),
        sale(1, price=5_000),
        event(2, no="id"),
        EventRows(3, b"k", (b"oops",)),
        sale(4),
    ]
    first = ground.sync(events)
    assert sorted(first.refused) == [1, 2, 3]
    # Kafka stored no position, so the same events arrive again.
    again = ground.sync(events)
    assert (again.written, again.skipped, again.refused) == (0, 5, first.refused)
    more = ground.sync([*events, sale(5), sale(6, price=9_999)])
    assert sorted(more.refused) == [1, 2, 3, 6]
    later = ground.sync([sale(6, price=9_999), sale(7)], begin=6)
    assert list(later.refused) == [6]


def test_all_rows_of_an_event_are_written_or_none(ground: Ground) -> None:
    ground.make_sales()
    rows = tuple(
        json.dumps({"id": f"s-{nth}", "price": 5_000 * (nth == 2)}).encode() for nth in range(4)
    )
    came = ground.sync([sale(0, 10), EventRows(1, b"k", rows), sale(2, 11)])
    assert list(came.refused) == [1]
    assert ground.rows("SELECT id FROM sales ORDER BY id") == [("s-10",), ("s-11",)]


def test_a_task_that_was_overtaken_writes_nothing(ground: Ground) -> None:
    ground.make_sales()
    with closing(ground.open(SALES)) as slow, closing(ground.open(SALES)) as quick:
        old = TablePosition(slow, SALES.key, PLACE, 0, 2)
        synced(TablePosition(quick, SALES.key, PLACE, 0, 1), [sale(0, price=2)])
        with pytest.raises(PositionMovedError, match="another task has moved it"):
            synced(old, [sale(0, price=1), sale(1, price=1)])
    assert ground.rows("SELECT id, price FROM sales") == [("s-0", 2)]
    assert ground.position() == 1


def test_who_breaks_off_has_written_nothing(ground: Ground) -> None:
    ground.make_sales()
    table = ground.open(SALES)
    TablePosition(table, SALES.key, PLACE, 5, 9)
    table.start(PLACE, 5, 9)
    table.write([])
    table.close()
    assert ground.position() == 5
    with pytest.raises(DatabaseError):
        table.start(PLACE, 5, 9)
    ground.sync([sale(5)], begin=5)
    assert ground.position() == 6


def test_kafka_partitions_have_positions_of_their_own(ground: Ground) -> None:
    ground.make_sales()
    ground.sync([sale(0, 1)], place=PositionOf("sales", "t", 0))
    ground.sync([sale(0, 2)], place=PositionOf("sales", "t", 1))
    ground.sync([sale(0, 3)], place=PositionOf("other", "t", 0))
    assert ground.rows("SELECT count(*) FROM sales") == [(3,)]
    assert ground.rows("SELECT sum(next_offset), count(*) FROM hifi_positions") == [(3, 3)]


def test_values_come_as_they_were_written(ground: Ground) -> None:
    ground.run("CREATE TABLE kinds (id TEXT PRIMARY KEY, t TEXT, n NUMERIC, b BOOLEAN, d DATE)")
    target = Target("kinds", ("id", "t", "n", "b", "d"), key=("id",))
    given = [
        {
            "id": "a",
            "t": 'tab\t "quoted" \\N \n ä \u2028',
            "n": 12345.25,
            "b": True,
            "d": "2026-11-24",
        },
        {"id": "b", "t": {"x": [1, 2.50]}, "n": "7", "b": False, "more": 1},
        {"id": "c", "t": 12, "n": None},
    ]
    values = [json.dumps(each, ensure_ascii=False).encode() for each in given]
    ground.sync([EventRows(nth, None, (value,)) for nth, value in enumerate(values)], target=target)
    found = ground.rows("SELECT id, t, n, b, d FROM kinds ORDER BY id")
    shown = [(*row[:2], row[2] and float(row[2]), row[3], row[4] and str(row[4])) for row in found]
    assert shown == [
        ("a", 'tab\t "quoted" \\N \n ä \u2028', 12345.25, True, "2026-11-24"),
        ("b", '{"x": [1, 2.5]}', 7.0, False, None),
        ("c", "12", None, None, None),
    ]


def test_names_are_quoted_whatever_is_in_them(ground: Ground) -> None:
    odd = 'a"; DROP TABLE "kept'
    quoted = '"' + odd.replace('"', '""') + '"'
    ground.run("CREATE TABLE kept (n INTEGER)")
    ground.run(f'CREATE TABLE "Odd one" (id TEXT PRIMARY KEY, {quoted} TEXT)')
    target = Target("Odd one", ("id", odd), key=("id",))
    text = "'); DROP TABLE kept; --"
    ground.sync(
        [EventRows(0, b"k", (json.dumps({"id": text, odd: text}).encode(),))], target=target
    )
    assert ground.rows('SELECT * FROM "Odd one"') == [(text, text)]
    ground.sync([gone(1, text.encode())], target=target)
    assert ground.rows('SELECT count(*) FROM "Odd one"') == [(0,)]
    assert ground.rows("SELECT count(*) FROM kept") == [(0,)]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("CREATE TABLE other (id TEXT)", "there is no table sales"),
        ("CREATE TABLE sales (id TEXT PRIMARY KEY, price INTEGER)", "ADD COLUMN country"),
        ("CREATE TABLE sales (id TEXT, country TEXT, price INTEGER)", "UNIQUE INDEX"),
    ],
)
def test_what_has_to_be_changed_is_said(ground: Ground, made: str, says: str) -> None:
    ground.run(made)
    with pytest.raises(SettingError, match=says):
        ground.open(SALES)


def test_a_position_where_nobody_has_been_is_not_believed(ground: Ground) -> None:
    ground.make_sales()
    ground.sync([sale(0)], end=100)
    with pytest.raises(SettingError, match=r"at 100 of hifi\.stream\.orders:3"):
        ground.sync([sale(0)], end=50)
    # Filtered events may have moved Kafka's position, but not the table's.
    ground.sync([sale(200)], begin=150)
    assert ground.position() == 201
