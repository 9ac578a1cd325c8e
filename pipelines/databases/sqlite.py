"""Writes a table of an SQLite file, with the same behaviour as other databases."""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from pipelines.databases.database import POSITIONS_COLUMNS, PositionOf, Stand, Target
from pipelines.databases.refusals import (
    POSITIONS,
    AwayError,
    DatabaseError,
    PositionMovedError,
    RowsRefusedError,
    SettingError,
    SlowError,
)
from pipelines.databases.rows import ColumnOf, RowChange, Takes, Value

_LOCK_S = 5.0
_STATEMENT_S = 10.0
# How many opcodes run between two checks of the time limit.
_OPCODES = 10_000
_ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError)
_OF_A_SETTING = ("no such table", "no such column", "has no column", "may not be modified")
# Numbers for true and false, in columns that would store their text unchanged.
_FLAGS = {"true": "1", "false": "0"}
_OF_ONE = "WHERE pipeline = ? AND topic = ? AND partition = ?"
_BEGUN = "(pipeline, topic, partition, next_offset) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_MOVED = f"SET next_offset = ?, refused = '' {_OF_ONE} AND next_offset = ?"
_REFUSED = f"SET refused = ? {_OF_ONE}"


class SqliteTable:
    """A table of a file, over a connection of its own."""

    def __init__(self, path: Path, target: Target) -> None:
        self._target = target
        self._until_s = 0.0
        with self._told():
            self._connection = sqlite3.connect(path, timeout=_LOCK_S, isolation_level=None)
            self._connection.set_progress_handler(self._is_late, _OPCODES)
        try:
            with self._told():
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {POSITIONS} ({POSITIONS_COLUMNS})"
                )
                self._columns = self._checked_columns()
                self._check_key()
        except BaseException:
            self.close()
            raise

    @property
    def columns(self) -> Sequence[ColumnOf]:
        return self._columns

    def stand(self, place: PositionOf, begin: int) -> Stand:
        at = (place.pipeline, place.topic, place.partition)
        with self._told():
            self._connection.execute(
                f"INSERT INTO {POSITIONS} {_BEGUN}",
                (*at, begin),
            )
            row = self._connection.execute(
                f"SELECT next_offset, refused FROM {POSITIONS} {_OF_ONE}",  # noqa: S608 - constants
                at,
            ).fetchone()
        refused = json.loads(row[1]) if row[1] else {}
        return Stand(row[0], {int(offset): str(why) for offset, why in refused.items()})

    def start(self, place: PositionOf, expected: int, next_offset: int) -> None:
        with self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            moved = self._connection.execute(
                f"UPDATE {POSITIONS} {_MOVED}",
                (next_offset, place.pipeline, place.topic, place.partition, expected),
            ).rowcount
        if moved != 1:
            self.roll_back()
            wrong = f"{place.topic}:{place.partition} is no longer at {expected} in {POSITIONS}"
            raise PositionMovedError(f"{wrong}: another task has moved it")

    def write(self, changes: Sequence[RowChange]) -> None:
        with self._told():
            self._connection.execute("SAVEPOINT hifi")
        try:
            with self._told():
                for is_deletion, some in groupby(changes, key=lambda change: change.values is None):
                    if is_deletion:
                        self._take_away([change.key for change in some])
                    else:
                        self._put([change.values for change in some if change.values is not None])
        except RowsRefusedError:
            with self._told():
                self._connection.execute("ROLLBACK TO hifi")
            raise
        with self._told():
            self._connection.execute("RELEASE hifi")

    def commit(self, place: PositionOf, refused: Mapping[int, str]) -> None:
        with self._told():
            if refused:
                self._connection.execute(
                    f"UPDATE {POSITIONS} {_REFUSED}",
                    (json.dumps(refused), place.pipeline, place.topic, place.partition),
                )
            self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        with suppress(DatabaseError), self._told():
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()

    def _put(self, rows: Sequence[Sequence[Value]]) -> None:
        columns, key = self._target.columns, self._target.key
        names = ", ".join(map(_quoted, columns))
        action = ""
        if not self._target.inserts_only:
            rest = [_quoted(name) for name in columns if name not in key]
            sets = ", ".join(f"{name} = excluded.{name}" for name in rest)
            keys = ", ".join(map(_quoted, key))
            action = f" ON CONFLICT ({keys}) DO " + (f"UPDATE SET {sets}" if rest else "NOTHING")
        values = ", ".join("?" * len(columns))
        asked = f"INSERT INTO {_quoted(self._target.table)} ({names}) VALUES ({values}){action}"  # noqa: S608 - quoted
        self._connection.executemany(asked, map(self._bound, rows))

    def _take_away(self, keys: Sequence[Sequence[Value]]) -> None:
        same = " AND ".join(f"{_quoted(name)} = ?" for name in self._target.key)
        asked = f"DELETE FROM {_quoted(self._target.table)} WHERE {same}"  # noqa: S608 - quoted
        self._connection.executemany(asked, keys)

    def _bound(self, values: Sequence[Value]) -> list[Value]:
        return [
            _FLAGS.get(value, value)
            if isinstance(value, str) and column.takes is Takes.PLAIN
            else value
            for value, column in zip(values, self._columns, strict=True)
        ]

    def _checked_columns(self) -> list[ColumnOf]:
        table = self._target.table
        columns = self._connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (table,))
        there = {name: ColumnOf(name, kind, _takes(kind)) for name, kind in columns}
        if not there:
            raise SettingError(f"there is no table {table}: create it, or name another")
        return self._target.columns_of(there)

    def _check_key(self) -> None:
        table = self._target.table
        if self._target.inserts_only:
            return
        ask = self._connection.execute
        primary = {
            name for (name,) in ask("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (table,))
        }
        keys = [primary]
        for (index,) in ask(
            'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', (table,)
        ).fetchall():
            keys.append(
                {name for (name,) in ask("SELECT name FROM pragma_index_info(?)", (index,))}
            )
        self._target.check_key(keys, made_by=f"CREATE UNIQUE INDEX {table}_key")

    def _is_late(self) -> bool:
        return time.monotonic() > self._until_s

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise errors as our own, and interrupt statements that take too long."""
        self._until_s = time.monotonic() + _STATEMENT_S
        try:
            yield
        except _ROW_ERRORS as error:
            raise RowsRefusedError(str(error)) from error
        except sqlite3.Error as error:
            words = str(error)
            if words == "interrupted":
                raise SlowError("writing the file takes too long") from error
            if any(each in words for each in _OF_A_SETTING):
                raise SettingError(f"SQLite refuses to write to the file: {words}") from error
            raise AwayError(f"the file cannot be written now: {words}") from error


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _takes(kind: str) -> Takes:
    """Classify a type by SQLite's rules of affinity."""
    word = kind.upper()
    if "BLOB" in word:
        return Takes.BYTES
    if word == "JSON":
        return Takes.JSON
    is_text = any(each in word for each in ("CHAR", "CLOB", "TEXT"))
    return Takes.TEXT if is_text else Takes.PLAIN
