"""Connects to Postgres: each call ends in time, and each error is in plain words.

libpq reads no settings or secrets for the server from this machine's files or environment. A server
that ignores its own timeouts is cut off.
"""

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from pipelines.databases.database import Server
from pipelines.databases.refusals import (
    AwayError,
    DatabaseError,
    Fault,
    RowsRefusedError,
    SettingError,
    SlowError,
    Spot,
    fault_of,
    sentence,
)
from pipelines.databases.rows import Value

_TLS = {"off": "disable", "require": "require", "verify": "verify-full"}
# The server's own timeouts come first, and leave the connection usable.
_MARGIN_S = 2.0
# libpq gives no code for errors before the login has succeeded.
_CODES_BY_WORDS = (
    (re.compile(r"password authentication failed"), "28P01"),
    (re.compile(r'database ".*" does not exist'), "3D000"),
    (
        re.compile(r'no pg_hba\.conf entry|role ".*" does not exist|not permitted to log in'),
        "28000",
    ),
)
_WAY_THERE = re.compile(r"^.*(FATAL: +|ERROR: +|failed: )", re.DOTALL)
_ERRORS: dict[Fault, type[DatabaseError]] = {
    Fault.ROW: RowsRefusedError,
    Fault.SETTING: SettingError,
    Fault.AWAY: AwayError,
    Fault.SLOW: SlowError,
}


class PostgresLink:
    """Runs statements; names are quoted into them, and values never become part of them."""

    def __init__(self, server: Server, table: str) -> None:
        self._server = server
        self.spot = server.spot(table)
        # The objects that {name} stands for in the statements below, quoted.
        self.names: dict[str, sql.Composable] = {}
        with self._told():
            self._connection = _connected(server)

    def run(
        self, statement: LiteralString, values: Sequence[Any] = (), **names: sql.Composable
    ) -> "psycopg.Cursor[Any]":
        with self._told(), self._bounded():
            asked = sql.SQL(statement).format(**self.names, **names)
            return self._connection.execute(asked, values or None)

    def copy(
        self, statement: LiteralString, rows: Sequence[Sequence[Value]], **names: sql.Composable
    ) -> None:
        with self._told(), self._bounded(), self._connection.cursor() as cursor:
            asked = sql.SQL(statement).format(**self.names, **names)
            with cursor.copy(asked) as copying:
                for row in rows:
                    copying.write_row(row)

    def quoted(self, name: sql.Composable) -> str:
        return name.as_string(self._connection)

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise _as_ours(error, self.spot) from error

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        cutting = Timer(self._server.statement_s + _MARGIN_S, _cut_off, [self._connection])
        cutting.daemon = True
        cutting.start()
        try:
            yield
        finally:
            cutting.cancel()


def _connected(server: Server) -> "psycopg.Connection[Any]":
    return psycopg.connect(
        host=",".join([server.host] * len(server.addresses)),
        hostaddr=",".join(server.addresses),
        port=server.port,
        dbname=server.database,
        user=server.user,
        password=server.password,
        sslmode=_TLS[server.tls],
        sslrootcert="system" if server.tls == "verify" else "/dev/null/none",
        autocommit=True,
        connect_timeout=max(2, round(server.connect_s)),
        application_name="hifi",
        client_encoding="UTF8",
        passfile="/dev/null/none",
        sslcert="/dev/null/none",
        sslkey="/dev/null/none",
        options="",
        gssencmode="disable",
        target_session_attrs="any",
        tcp_user_timeout=round(1000 * server.statement_s),
        # Do not prepare statements: the server may be behind a load balancer.
        prepare_threshold=None,
    )


def _cut_off(connection: "psycopg.Connection[Any]") -> None:
    with (
        suppress(OSError, psycopg.Error),
        socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy,
    ):
        copy.shutdown(socket.SHUT_RDWR)


def _as_ours(error: psycopg.Error, spot: Spot) -> DatabaseError:
    code, words = error.sqlstate, error.diag.message_primary
    if code is None and isinstance(error, psycopg.DataError):
        # The value was not sent: a text with a NUL in it, for example.
        return RowsRefusedError(str(error))
    if code is None:
        # Keep only the server's own words: tenants must not learn the network path to it.
        words = _WAY_THERE.sub("", str(error))
        code = next((code for pattern, code in _CODES_BY_WORDS if pattern.search(words)), None)
    kind = _ERRORS[fault_of(code)]
    if kind is not RowsRefusedError:
        return kind(sentence(code, words or "", spot))
    texts = [words, error.diag.message_detail, error.diag.context]
    return kind(": ".join(text for text in texts if text))
