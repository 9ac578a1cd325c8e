"""What is asked of a database: a table that is written in transactions which hold the position.

Each kind of database does the same, which a suite of tests holds them to (tests/contract).
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
    """Where a database is, and who enters it; every address has been judged."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    addresses: tuple[str, ...]
    # off, require (whoever answers), or verify: by the certificates that this machine trusts.
    tls: str = "verify"
    connect_s: float = 5.0
    # What is asked of it takes milliseconds; what takes longer holds up whoever waits.
    statement_s: float = 10.0
    lock_s: float = 5.0

    def spot(self, table: str) -> Spot:
        return Spot(f"{self.host}:{self.port}", self.database, self.user, table)


@dataclass(frozen=True, slots=True)
class Target:
    """What is written: which columns of which table, and by what its rows are known."""

    table: str
    columns: tuple[str, ...]
    # Empty when rows are inserted only.
    key: tuple[str, ...] = ()
    inserts_only: bool = False

    def columns_of(self, there: Mapping[str, ColumnOf]) -> list[ColumnOf]:
        """Its columns, out of those that the table has; SettingError if one is missing."""
        for name in self.columns:
            if name not in there:
                raise SettingError(
                    f"table {self.table} has no column {name}: ALTER TABLE {self.table} ADD COLUMN"
                    f" {name} ..., or leave it out (with `select`)"
                )
        return [there[name] for name in self.columns]

    def check_key(self, unique: Sequence[Collection[str]], *, made_by: str) -> None:
        """SettingError unless one of the table's unique indexes is of just its key."""
        if set(self.key) not in map(set, unique):
            listed = ", ".join(self.key)
            raise SettingError(
                f"table {self.table} has no unique index on ({listed}), by which rows are found"
                f" again: {made_by} ON {self.table} ({listed})"
            )


@dataclass(frozen=True, slots=True)
class PositionOf:
    """Whose position it is: of a pipeline in a Kafka partition."""

    pipeline: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Stand:
    """Up to where the table has it, and what of that it refused, with the server's words."""

    next_offset: int
    refused: Mapping[int, str] = field(default_factory=dict)


class OpenTable(Protocol):
    """A table of a database, over a connection of its own. Errors are those of refusals.py."""

    @property
    def columns(self) -> Sequence[ColumnOf]:
        """The columns of the target, as the table has them."""

    def stand(self, place: PositionOf, begin: int) -> Stand:
        """Where it is; `begin` if nothing of this place was ever written."""

    def start(self, place: PositionOf, expected: int, next_offset: int) -> None:
        """Begin a transaction that moves the position; PositionMovedError if it has moved."""

    def write(self, changes: Sequence[RowChange]) -> None:
        """Within it: all of these, or RowsRefusedError and none, and the transaction goes on."""

    def commit(self, place: PositionOf, refused: Mapping[int, str]) -> None:
        """End it: all of it counts now, with what was refused. If this raises, it may count."""

    def roll_back(self) -> None:
        """End it: nothing of it ever was."""

    def close(self) -> None:
        """Never raises."""
