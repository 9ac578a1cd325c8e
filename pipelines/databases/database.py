"""Defines a database: a table that is written in transactions, together with the position.

All kinds of databases behave the same; a suite of tests checks that (tests/contract).
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
    """The place of a database, and the user to log in as; every address is allowed."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    addresses: tuple[str, ...]
    # off, require (any certificate), or verify (by the certificates that this machine trusts).
    tls: str = "verify"
    connect_s: float = 5.0
    # Requests take milliseconds; a longer one holds up everything that waits for it.
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
                f"table {self.table} has no unique index on ({listed}), which is needed to find"
                f" rows again: {made_by} ON {self.table} ({listed})"
            )


@dataclass(frozen=True, slots=True)
class PositionOf:
    """The owner of a position: a pipeline in a Kafka partition."""

    pipeline: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Stand:
    """The offset up to which the table has events, and why it refused others, by offset."""

    next_offset: int
    refused: Mapping[int, str] = field(default_factory=dict)


class OpenTable(Protocol):
    """A table of a database, over a connection of its own. Errors are those of refusals.py."""

    @property
    def columns(self) -> Sequence[ColumnOf]:
        """The columns of the target, as the table defines them."""

    def stand(self, place: PositionOf, begin: int) -> Stand:
        """Return the position; `begin` if none was ever written for this place."""

    def start(self, place: PositionOf, expected: int, next_offset: int) -> None:
        """Begin a transaction that moves the position; PositionMovedError if another task has."""

    def write(self, changes: Sequence[RowChange]) -> None:
        """Write all these in the transaction; after a RowsRefusedError, it still can be used."""

    def commit(self, place: PositionOf, refused: Mapping[int, str]) -> None:
        """Commit the transaction, with the refused events; after an error, it may be committed."""

    def roll_back(self) -> None:
        """Roll the transaction back."""

    def close(self) -> None:
        """Close the connection; never raises."""
