"""Keeps the newest steps of many names in one file, with a fixed-size ring for each range.

A record has the number of its step, so old, torn and unwritten records count as missing. The file
is never synced: if the machine is lost, only the charts of its last seconds are lost.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from observe.series.steps import RANGES

_MAGIC = b"hifi series 1\n"
# Magic, number of figures in a record, newest step.
_HEAD = struct.Struct("<16sII")
_HEAD_BYTES = 4_096
# STREAM/NAME has 210 characters at most.
_NAME_BYTES = 256
_FIRSTS = (0, *accumulate(each.steps for each in RANGES))


class RingFile:
    """One file, owned by the process that opens it."""

    def __init__(self, path: Path, *, width: int, names_max: int) -> None:
        self._record = struct.Struct(f"<I{width}f")
        self._ring_bytes = _NAME_BYTES + _FIRSTS[-1] * self._record.size
        self._names_max = names_max
        self._head = (_MAGIC, width)
        self.newest = 0
        # The ring of each name; and the free rings, in descending order.
        self.rings: dict[str, int] = {}
        self._free: list[int] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._open()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> None:
        head = os.pread(self._file, _HEAD.size, 0)
        magic, width, newest = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0, 0)
        if (magic.rstrip(b"\0"), width) != self._head:
            # The file is new, or from another release, whose figures make no sense: start empty.
            os.ftruncate(self._file, 0)
            self.end_step(0)
            return
        self.newest = newest
        # Ignore the bytes after the last whole ring: their write was cut off.
        count = (os.fstat(self._file).st_size - _HEAD_BYTES) // self._ring_bytes
        for ring in range(count):
            written = os.pread(self._file, _NAME_BYTES, self._at(ring)).rstrip(b"\0")
            name = written.decode(errors="replace")
            # After the loss of a machine a ring may have only zeros.
            if name and name not in self.rings:
                self.rings[name] = ring
            else:
                self._free.append(ring)
        self._free.reverse()

    def _at(self, ring: int) -> int:
        return _HEAD_BYTES + ring * self._ring_bytes

    def _put(self, written: bytes, at: int) -> None:
        if os.pwrite(self._file, written, at) != len(written):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def enter(self, name: str, gone: Iterator[str]) -> bool:
        """Make room for a name, if needed by replacing one of `gone`; return False if that fails.

        `gone` continues from call to call, so that not every new name searches a full file.
        """
        if name in self.rings:
            return True
        former = ""
        ring = self._free[-1] if self._free else len(self.rings)
        if ring >= self._names_max:
            former = next(gone, "")
            if not former:
                return False
            ring = self.rings[former]
        # Write its whole ring at once: if the disk has room for it, every later record fits.
        self._put(name.encode().ljust(self._ring_bytes, b"\0"), self._at(ring))
        if former:
            del self.rings[former]
        elif self._free:
            self._free.pop()
        self.rings[name] = ring
        return True

    def write(self, name: str, level: int, number: int, figures: Sequence[float]) -> None:
        place = _FIRSTS[level] + number % RANGES[level].steps
        at = self._at(self.rings[name]) + _NAME_BYTES + place * self._record.size
        self._put(self._record.pack(number, *figures), at)

    def end_step(self, number: int) -> None:
        """Note that all of this step of the first range is written."""
        self.newest = number
        self._put(_HEAD.pack(*self._head, number), 0)

    def read(
        self, name: str, level: int, newest: int, count: int
    ) -> list[tuple[float, ...] | None]:
        """Return the last figures of a range up to a step, oldest first; None for missing ones."""
        ring = self.rings.get(name)
        if ring is None:
            return [None] * count
        steps, size = RANGES[level].steps, self._record.size
        stored = os.pread(
            self._file, steps * size, self._at(ring) + _NAME_BYTES + _FIRSTS[level] * size
        )
        figures: list[tuple[float, ...] | None] = []
        for number in range(newest - count + 1, newest + 1):
            at = number % steps * size
            # The record may be from another round of the ring, never written, or cut off.
            is_of = len(stored) >= at + size and self._record.unpack_from(stored, at)[0] == number
            figures.append(self._record.unpack_from(stored, at)[1:] if is_of else None)
        return figures
