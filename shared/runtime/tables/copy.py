"""A copy of a table on this machine: an LMDB file with one writer and any number of readers.

The rows and their position change in one transaction, so a restarted process continues at the
copy's position. Readers map the file into memory: no process has its own rows. Every row is also
indexed by its last change, so that watchers can ask for rows newer than an offset.

Writes are not flushed to the disk: if a process dies, the kernel still has them. If the machine
dies, the copy may be damaged, and is rebuilt (`follower.py`). No other module imports lmdb.
"""

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import lmdb

# It returns bytes, because we ask for no buffers; its types do not say so.
_Transaction: TypeAlias = Any
# The number of processes of a machine that look up rows, times their threads.
_READERS_MAX = 2_048
# A reader's map has room for a table whose limit was raised, until the reader learns of the new
# limit. The map takes addresses, and no memory.
_GROWTH_MAX = 8
_DATABASES = ("rows", "changes", "gone", "facts")
# The size of a file, as a multiple of its table's limit. LMDB writes a changed page to another
# place before it frees the old one. A batch that is written before the table counts as full still
# fits, so that deletions can follow it.
_ROOM = 2
# A row's offset and Kafka's time for it, stored before its JSON.
_STAMP = struct.Struct(">QQ")
_NUMBER = struct.Struct(">Q")
# The bytes beside a row: its stamp, its offset, and the heads of two entries with 8 bytes each.
_BESIDE = _STAMP.size + _NUMBER.size + 2 * 8
_POSITION, _TIME, _WHOLE, _GONE_FROM, _FORM = b"position", b"time", b"whole", b"gone-from", b"form"
_TOPIC = b"topic"
# A file with another number has another format, and is rebuilt.
_FORM_NOW = 1
# The deletions kept for watchers; a watcher that has missed more of them starts from scratch.
_GONE_MAX = 10_000
# A page of rows ends at this many rows, or at this many bytes.
PAGE_ROWS_MAX, _PAGE_BYTES_MAX = 1_000, 1_048_576
# A page ends after this many rows have been checked.
_SEEN_MAX = 10_000
_TIME_MS_MAX = 2**63


class DamagedError(Exception):
    """The copy cannot be read (any more) and must be rebuilt."""


class ClosedError(Exception):
    """The copy was closed, because another one replaces it: ask the new one."""


class FullError(Exception):
    """The table has no room left."""


class Row(NamedTuple):
    """The last version of a row; a row without a value was deleted."""

    key: str
    value: bytes
    offset: int
    time_ms: int


class Change(NamedTuple):
    """A record of the table's topic; no value deletes the row."""

    key: bytes
    value: bytes
    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The end of a copy: the offset after its last record, and Kafka's time for that record."""

    offset: int
    time_ms: int
    # Whether it has ever caught up: until then it proves nothing about any row.
    is_whole: bool


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows, and the key after which there may be more; None at the end."""

    rows: Sequence[Row]
    more_after: str | None
    extent: Extent


@dataclass(frozen=True, slots=True)
class News:
    """The changes since an offset, each row once, in the order of the last changes."""

    rows: Sequence[Row]
    # The offset after the last change here; less than the copy's end if there are more.
    until: int
    # Whether there were more deletions than are kept: rows that are not listed may be gone.
    misses_some: bool


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except lmdb.MapFullError as error:
        raise FullError(str(error)) from error
    except (lmdb.Error, struct.error) as error:
        raise DamagedError(str(error)) from error


class TableCopy:
    """Reads a copy. Each query sees a consistent snapshot."""

    def __init__(self, folder: Path, *, bytes_max: int, is_writer: bool = False) -> None:
        with _damage():
            self._file = lmdb.open(
                str(folder),
                max_dbs=len(_DATABASES),
                max_readers=_READERS_MAX,
                map_size=(_ROOM if is_writer else _GROWTH_MAX) * bytes_max,
                readonly=not is_writer,
                create=is_writer,
                # The kernel keeps the writes of a killed process.
                sync=False,
                # Readers come and go in one thread.
                max_spare_txns=4,
            )
            try:
                self._rows, self._changes, self._gone, self._facts = (
                    self._file.open_db(name.encode(), create=is_writer) for name in _DATABASES
                )
            except lmdb.Error:
                self._file.close()
                raise

        # Closing waits for readers in other threads.
        self._door = threading.Condition()
        self._reader_count = 0
        self._is_closed = False

    def close(self) -> None:
        with self._door:
            self._is_closed = True
            self._door.wait_for(lambda: not self._reader_count)
        self._file.close()

    def extent(self) -> Extent:
        with self._reading() as reading:
            return self._extent(reading)

    def row(self, key: str) -> tuple[Row | None, Extent]:
        with self._reading() as reading:
            raw = reading.get(key.encode(), db=self._rows)
            return None if raw is None else _row(key.encode(), raw), self._extent(reading)

    def look_up(
        self, keys: Sequence[bytes], *, since_ms: int = 0
    ) -> tuple[list[bytes | None], Extent]:
        """Return the value of each key's row, if it was not written before a time."""
        values: list[bytes | None] = []
        with self._reading() as reading:
            for key in keys:
                raw = reading.get(key, db=self._rows)
                is_row = raw is not None and _STAMP.unpack_from(raw)[1] >= since_ms
                values.append(raw[_STAMP.size :] if is_row else None)
            return values, self._extent(reading)

    def page(
        self,
        begin: str = "",
        end: str | None = None,
        *,
        limit: int = PAGE_ROWS_MAX,
        is_wanted: Callable[[Row], bool] = lambda _: True,
    ) -> RowPage:
        """Return the rows from a key on and before another one, in the order of keys."""
        rows: list[Row] = []
        before = more_after = None
        byte_count = seen = 0
        last = None if end is None else end.encode()
        with self._reading() as reading, reading.cursor(db=self._rows) as cursor:
            extent = self._extent(reading)
            is_there = cursor.set_range(begin.encode()) if begin else cursor.first()
            while is_there:
                key, raw = cursor.item()
                if last is not None and key >= last:
                    break
                is_full = rows and byte_count + len(raw) > _PAGE_BYTES_MAX
                if is_full or len(rows) >= limit or seen >= _SEEN_MAX:
                    more_after = before
                    break
                row = _row(key, raw)
                before, seen = row.key, seen + 1
                if is_wanted(row):
                    rows.append(row)
                    byte_count += len(raw)
                is_there = cursor.next()
        return RowPage(rows, more_after, extent)

    def news(self, since: int, *, limit: int = PAGE_ROWS_MAX) -> News:
        """Return the changes at an offset or after it."""
        with self._reading() as reading:
            until = self._extent(reading).offset
            misses_some = since < _number(reading.get(_GONE_FROM, db=self._facts))
            begin, byte_count = _NUMBER.pack(since), 0
            with (
                reading.cursor(db=self._changes) as changes,
                reading.cursor(db=self._gone) as gone,
            ):
                are_there = [changes.set_range(begin), gone.set_range(begin)]
                rows: list[Row] = []
                while any(are_there):
                    is_gone = are_there[1] and (not are_there[0] or gone.key() < changes.key())
                    cursor = gone if is_gone else changes
                    at, key = cursor.item()
                    if len(rows) >= limit or byte_count > _PAGE_BYTES_MAX:
                        return News(rows, _number(at), misses_some)
                    if is_gone:
                        key, time_ms = key[: -_NUMBER.size], _number(key[-_NUMBER.size :])
                        rows.append(Row(key.decode(errors="replace"), b"", _number(at), time_ms))
                    else:
                        rows.append(_row(key, reading.get(key, db=self._rows)))
                    byte_count += len(rows[-1].value)
                    are_there[is_gone] = cursor.next()
        return News(rows, until, misses_some)

    def used_bytes(self) -> int:
        """Return the bytes of rows and their indexes, without the free space between them."""
        with self._reading() as reading:
            each = [reading.stat(db) for db in (self._rows, self._changes, self._gone)]
            return sum(
                one["psize"] * (one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"])
                for one in each
            )

    @contextmanager
    def _reading(self) -> Iterator[_Transaction]:
        with self._door:
            if self._is_closed:
                raise ClosedError
            self._reader_count += 1
        try:
            with _damage(), self._file.begin() as reading:
                yield reading
        finally:
            with self._door:
                self._reader_count -= 1
                self._door.notify_all()

    def _extent(self, reading: _Transaction) -> Extent:
        position, time_ms, whole = (
            reading.get(name, db=self._facts) for name in (_POSITION, _TIME, _WHOLE)
        )
        return Extent(_number(position), _number(time_ms), is_whole=whole is not None)


class WrittenCopy(TableCopy):
    """A copy of the topic with a given id, which one process at a time writes."""

    def __init__(self, folder: Path, *, bytes_max: int, topic_id: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, bytes_max=bytes_max, is_writer=True)
        form, topic = _NUMBER.pack(_FORM_NOW), topic_id.encode()
        with self._writing() as writing:
            form_before = writing.get(_FORM, db=self._facts, default=form)
            topic_before = writing.get(_TOPIC, db=self._facts, default=topic)
            writing.put(_FORM, form, db=self._facts)
            writing.put(_TOPIC, topic, db=self._facts)
        if form_before != form:
            self.close()
            raise DamagedError(f"it has format {_number(form_before)} instead of {_FORM_NOW}")
        if topic_before != topic:
            self.close()
            raise DamagedError("its topic was deleted and created again")

    def take(self, changes: Sequence[Change], position: int) -> None:
        """Enter records and the position after them, in one transaction."""
        last: dict[bytes, Change] = {}
        for change in changes:
            # Keep the order of offsets, and only the last change of each key.
            last.pop(change.key, None)
            last[change.key] = change
        with self._writing() as writing:
            for change in last.values():
                self._enter(writing, change)
            writing.put(_POSITION, _NUMBER.pack(position), db=self._facts)
            if changes:
                writing.put(_TIME, _NUMBER.pack(changes[-1].time_ms), db=self._facts)
            self._forget_gone(writing)

    def be_whole(self) -> None:
        """Mark the copy as complete."""
        with self._writing() as writing:
            writing.put(_WHOLE, b"", db=self._facts)

    def expire(self, before_ms: int, *, limit: int) -> int:
        """Delete up to `limit` rows that were written before a time; return their number."""
        count = 0
        with self._writing() as writing, writing.cursor(db=self._changes) as oldest:
            while count < limit and oldest.first():
                key = oldest.value()
                raw = writing.get(key, db=self._rows)
                if raw is not None and _STAMP.unpack_from(raw)[1] >= before_ms:
                    break
                writing.delete(key, db=self._rows)
                oldest.delete()
                count += 1
        return count

    def free_dead_readers(self) -> None:
        """Free the pages of killed readers."""
        with _damage():
            self._file.reader_check()

    def bring_to_disk(self) -> None:
        with _damage():
            self._file.sync(True)

    def _enter(self, writing: _Transaction, change: Change) -> None:
        at = _NUMBER.pack(change.offset)
        before = writing.get(change.key, db=self._rows)
        if before is not None:
            writing.delete(before[: _NUMBER.size], db=self._changes)
        time_ms = min(max(change.time_ms, 0), _TIME_MS_MAX)
        if change.value:
            stamped = _STAMP.pack(change.offset, time_ms) + change.value
            writing.put(change.key, stamped, db=self._rows)
            writing.put(at, change.key, db=self._changes, append=True)
        elif before is not None:
            writing.delete(change.key, db=self._rows)
            writing.put(at, change.key + _NUMBER.pack(time_ms), db=self._gone, append=True)

    def _forget_gone(self, writing: _Transaction) -> None:
        too_many = writing.stat(self._gone)["entries"] - _GONE_MAX
        if too_many <= 0:
            return
        with writing.cursor(db=self._gone) as oldest:
            for _ in range(too_many):
                oldest.first()
                forgotten = _number(oldest.key())
                oldest.delete()
        writing.put(_GONE_FROM, _NUMBER.pack(forgotten + 1), db=self._facts)

    @contextmanager
    def _writing(self) -> Iterator[_Transaction]:
        with _damage(), self._file.begin(write=True) as writing:
            yield writing


def room_of(key: bytes, value: bytes | None) -> int:
    """Return the bytes of a row, with its entry in the index of changes and LMDB's overhead."""
    return len(value) + 2 * len(key) + _BESIDE if value else 0


def _row(key: bytes, raw: bytes) -> Row:
    offset, time_ms = _STAMP.unpack_from(raw)
    return Row(key.decode(errors="replace"), raw[_STAMP.size :], offset, time_ms)


def _number(raw: bytes | None) -> int:
    number: int = _NUMBER.unpack(raw)[0] if raw else 0
    return number
