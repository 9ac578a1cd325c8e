"""Keeps batches on disk until the gateway has them: append-only, checked, bounded, one owner.

A batch survives this process once `append` has returned. If a process is killed before it notes a
sent batch as done, the next one sends it again, with the same ids.
"""

import contextlib
import errno
import fcntl
import json
import os
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from hifi_client.errors import SpoolError, SpoolFullError
from hifi_client.spooling.segment import DAMAGED_SUFFIX, SUFFIX, DamageError, Frame, Place, Segment

# A segment's space is freed only when all of it is done, so there must be several.
_SEGMENTS = 16
_SEGMENT_BYTES_MAX = 64_000_000
# A segment, an offset, and the checksum of both.
_POSITION = struct.Struct(">QQI")
_LOCK, _POSITION_FILE, _REFUSED = "lock", "position", "refused.ndjson"


class Spool:
    """The folder of one sender. Batches leave it in the order in which they arrived."""

    def __init__(self, folder: Path, *, stream: str, bytes_max: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._stream, self._bytes_max = folder, stream, bytes_max
        self._segment_bytes_max = min(bytes_max // _SEGMENTS, _SEGMENT_BYTES_MAX)
        self._changed = threading.Condition()
        self._lock = _own(folder)
        self._segments: dict[int, Segment] = {}
        # Batches in flight, in order, and those of them that are done.
        self._taken: deque[tuple[Place, int]] = deque()
        self._done: set[Place] = set()
        # Batches in flight that nobody posts any more.
        self._given_back: deque[Frame] = deque()
        self._active: Segment | None = None
        self._is_closed = self._is_ending = False
        # Bytes that belonged to no valid batch; they are kept in a separate file.
        self.damaged_bytes = 0
        try:
            self._position_file = os.open(
                folder / _POSITION_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            self._next = self._open_segments()
            self._refused = (folder / _REFUSED).open("ab", buffering=0)
        except BaseException:
            self._lock.close()
            raise
        self._aside_bytes = self._refused.tell() + sum(
            each.stat().st_size for each in folder.glob(f"*{DAMAGED_SUFFIX}")
        )

    @property
    def used_bytes(self) -> int:
        """The bytes that the spool takes on disk, including refused events."""
        return self._aside_bytes + sum(each.size for each in self._segments.values())

    def is_empty(self) -> bool:
        """Return whether every spooled event is in the log or was refused."""
        with self._changed:
            return not self._taken and self._skip_ends() is None

    def append(self, bodies: Sequence[bytes], written: Callable[[list[Place]], None]) -> None:
        """Write batches to disk, either all of them or none; they are safe once this returns.

        `written` is called before any thread can take them.
        """
        with self._changed:
            needed = sum(map(len, bodies))
            if self.used_bytes + needed > self._bytes_max and self.used_bytes:
                raise SpoolFullError(
                    f"The spool {self._folder} has {self.used_bytes:,} of"
                    f" {self._bytes_max:,} bytes: events wait in memory until some are sent."
                )
        try:
            with self._changed:
                segment = self._writable()
            # Nobody reads beyond `size`, which grows only when all batches are on disk.
            end, places = segment.size, []
            for body in bodies:
                places.append(Place(segment.number, end))
                end = segment.write(end, body)
            segment.sync()
        except OSError as error:
            with self._changed:
                self._give_up_active()
            raise SpoolFullError(f"{self._folder} cannot be written ({error}).") from error
        with self._changed:
            written(places)
            segment.size = end
            self._changed.notify_all()

    def take(self, *, timeout_s: float) -> Frame | None:
        """Return the next batch that nobody has taken; None if there is none in time."""
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._is_ending:
                if self._given_back:
                    return self._given_back.popleft()
                frame = self._read_next()
                if frame is not None:
                    self._taken.append((frame.place, frame.end))
                    return frame
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return None
                self._changed.wait(left_s)
            return None

    def done(self, place: Place) -> None:
        """Mark a batch as done: the gateway has accepted or refused all of it."""
        with self._changed:
            if self._is_closed:
                return
            self._done.add(place)
            self._advance()
            self._changed.notify_all()

    def give_back(self, frame: Frame) -> None:
        """Let another thread take a batch again that was not posted."""
        with self._changed:
            self._given_back.append(frame)
            self._changed.notify_all()

    def set_aside(self, refused: Sequence[tuple[bytes, str, str]]) -> None:
        """Keep refused events for a person, each with code and reason.

        Raise SpoolFullError if the disk does not take them; then none is kept.
        """
        lines = [
            b'{"code":%b,"reason":%b,"event":%b}\n'
            % (json.dumps(code).encode(), json.dumps(reason).encode(), line)
            for line, code, reason in refused
        ]
        data, file = b"".join(lines), self._refused
        with self._changed:
            end = file.tell()
            try:
                _write_synced(file, data)
            except OSError as error:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise SpoolFullError(f"{self._folder} cannot be written ({error}).") from error
            self._aside_bytes += len(data)

    def end(self) -> None:
        """Hand out no more batches; those in flight can still be marked as done."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Release the lock in a forked child, where it must not outlive its owner."""
        self._lock.close()

    def wait_for_room(self, timeout_s: float) -> None:
        with self._changed:
            if not self._is_closed:
                self._changed.wait(timeout_s)

    def close(self) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
            if not self._taken and self._skip_ends() is None:
                for segment in self._segments.values():
                    segment.path.unlink()
            for segment in self._segments.values():
                segment.close()
            os.close(self._position_file)
            self._refused.close()
            # A forked child that has not run yet has the file open, too.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()

    def _writable(self) -> Segment:
        if self._active is None or self._active.size >= self._segment_bytes_max:
            number = max(self._segments, default=self._next.segment) + 1
            path = self._folder / f"{number:020}{SUFFIX}"
            self._active = Segment(path, self._stream, is_new=True)
            self._active.sync()
            _sync_folder(self._folder)
            self._segments[number] = self._active
        return self._active

    def _give_up_active(self) -> None:
        """Stop using the active file after a failed write or fsync: its content is unknown."""
        if self._active is not None:
            with contextlib.suppress(OSError):
                self._active.cut(self._active.size)
            self._active = None

    def _read_next(self) -> Frame | None:
        """Return the next batch to take, skipping damaged and finished ones."""
        while (segment := self._skip_ends()) is not None:
            offset = self._next.offset
            try:
                frame = segment.read(offset)
            except DamageError:
                self._skip_damage(segment)
                continue
            if frame is None:
                # An incomplete batch, which was never reported as spooled.
                self._next = Place(segment.number, segment.size)
                continue
            self._next = Place(segment.number, frame.end)
            return frame
        return None

    def _skip_ends(self) -> Segment | None:
        """Return the segment with the next batch; None if there is none."""
        while True:
            segment = self._segments.get(self._next.segment)
            if segment is not None and self._next.offset < segment.size:
                return segment
            later = [number for number in self._segments if number > self._next.segment]
            if not later:
                return None
            self._next = Place(min(later), self._segments[min(later)].begin)

    def _skip_damage(self, segment: Segment) -> None:
        damage = self._next
        end = segment.next_magic(damage.offset) or segment.size
        segment.keep_aside(damage.offset, end)
        self.damaged_bytes += end - damage.offset
        self._aside_bytes += end - damage.offset
        self._next = Place(segment.number, end)
        # Treat it as a batch that is done, so that it is not kept aside again.
        self._taken.append((damage, end))
        self._done.add(damage)
        self._advance()

    def _advance(self) -> None:
        """Move the position past done batches, up to the first gap."""
        end: Place | None = None
        while self._taken and self._taken[0][0] in self._done:
            begun, end_offset = self._taken.popleft()
            self._done.discard(begun)
            end = Place(begun.segment, end_offset)
        if end is not None:
            # A full disk may refuse the position; then some events repeat after a restart.
            with contextlib.suppress(OSError):
                self._note(end)
            self._remove_before(end)

    def _remove_before(self, end: Place) -> None:
        """Delete finished segments, but the active one only once it is full."""
        for number in sorted(self._segments):
            segment = self._segments[number]
            is_done = number < end.segment or (number == end.segment and end.offset >= segment.size)
            if not is_done:
                return
            if segment is self._active:
                if segment.size < self._segment_bytes_max:
                    return
                self._active = None
            del self._segments[number]
            segment.remove()

    def _note(self, end: Place) -> None:
        """Write the position, without fsync: losing it only makes events repeat, with their ids."""
        numbers = struct.pack(">QQ", end.segment, end.offset)
        data = numbers + struct.pack(">I", zlib.crc32(numbers))
        os.pwrite(self._position_file, data, 0)

    def _open_segments(self) -> Place:
        """Open the segments of an earlier process; return where to continue."""
        data = os.pread(self._position_file, _POSITION.size, 0)
        noted = Place(0, 0)
        if len(data) == _POSITION.size and zlib.crc32(data[:16]) == _POSITION.unpack(data)[2]:
            noted = Place(*_POSITION.unpack(data)[:2])
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            segment = Segment(path, self._stream, is_new=False)
            is_done = Place(segment.number, segment.size) <= noted
            if is_done or segment.size <= segment.begin:
                segment.remove()
            else:
                self._segments[segment.number] = segment
        return noted


def _own(folder: Path) -> BinaryIO:
    """Lock a folder; the system releases the lock when this process ends, however it ends."""
    lock = (folder / _LOCK).open("a+b")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().decode(errors="replace") or "another"
        lock.close()
        raise SpoolError(
            f"The spool {folder} belongs to process {owner}: give each process its own folder."
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()).encode())
    lock.flush()
    return lock


def _write_synced(file: FileIO, data: bytes) -> None:
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
