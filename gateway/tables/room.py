"""Checks that rows still fit into a table, including rows that its copy does not have yet.

A copy is a moment behind Kafka. If only its rows counted, many writes at once could exceed the
table's bound by far, and its copy would stop.
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

# Beyond this part of its bytes, a table accepts only deletions.
_FULL_PART = 0.9
# A gateway process does not see what others have written ahead of the copy. So each writes at most
# this part ahead, or one request: eight processes together stay within the copy's room.
_AHEAD_PART = 0.125
SOON = ((b"retry-after", b"1"),)


@dataclass(slots=True)
class _Ahead:
    """Bytes that this gateway has written to a table, and that the copy does not have yet."""

    # Bytes that Kafka has not reported on.
    sent: int = 0
    # Bytes stored up to an offset, and bytes stored after it, up to a later offset.
    stored: int = 0
    until: int = 0
    later_stored: int = 0
    later_until: int = 0

    @property
    def byte_count(self) -> int:
        return self.sent + self.stored + self.later_stored

    def note(self, byte_count: int, until: int) -> None:
        """Add bytes that were stored up to an offset."""
        if self.stored:
            self.later_stored += byte_count
            self.later_until = max(self.later_until, until)
        else:
            self.stored, self.until = byte_count, until

    def forget(self, offset: int) -> None:
        """Subtract the bytes that a copy up to this offset has."""
        if offset >= self.until:
            self.stored, self.until = self.later_stored, self.later_until
            self.later_stored = self.later_until = 0
        if offset >= self.until:
            self.stored = 0


@dataclass(slots=True)
class Rooms:
    """The space that each table has left."""

    copies: TableCopies
    # By topic; only tables that are ahead of their copies.
    _ahead: dict[str, _Ahead] = field(default_factory=dict)

    @contextmanager
    def of(self, table: Table, rows: Sequence[Event]) -> Iterator[list[Report]]:
        """Reserve space while rows are written, or refuse them; the block fills in the reports."""
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
            if growth and (
                ends := [_end(report) for report in reports if report.fate is Fate.STORED]
            ):
                ahead.note(growth, max(ends))
            if not ahead.byte_count:
                self._ahead.pop(table.topic, None)

    def _checked(self, table: Table, rows: Sequence[Event], ahead: _Ahead) -> int:
        """Return by how many bytes the rows make the table grow; refuse them if it has no space."""
        values = {row.key or b"": row.value for row in rows}
        growth = sum(room_of(key, value) for key, value in values.items())
        used = 0
        try:
            if (opened := self.copies.of(table)) is not None:
                growth, used = growth - _taken(opened.copy, list(values)), opened.copy.used_bytes()
                ahead.forget(opened.copy.extent().offset)
        except (ClosedError, DamagedError):
            # Another copy will replace it.
            pass
        growth, most = max(0, growth), _FULL_PART * table.bytes_max
        if used + max(1, growth) > most or self.copies.is_full(table):
            detail = f"The table has reached its limit ({table.bytes_max} bytes,"
            raise Problem("table_full", f"{detail} bytes_max): delete rows, or raise the limit.")
        is_far = ahead.byte_count and ahead.byte_count + growth > _AHEAD_PART * table.bytes_max
        if is_far or used + ahead.byte_count + growth > most:
            detail = "There may be no space for these rows: this machine's copy of the table does"
            raise Problem("table_not_ready", f"{detail} not have all rows yet.", headers=SOON)
        return growth


def _taken(copy: TableCopy, keys: Sequence[bytes]) -> int:
    """Return the bytes that the current versions of the rows take."""
    values, _ = copy.look_up(keys)
    return sum(room_of(key, value) for key, value in zip(keys, values, strict=True))


def _end(report: Report) -> int:
    return (report.first_offset or 0) + len(report.positions)
