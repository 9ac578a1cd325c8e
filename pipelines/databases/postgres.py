"""Writes a Postgres table: COPY, then one statement that upserts all rows.

No SQL comes from outside: names are quoted, values are copied.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import LiteralString

from psycopg import sql

from pipelines.databases.database import (
    POSITIONS_COLUMNS,
    PositionOf,
    Server,
    Stand,
    Target,
)
from pipelines.databases.postgres_link import PostgresLink
from pipelines.databases.refusals import (
    POSITIONS,
    AwayError,
    PositionMovedError,
    RowsRefusedError,
    SettingError,
    sentence,
)
from pipelines.databases.rows import ColumnOf, RowChange, Takes, Values

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, t.typname),
  t.typcategory::text
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type b ON b.oid = t.typbasetype
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
_KEYS = """
SELECT array(
  SELECT a.attname::text FROM pg_attribute a
  WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
)
FROM pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
  AND i.indexprs IS NULL
"""
# The column with the number of a row's change; no table has a column of this name.
_NTH = sql.Identifier("hifi:nth")


class PostgresTable:
    """A table, over a connection of its own."""

    def __init__(self, server: Server, target: Target) -> None:
        self._server = server
        self._target = target
        self._link = PostgresLink(server, target.table)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    @property
    def columns(self) -> Sequence[ColumnOf]:
        return self._columns

    def stand(self, place: PositionOf, begin: int) -> Stand:
        self._link.run(
            "INSERT INTO {positions} (pipeline, topic, partition, next_offset)"
            " VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (place.pipeline, place.topic, place.partition, begin),
        )
        row = self._link.run(
            "SELECT next_offset, refused FROM {positions}"
            " WHERE pipeline = %s AND topic = %s AND partition = %s",
            (place.pipeline, place.topic, place.partition),
        ).fetchone()
        assert row is not None, "it was written just now"
        refused = json.loads(row[1]) if row[1] else {}
        return Stand(row[0], {int(at): str(why) for at, why in refused.items()})

    def start(self, place: PositionOf, expected: int, next_offset: int) -> None:
        # Check deferred constraints at once, so that a refused row fails where it is written.
        self._link.run("BEGIN; SET CONSTRAINTS ALL IMMEDIATE")
        # Other tasks on this position wait for this row's lock, and then see that it has moved.
        moved = self._link.run(
            "UPDATE {positions} SET next_offset = %s, refused = '' WHERE pipeline = %s"
            " AND topic = %s AND partition = %s AND next_offset = %s",
            (next_offset, place.pipeline, place.topic, place.partition, expected),
        ).rowcount
        if moved != 1:
            self.roll_back()
            wrong = f"{place.topic}:{place.partition} is no longer at {expected} in {POSITIONS}"
            raise PositionMovedError(f"{wrong}: another task has moved it")

    def write(self, changes: Sequence[RowChange]) -> None:
        self._link.run("SAVEPOINT hifi")
        try:
            if self._target.inserts_only:
                self._insert([change.values for change in changes if change.values is not None])
            else:
                self._change(changes)
        except RowsRefusedError:
            self._link.run("ROLLBACK TO SAVEPOINT hifi")
            raise
        self._link.run("RELEASE SAVEPOINT hifi")

    def commit(self, place: PositionOf, refused: Mapping[int, str]) -> None:
        if refused:
            self._link.run(
                "UPDATE {positions} SET refused = %s WHERE pipeline = %s AND topic = %s"
                " AND partition = %s",
                (json.dumps(refused), place.pipeline, place.topic, place.partition),
            )
        self._link.run("COMMIT")

    def roll_back(self) -> None:
        with suppress(AwayError, SettingError):
            self._link.run("ROLLBACK")

    def close(self) -> None:
        self._link.close()

    def _set_up(self) -> None:
        server, target = self._server, self._target
        for name, value in {
            "statement_timeout": f"{server.statement_s * 1000:.0f}",
            "lock_timeout": f"{server.lock_s * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{server.statement_s * 1000:.0f}",
            "datestyle": "ISO",
            "timezone": "UTC",
            "bytea_output": "hex",
        }.items():
            self._link.run("SELECT set_config(%s, %s, false)", (name, value))
        parts = [sql.Identifier(part) for part in target.table.split(".")]
        named = self._link.quoted(sql.SQL(".").join(parts))
        row = self._link.run(
            "SELECT c.oid::bigint, n.nspname FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
            (named,),
        ).fetchone()
        if row is None:
            raise SettingError(sentence("42P01", "", self._link.spot))
        oid, schema = row
        self._link.names = {
            "positions": sql.Identifier(schema, POSITIONS),
            "table": sql.Identifier(schema, target.table.rpartition(".")[2]),
        }
        self._columns = self._checked_columns(oid)
        self._check_key(oid)
        self._check_positions(schema)

    def _checked_columns(self, oid: int) -> list[ColumnOf]:
        there = {
            name: ColumnOf(name, shown, _takes(base, category))
            for name, shown, base, category in self._link.run(_COLUMNS, (oid,)).fetchall()
        }
        return self._target.columns_of(there)

    def _check_key(self, oid: int) -> None:
        if self._target.inserts_only:
            return
        keys = [key for (key,) in self._link.run(_KEYS, (oid,)).fetchall()]
        self._target.check_key(keys, made_by="CREATE UNIQUE INDEX")

    def _check_positions(self, schema: str) -> None:
        named = self._link.quoted(sql.Identifier(schema, POSITIONS))
        if self._is_there(named):
            return
        made = f"CREATE TABLE IF NOT EXISTS {named} ({POSITIONS_COLUMNS})"
        try:
            self._link.run("CREATE TABLE IF NOT EXISTS {positions} (" + POSITIONS_COLUMNS + ")")
        except (RowsRefusedError, SettingError) as error:
            # Another task has just created it; the error varies by the catalogue that raises it.
            if self._is_there(named):
                return
            raise SettingError(
                f"{self._server.user} may not create the table of positions: run"
                f" `{made}`, and GRANT SELECT, INSERT, UPDATE on it"
            ) from error

    def _is_there(self, named: str) -> bool:
        return self._link.run("SELECT to_regclass(%s)", (named,)).fetchone() != (None,)

    def _insert(self, rows: Sequence[Values]) -> None:
        names = _listed(self._target.columns)
        self._link.copy("COPY {table} ({names}) FROM STDIN", rows, names=names)

    def _change(self, changes: Sequence[RowChange]) -> None:
        """Change rows. Keys are compared by column type, where differing texts may be equal."""
        coming = [
            (*change.values, f"{index}")
            for index, change in enumerate(changes)
            if change.values is not None
        ]
        going = [
            (*change.key, f"{index}")
            for index, change in enumerate(changes)
            if change.values is None
        ]
        if coming:
            self._fill("incoming", self._target.columns, coming)
        if going:
            self._fill("leaving", self._target.key, going)
            self._take_away(is_more_to_come=bool(coming))
        if coming:
            self._put()

    def _put(self) -> None:
        rest = [name for name in self._target.columns if name not in self._target.key]
        sets = sql.SQL(", ").join(
            sql.SQL("{name} = EXCLUDED.{name}").format(name=sql.Identifier(name)) for name in rest
        )
        action = sql.SQL("DO UPDATE SET {}").format(sets) if rest else sql.SQL("DO NOTHING")
        self._link.run(
            "INSERT INTO {table} ({names}) SELECT {names} FROM pg_temp.incoming"
            " ON CONFLICT ({key}) {action}",
            names=_listed(self._target.columns),
            key=_listed(self._target.key),
            action=action,
        )

    def _take_away(self, *, is_more_to_come: bool) -> None:
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{name} = g.{name}").format(name=sql.Identifier(name))
            for name in self._target.key
        )
        if is_more_to_come:
            self._link.run(
                "DELETE FROM pg_temp.incoming t USING pg_temp.leaving g"
                " WHERE {same} AND t.{nth} < g.{nth}",
                same=same,
                nth=_NTH,
            )
        self._link.run("DELETE FROM {table} t USING pg_temp.leaving g WHERE {same}", same=same)

    def _fill(self, name: LiteralString, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Fill a temporary table with these columns, in the target's types, and _NTH."""
        made, names = sql.Identifier("pg_temp", name), _listed(columns)
        self._link.run(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {made} ON COMMIT DROP AS"
            " SELECT {names}, 0 AS {nth} FROM {table} WITH NO DATA; TRUNCATE {made}",
            made=made,
            names=names,
            nth=_NTH,
        )
        self._link.copy(
            "COPY {made} ({names}, {nth}) FROM STDIN", rows, made=made, names=names, nth=_NTH
        )


def _listed(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _takes(base: str, category: str) -> Takes:
    if base in {"json", "jsonb"}:
        return Takes.JSON
    if base == "bytea":
        return Takes.BYTES
    # Postgres' own categories for arrays and texts.
    return {"A": Takes.ARRAY, "S": Takes.TEXT}.get(category, Takes.PLAIN)
