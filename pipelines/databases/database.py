"""Defines a database: a table that is written in transactions which hold the position.

Each kind of database behaves the same; a suite of tests checks that (tests/contract).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipelines.databases.refusals import SettingError, Spot
from pipelines.databases.rows import ColumnOf, RowChange

POSITIONS_COLUMNS = (
    "pipeline text NOT NULL, topic text NOT NULL, partition integer NOT NULL,"
    " next_offset bigint NOT NULL, refused text NOT NULL DEFAULT '',"
    " PRIMARY KEY (pipeline, topic, partition)"
)


@dataclass(frozen=True, slots=True)
class Server:
    """The place of a database, and the user who enters it; every address has been judged."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    addresses: tuple[str, ...]
    # off, require (whoever answers), or verify: by the certificates that this machine trusts.
    tls: str = "verify"
    connect_s: float = 5.0
    # Requests take milliseconds; a longer one holds up all that wait for it.
    statement_s: float = 10.0
    lock_s: float = 5.0

    def spot(self, table: str) -> Spot:
        return Spot(f"{self.host}:{self.port}", self.database, self.user, table)


@dataclass(frozen=True, slots=True)
class Target:
    """The columns to write, their table, and the key of its rows."""

    table: str
    columns: tuple[str, ...]
    # Empty when rows are only inserted.
    key: tuple[str, ...] = ()
    inserts_only: bool = False

    def columns_of(self, there: Mapping[str, ColumnOf]) -> list[ColumnOf]:
        """Pick the columns out of those that the table has; SettingError if one is missing."""
        for name in self.columns:
            if name not in there:
                raise SettingError(
                    f"table {self.table} has no column {name}: ALTER TABLE {self.table} ADD COLUMN"
                    f" {name} ..., or leave it out (with `select`)"
                )
        return [there[name] for name in self.columns]

    def check_key(self, unique: Sequence[Collection[str]], *, made_by: str) -> None:
        """Raise SettingError unless the table has a unique index of exactly the key."""
        if set(self.key) not in map(set, unique):
            listed = ", ".join(self.key)
            raise SettingError(
                f"table {self.table} has no unique index on ({listed}), by which rows are found"
                f" again: {made_by} ON {self.table} ({listed})"
            )


@dataclass(frozen=True, slots=True)
class PositionOf:
    """The owner of a position: a pipeline in a Kafka partition."""

    pipeline: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Stand:
    """The offset up to which the table has events, and those it refused, with its words."""

    next_offset: int
    refused: Mapping[int, str] = field(default_factory=dict)


class OpenTable(Protocol):
    """A table of a database, over a connection of its own. Errors are those of refusals.py."""

    @property
    def columns(self) -> Sequence[ColumnOf]:
        """The columns of the target, as the table has them."""

    def stand(self, place: PositionOf, begin: int) -> Stand:
        """Return the position; `begin` if nothing of this place was ever written."""

    def start(self, place: PositionOf, expected: int, next_offset: int) -> None:
        """Begin a transaction that moves the position; PositionMovedError if it has moved."""

    def write(self, changes: Sequence[RowChange]) -> None:
        """Within the transaction: write all of these; or raise RowsRefusedError and go on."""

    def commit(self, place: PositionOf, refused: Mapping[int, str]) -> None:
        """End it: all of it counts now, with the refused events. If this raises, it may count."""

    def roll_back(self) -> None:
        """End it: nothing of it counts."""

    def close(self) -> None:
        """Close the connection; never raises."""
