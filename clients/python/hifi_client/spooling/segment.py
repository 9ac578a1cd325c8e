"""One file of a spool: batches one after another, each with checksums over its head and body.

Only the process that began a file appends to it. So an incomplete batch is always the last one of a
file, and was never reported as spooled. A wrong checksum means damage; those bytes are kept aside
for a person.
"""

import contextlib
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from hifi_client.errors import SpoolError

SUFFIX, DAMAGED_SUFFIX = ".spool", ".damaged"
_BEGIN = b"hifi spool 1 %b\n"
# A magic number, the length of the body, its checksum, and the checksum of these three.
_HEAD = struct.Struct(">4sIII")
_MAGIC = b"HiFi"
_BEGIN_BYTES_MAX = 200


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """The place where a batch begins."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A batch in a segment; `end` is where the next one begins."""

    place: Place
    end: int
    body: bytes


class DamageError(Exception):
    """The bytes are not a batch, nor an incomplete one at the end."""


class Segment:
    def __init__(self, path: Path, stream: str, *, is_new: bool) -> None:
        self.path = path
        self.number = int(path.name.removesuffix(SUFFIX))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if is_new else os.O_RDWR
        self._file = os.open(path, flags, 0o600)
        begin = _BEGIN % stream.encode()
        self.begin = len(begin)
        if is_new:
            _write(self._file, begin, 0)
            self.size = self.begin
            return
        self.size = os.fstat(self._file).st_size
        found = os.pread(self._file, _BEGIN_BYTES_MAX, 0).partition(b"\n")[0] + b"\n"
        if self.size >= self.begin and found != begin:
            os.close(self._file)
            raise SpoolError(
                f"{path} has events of another stream ({found[:100]!r}): send those first, or"
                f" give the sender of {stream} its own folder."
            )

    def write(self, offset: int, body: bytes) -> int:
        """Write a batch at `offset`; return its end. It counts once `size` includes it."""
        numbers = len(body), zlib.crc32(body)
        check = zlib.crc32(struct.pack(">4sII", _MAGIC, *numbers))
        data = _HEAD.pack(_MAGIC, *numbers, check) + body
        _write(self._file, data, offset)
        return offset + len(data)

    def cut(self, size: int) -> None:
        """Cut the file to `size`."""
        os.ftruncate(self._file, size)

    def sync(self) -> None:
        os.fsync(self._file)

    def read(self, offset: int) -> Frame | None:
        """Return the batch at `offset`; None at the end, or at an incomplete batch."""
        head = os.pread(self._file, _HEAD.size, offset)
        if len(head) < _HEAD.size:
            return None
        magic, length, body_check, check = _HEAD.unpack(head)
        if magic != _MAGIC or zlib.crc32(head[:-4]) != check:
            raise DamageError
        body = os.pread(self._file, length, offset + _HEAD.size)
        if len(body) < length:
            return None
        if zlib.crc32(body) != body_check:
            raise DamageError
        return Frame(Place(self.number, offset), offset + _HEAD.size + length, body)

    def next_magic(self, offset: int) -> int | None:
        """Return where the next batch after a damaged one may begin."""
        data = os.pread(self._file, self.size - offset, offset)
        at = data.find(_MAGIC, 1)
        return None if at < 0 else offset + at

    def keep_aside(self, begun: int, end: int) -> None:
        with self.path.with_suffix(DAMAGED_SUFFIX).open("ab", buffering=0) as kept:
            before = kept.tell()
            try:
                _write(kept.fileno(), os.pread(self._file, end - begun, begun), before)
                os.fsync(kept.fileno())
            except OSError:
                # The caller tries again.
                with contextlib.suppress(OSError):
                    kept.truncate(before)
                raise

    def close(self) -> None:
        os.close(self._file)

    def remove(self) -> None:
        self.close()
        self.path.unlink()


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
