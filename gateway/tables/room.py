"""Says whether rows still fit into a table, those included that its copy does not have yet.

A copy is a moment behind what Kafka has. Without a look at what was stored meanwhile, many writes
at once would go far beyond what the table may take, and its copy would stand still.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.intake.events import Event
from gateway.problems import Problem
from gateway.publish.report import Fate, Report
from shared.config.table import Table
from shared.runtime.tables.copy import ClosedError, DamagedError, TableCopy, room_of
from shared.runtime.tables.folders import TableCopies

# Beyond this part of its bytes a table takes nothing but deletions.
_FULL_PART = 0.9
SOON = ((b"retry-after", b"1"),)


@dataclass(slots=True)
class _Ahead:
    """What this gateway has written to a table, and its copy does not have."""

    # Not reported yet.
    sent: int = 0
    # Stored up to an offset; and what came later, up to another.
    stored: int = 0
    until: int = 0
    later_stored: int = 0
    later_until: int = 0

    @property
    def byte_count(self) -> int:
        return self.sent + self.stored + self.later_stored

    def note(self, byte_count: int, until: int) -> None:
        """So much was stored up to an offset."""
        if self.stored:
            self.later_stored += byte_count
            self.later_until = max(self.later_until, until)
        else:
            self.stored, self.until = byte_count, until

    def forget(self, offset: int) -> None:
        """What the copy has that goes up to an offset."""
        if offset >= self.until:
            self.stored, self.until = self.later_stored, self.later_until
            self.later_stored = self.later_until = 0
        if offset >= self.until:
            self.stored = 0


@dataclass(slots=True)
class Rooms:
    """The room that each table has left."""

    copies: TableCopies
    # By topic; those that are not ahead of their copies are left out.
    _ahead: dict[str, _Ahead] = field(default_factory=dict)

    @contextmanager
    def of(self, table: Table, rows: Sequence[Event]) -> Iterator[list[Report]]:
        """While rows are written; Problem if there is no room. Give it what became of them."""
        ahead = self._ahead.setdefault(table.topic, _Ahead())
        reports: list[Report] = []
        growth = 0
        try:
            if any(row.value for row in rows):
                growth = self._checked(table, rows, ahead)
            ahead.sent += growth
            yield reports
        finally:
            ahead.sent -= growth
            if growth and (ends := [_end(it) for it in reports if it.fate is Fate.STORED]):
                ahead.note(growth, max(ends))
            if not ahead.byte_count:
                self._ahead.pop(table.topic, None)

    def _checked(self, table: Table, rows: Sequence[Event], ahead: _Ahead) -> int:
        """How much more the table takes with the rows."""
        values = {row.key or b"": row.value for row in rows}
        growth = sum(room_of(key, value) for key, value in values.items())
        used = 0
        try:
            if (found := self.copies.of(table)) is not None:
                growth, used = growth - _taken(found.copy, list(values)), found.copy.used_bytes()
                ahead.forget(found.copy.extent().offset)
        except (ClosedError, DamagedError):
            # Another takes its place.
            pass
        growth, most = max(0, growth), _FULL_PART * table.bytes_max
        if used + max(1, growth) > most or self.copies.is_full(table):
            detail = f"The rows of this table take what they may ({table.bytes_max} bytes,"
            raise Problem("table_full", f"{detail} bytes_max): delete some, or give it more.")
        if used + ahead.byte_count + growth > most:
            detail = "There may be no room for these rows: this machine's copy of the table does"
            raise Problem("table_not_ready", f"{detail} not have the last ones yet.", headers=SOON)
        return growth


def _taken(copy: TableCopy, keys: Sequence[bytes]) -> int:
    """What the rows take now that are written anew."""
    values, _ = copy.look_up(keys)
    return sum(room_of(key, value) for key, value in zip(keys, values, strict=True))


def _end(report: Report) -> int:
    return (report.first_offset or 0) + len(report.positions)
