"""A real Postgres in trouble: its reports, and that nothing waits forever or stays half done."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, LiteralString

import pytest

from pipelines.databases.database import PositionOf, Server, Target
from pipelines.databases.postgres import PostgresTable
from pipelines.databases.postgres_link import PostgresLink
from pipelines.databases.refusals import AwayError, SettingError, SlowError
from pipelines.databases.rows import EventRows
from pipelines.databases.sync import TablePosition
from tests.support.pipelines.postgres_fixtures import server_of
from tests.support.pipelines.postgres_process import PostgresProcess

pytestmark = pytest.mark.integration

PLACE = PositionOf("sales", "hifi.stream.sales", 0)
TARGET = Target("sales", ("id", "n"), key=("id",))
MADE = "CREATE TABLE sales (id TEXT PRIMARY KEY, n INTEGER)"


def sync(server: Server, events: list[EventRows], target: Target = TARGET) -> TablePosition:
    with closing(PostgresTable(server, target)) as table:
        position = TablePosition(table, target.key, PLACE, 0, events[-1].offset + 1)
        return taken(position, events)


def taken(position: TablePosition, events: list[EventRows]) -> TablePosition:
    for each in events:
        position.take(each)
    position.finish()
    return position


def event(offset: int, **members: Any) -> EventRows:
    return EventRows(offset, b"k", (json.dumps({"id": str(offset), **members}).encode(),))


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"password": "no"}, SettingError, "the password of hifi is wrong at localhost:"),
        ({"database": "none"}, SettingError, "there is no database none at localhost:"),
        ({"user": "nobody"}, SettingError, "the password of nobody is wrong"),
        ({"port": 1}, AwayError, "not available now"),
        ({"tls": "verify"}, AwayError, "server does not support SSL"),
        ({"tls": "require"}, AwayError, "server does not support SSL"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    postgres: PostgresProcess, database: str, wrong: dict[str, Any], kind: type[Any], says: str
) -> None:
    with pytest.raises(kind, match=says):
        PostgresTable(server_of(postgres, **{"database": database, **wrong}), TARGET)


def test_who_lacks_a_right_is_told_which(postgres: PostgresProcess, database: str) -> None:
    postgres.run(
        "DROP ROLE IF EXISTS clerk",
        "CREATE ROLE clerk LOGIN PASSWORD 'x'",
        MADE,
        "GRANT SELECT ON sales TO clerk",
        database=database,
    )
    clerk = server_of(postgres, database, user="clerk", password="x")
    with pytest.raises(SettingError, match=r"CREATE TABLE IF NOT EXISTS .*hifi_positions"):
        PostgresTable(clerk, TARGET)
    sync(server_of(postgres, database), [event(0)])
    postgres.run("GRANT ALL ON hifi_positions TO clerk", database=database)
    with pytest.raises(SettingError, match=r"clerk lacks a right .* GRANT"):
        sync(clerk, [event(1)])
    assert postgres.rows("SELECT next_offset FROM hifi_positions", database) == [(1,)]


def test_tasks_that_come_first_at_the_same_time_make_one_table_of_positions(
    postgres: PostgresProcess, database: str
) -> None:
    postgres.run(MADE, database=database)
    server = server_of(postgres, database)
    with ThreadPoolExecutor(4) as tasks:
        for table in tasks.map(lambda _: PostgresTable(server, TARGET), range(4)):
            table.close()
    assert postgres.rows("SELECT count(*) FROM hifi_positions", database) == [(0,)]


def test_who_finds_that_another_task_has_just_made_it_uses_it(
    postgres: PostgresProcess, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres' own IF NOT EXISTS does not see an object that is being created concurrently."""
    postgres.run(MADE, database=database)
    run = PostgresLink.run

    def overtaken(link: PostgresLink, statement: LiteralString, *given: Any, **names: Any) -> Any:
        made = "CREATE TABLE IF NOT EXISTS {positions}"
        if statement.startswith(made):
            run(link, statement, *given, **names)
            # Postgres then refuses it like this: there is already a type of this name.
            run(link, "CREATE TYPE {positions} AS ENUM ()")
        return run(link, statement, *given, **names)

    monkeypatch.setattr(PostgresLink, "run", overtaken)
    sync(server_of(postgres, database), [event(0)])
    assert postgres.rows("SELECT next_offset FROM hifi_positions", database) == [(1,)]


def test_kinds_of_columns(postgres: PostgresProcess, database: str) -> None:
    postgres.run(
        "CREATE TYPE mood AS ENUM ('good')",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.kinds (id TEXT PRIMARY KEY, n NUMERIC, j JSONB, a TEXT[], m INT[],"
        " b BYTEA, at TIMESTAMPTZ, u UUID, e mood, f BOOLEAN)",
        database=database,
    )
    target = Target("shop.kinds", ("id", "n", "j", "a", "m", "b", "at", "u", "e", "f"), key=("id",))
    exact = "123456789012345678901234567890.123456789"
    good = (
        '{"id":"0","n":' + exact + ',"j":{"x":[1,null,"ä"]},"a":["a \\"b\\" \\\\","{}",null],'
        '"m":[[1,2],[3,4]],"b":"AAH/","at":"2026-11-24T10:00:00.123Z",'
        '"u":"6f1c2b8e-0000-4000-8000-000000000000","e":"good","f":true}'
    ).encode()
    bad = {
        1: b'{"id":"1","n":"x"}',
        2: b'{"id":"2","a":"no list"}',
        3: b'{"id":"3","b":"***"}',
        4: b'{"id":"4","e":"bad"}',
        5: b'{"id":"5\\u0000"}',
        6: b'{"id":"6","at":"yesterdayish"}',
        7: b'{"id":"7","n":{"a":1}}',
        8: b'{"id":"\\ud800"}',
    }
    events = [EventRows(0, b"k", (good,)), *(EventRows(at, b"k", (it,)) for at, it in bad.items())]
    came = sync(server_of(postgres, database), [*events, event(9)], target)
    assert sorted(came.refused) == sorted(bad)
    assert "invalid input syntax for type numeric" in came.refused[1]
    found = postgres.rows(
        "SELECT n::text, j->'x'->>2, a, m, encode(b, 'hex'), extract(epoch FROM at)::float, f"
        " FROM shop.kinds WHERE id = '0'",
        database,
    )
    at = 1_795_514_400.123
    assert found == [(exact, "ä", ['a "b" \\', "{}", None], [[1, 2], [3, 4]], "0001ff", at, True)]
    assert postgres.rows("SELECT count(*) FROM shop.kinds", database) == [(2,)]
    assert postgres.rows("SELECT next_offset FROM shop.hifi_positions", database) == [(10,)]


def test_a_trigger_may_refuse_a_row_and_says_so(postgres: PostgresProcess, database: str) -> None:
    postgres.run(
        MADE,
        "CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.n % 2 = 1 THEN RAISE EXCEPTION 'no odd ones: %', NEW.n; END IF;"
        " RETURN NEW; END $$",
        "CREATE TRIGGER odd BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION odd()",
        database=database,
    )
    came = sync(server_of(postgres, database), [event(n, n=n) for n in range(100)])
    assert (came.written, len(came.refused)) == (50, 50)
    assert came.refused[7].startswith("no odd ones: 7")


def test_rules_that_count_at_the_end_only_are_kept_row_by_row(
    postgres: PostgresProcess, database: str
) -> None:
    postgres.run(
        "CREATE TABLE known (n INTEGER PRIMARY KEY)",
        "INSERT INTO known VALUES (1)",
        "CREATE TABLE sales (id TEXT PRIMARY KEY, n INTEGER REFERENCES known"
        " DEFERRABLE INITIALLY DEFERRED)",
        database=database,
    )
    came = sync(server_of(postgres, database), [event(nth, n=nth) for nth in range(4)])
    assert (came.written, sorted(came.refused)) == (1, [0, 2, 3])
    assert "not present in table" in came.refused[0]


def test_a_table_that_is_locked_or_read_only_is_waited_for(
    postgres: PostgresProcess, database: str
) -> None:
    server = server_of(postgres, database, lock_s=0.3)
    postgres.run(MADE, database=database)
    sync(server, [event(0)])
    with postgres.connect(database) as other, other.transaction():
        other.execute("LOCK TABLE sales")
        with pytest.raises(AwayError, match="lock timeout"):
            sync(server, [event(1)])
    setting = f'ALTER DATABASE "{database}" SET default_transaction_read_only = '
    postgres.run(setting + "on", database=database)
    with pytest.raises(AwayError, match="read-only"):
        sync(server, [event(1)])
    postgres.run("SET default_transaction_read_only = off", setting + "off", database=database)
    assert sync(server, [event(0), event(1)]).written == 1


def test_a_batch_that_takes_too_long_is_written_in_smaller_ones(
    postgres: PostgresProcess, database: str
) -> None:
    postgres.run(
        MADE,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_sleep(CASE NEW.n WHEN 0 THEN 0.02 ELSE 9 END); RETURN NEW; END $$",
        "CREATE TRIGGER slow BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION slow()",
        database=database,
    )
    server = server_of(postgres, database, statement_s=0.3)
    assert sync(server, [event(nth, n=0) for nth in range(30)]).written == 30
    assert postgres.rows("SELECT next_offset FROM hifi_positions", database) == [(30,)]
    with pytest.raises(SlowError, match="too long"):
        sync(server, [event(30, n=0), event(31, n=1)])
    assert postgres.rows("SELECT next_offset FROM hifi_positions", database) == [(31,)]


def test_a_server_that_stands_still_is_given_up(postgres: PostgresProcess, database: str) -> None:
    postgres.run(MADE, database=database)
    server = server_of(postgres, database, statement_s=0.2, connect_s=2.0)
    table = PostgresTable(server, TARGET)
    position = TablePosition(table, TARGET.key, PLACE, 0, 1)
    postgres.freeze()
    try:
        began_s = time.monotonic()
        with pytest.raises(AwayError):
            taken(position, [event(0)])
        with pytest.raises(AwayError):
            PostgresTable(server, TARGET)
        assert time.monotonic() - began_s < 10
    finally:
        postgres.thaw()
        table.close()
    assert sync(server_of(postgres, database), [event(0)]).written == 1


def test_a_server_that_is_killed_has_all_of_a_transaction_or_nothing(
    postgres: PostgresProcess, database: str
) -> None:
    postgres.run(MADE, database=database)
    server = server_of(postgres, database)
    table = PostgresTable(server, TARGET)
    position = TablePosition(table, TARGET.key, PLACE, 0, 1)
    taken(position, [event(0)])
    table.start(PLACE, 1, 2)
    postgres.kill()
    with pytest.raises(AwayError):
        table.commit(PLACE, {})
    table.roll_back()
    table.close()
    with pytest.raises(AwayError, match="refused"):
        PostgresTable(server, TARGET)
    postgres.start()
    assert sync(server, [event(0), event(1)]).written == 1
    assert postgres.rows("SELECT count(*) FROM sales", database) == [(2,)]
