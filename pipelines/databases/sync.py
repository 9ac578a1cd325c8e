"""Writes the events of a Kafka partition to a table, in order, each exactly once.

The position is in the table's database and moves in the transaction that writes the rows: events
before it are skipped, whatever Kafka's position is. A batch that the database refuses is halved
until the refused event is found; all others are written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.databases.database import OpenTable, PositionOf
from pipelines.databases.refusals import (
    POSITIONS,
    RowsRefusedError,
    SettingError,
    SlowError,
    shortened,
)
from pipelines.databases.rows import BadRowError, EventRows, RowChange, RowShape, newest

# The limits of one transaction.
ROWS_MAX = 10_000
BYTES_MAX = 8 * 1_048_576


@dataclass(frozen=True, slots=True)
class _EventChanges:
    """The changes to write for one event; empty if it cannot be a row."""

    offset: int
    changes: Sequence[RowChange]


class TablePosition:
    """One Kafka partition on its way into a table: a job's events, from begin to end."""

    def __init__(
        self,
        table: OpenTable,
        key: Sequence[str],
        place: PositionOf,
        begin: int,
        end: int,
        *,
        log_end: int | None = None,
    ) -> None:
        self._table = table
        self._shape = RowShape(table.columns, key)
        self._place = place
        self._end = end
        stand = table.stand(place, begin)
        if stand.next_offset > max(end, log_end or 0):
            raise SettingError(
                f"{POSITIONS} has {place.pipeline} at {stand.next_offset} of {place.topic}:"
                f"{place.partition}, beyond the end of the log: if the log was cut there, delete"
                " that row, or use another table"
            )
        self.next_offset = stand.next_offset
        self.written = 0
        # Events that an earlier task had already written, or found refused.
        self.skipped = 0
        # Why the database refuses events, by their offsets; including those that an earlier task
        # may not have reported.
        self.refused = {at: why for at, why in sorted(stand.refused.items()) if at >= begin}
        self._batch: list[_EventChanges] = []
        self._rows = self._byte_count = 0

    def take(self, event: EventRows) -> None:
        """Queue the event to be written; skip it if the table already has it."""
        if event.offset < self.next_offset:
            self.skipped += 1
            return
        changes = self._changes(event)
        self._batch.append(_EventChanges(event.offset, changes))
        self._rows += len(changes)
        self._byte_count += sum(change.byte_count for change in changes)
        if self._rows >= ROWS_MAX or self._byte_count >= BYTES_MAX:
            self._flush(event.offset + 1)

    def finish(self) -> None:
        """Move the position to the end, past events that need no write; call it last."""
        if self._batch or self.next_offset < self._end:
            self._flush(self._end)

    def _flush(self, next_offset: int) -> None:
        batch, self._batch = self._batch, []
        self._rows = self._byte_count = 0
        self._write(batch, next_offset)

    def _changes(self, event: EventRows) -> Sequence[RowChange]:
        try:
            return self._shape.changes(event)
        except BadRowError as error:
            self.refused[event.offset] = shortened(str(error))
            return ()

    def _write(self, batch: Sequence[_EventChanges], next_offset: int) -> None:
        """Write in one transaction, or in smaller ones if the database is too slow for that."""
        try:
            self._commit(batch, next_offset)
        except SlowError:
            if len(batch) <= 1:
                raise
            half = len(batch) // 2
            self._write(batch[:half], batch[half].offset)
            self._write(batch[half:], next_offset)

    def _commit(self, batch: Sequence[_EventChanges], next_offset: int) -> None:
        table, place = self._table, self._place
        table.start(place, self.next_offset, next_offset)
        try:
            refused = dict(self._refused_of([each for each in batch if each.changes]))
            known = {at: why for at, why in self.refused.items() if at < next_offset}
            table.commit(place, known | refused)
        except BaseException:
            table.roll_back()
            raise
        self.refused |= refused
        self.next_offset = next_offset
        self.written += sum(bool(each.changes) for each in batch) - len(refused)

    def _refused_of(self, batch: Sequence[_EventChanges]) -> Iterator[tuple[int, str]]:
        """Write the changes; yield the offset of each event that is refused, and why."""
        changes = newest([change for each in batch for change in each.changes])
        if not changes:
            return
        try:
            self._table.write(changes)
        except RowsRefusedError as error:
            if len(batch) == 1:
                yield batch[0].offset, shortened(str(error))
                return
            half = len(batch) // 2
            yield from self._refused_of(batch[:half])
            yield from self._refused_of(batch[half:])
