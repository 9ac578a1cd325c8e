"""Reads and writes a file of spooled events: a frame for each request, none half taken.

A frame is its length, its count of events and a checksum, then the events. Whoever reads stops at
the first frame that is not whole: it is the last one, its write was cut short, and nobody was told
that it is stored. A file belongs to the process that has locked it; the kernel frees the lock.
"""

import fcntl
import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c
import msgspec

from gateway.intake.events import Event
from gateway.publish.ledger import Request

SUFFIX = ".spool"
_HEAD = struct.Struct(">III")
# One request's events: the body that was taken, with ids, headers and a little.
_FRAME_BYTES_MAX = 256 * 1_048_576


class _Fields(msgspec.Struct, array_like=True):
    """An event; those of old end after the time."""

    id: str
    key: bytes | None
    value: bytes
    packed_headers: bytes
    time_ms: int
    partition: int | None = None


class _Frame(msgspec.Struct, array_like=True):
    """What a frame holds; those of old end after the events."""

    topic: str
    events: list[_Fields]
    request: Request | None = None


_FRAME = msgspec.msgpack.Decoder(_Frame)


class InDoubtError(OSError):
    """The disk failed, and nobody can say what it has."""


class Spooled(msgspec.Struct, frozen=True):
    """A request's events as they are read back, and where their frame begins."""

    at: int
    byte_count: int
    topic: str
    events: list[Event]
    # None for what an older gateway has spooled.
    request: Request | None


def frame(topic: str, events: Sequence[Event], request: Request | None = None) -> bytes:
    """The bytes of one request's events."""
    fields = [
        # As an older gateway can read it, wherever there are no shards.
        (e.id, e.key, e.value, e.packed_headers, e.time_ms, *_place(e))
        for e in events
    ]
    packed = msgspec.msgpack.encode((topic, fields, request))
    return _HEAD.pack(len(packed), len(fields), google_crc32c.value(packed)) + packed


def _place(event: Event) -> tuple[int, ...]:
    return () if event.partition is None else (event.partition,)


class SpoolFile:
    """One file, locked by us. SpoolFile.made makes one, SpoolFile.found takes one over."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.byte_count = 0
        self.event_count = 0
        self.made_at_s = path.stat().st_mtime
        # Where the last whole frame ends, as of the last time they were read.
        self._end = 0
        self._is_readable = True
        # When it is tried again, and how long it has waited for that.
        self.due_at_s = self.wait_s = 0.0
        # Where the frames begin that nothing is left to do for.
        self.done: set[int] = set()

    @classmethod
    def made(cls, folder: Path) -> "SpoolFile":
        path = folder / f"{time.time_ns()}-{os.getpid()}{SUFFIX}"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The name must last as well as what is written under it.
            directory = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @classmethod
    def found(cls, path: Path) -> "SpoolFile | None":
        """A file whose process is gone; None when it is in use, or gone itself."""
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Drained and removed between our two calls?
            is_ours = os.fstat(descriptor).st_nlink > 0
        except BlockingIOError:
            is_ours = False
        if not is_ours:
            os.close(descriptor)
            return None
        taken = cls(path, descriptor)
        for _, size, count, _ in taken._frames():
            taken.byte_count += size
            taken.event_count += count
        return taken

    def append(self, frames: Sequence[bytes], event_count: int) -> None:
        """Returns once the disk has them; OSError if it has none of them, InDoubtError perhaps."""
        joined = memoryview(b"".join(frames))
        begin, byte_count = os.fstat(self._descriptor).st_size, len(joined)
        try:
            while joined:
                joined = joined[os.write(self._descriptor, joined) :]
            os.fsync(self._descriptor)
        except OSError:
            # A frame that is there as a whole would be sent, whatever is said of it now.
            try:
                os.ftruncate(self._descriptor, begin)
                os.lseek(self._descriptor, begin, os.SEEK_SET)
                os.fsync(self._descriptor)
            except OSError as error:
                raise InDoubtError(*error.args) from error
            raise
        self.byte_count += byte_count
        self.event_count += event_count

    def requests(self) -> Iterator[Spooled]:
        """Each request that is not in Kafka yet."""
        for at, size, _, packed in self._frames():
            if at not in self.done:
                try:
                    told = _FRAME.decode(packed)
                except msgspec.DecodeError:
                    # Of a gateway that writes otherwise; what stands behind it need not wait.
                    self._is_readable = False
                    continue
                events = [Event(*msgspec.structs.astuple(each)) for each in told.events]
                yield Spooled(at, size, told.topic, events, told.request)

    def set_aside(self, request: Spooled) -> Path:
        """Put a request that Kafka will not take into a file beside this one, in the same form."""
        path = self.path.with_suffix(f"{SUFFIX}.refused")
        with path.open("ab") as file:
            file.write(frame(request.topic, request.events, request.request))
            file.flush()
            os.fsync(file.fileno())
        return path

    def remove(self) -> None:
        """Take away a file that is in Kafka; what of it could not be read is kept aside."""
        if os.fstat(self._descriptor).st_size > self._end or not self._is_readable:
            self.path.rename(self.path.with_suffix(f"{SUFFIX}.torn"))
        else:
            self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of it: whoever finds it may take it over."""
        os.close(self._descriptor)

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Where each whole frame begins, its size, its count of events, and its content."""
        at = self._end = 0
        while True:
            head = os.pread(self._descriptor, _HEAD.size, at)
            if len(head) < _HEAD.size:
                return
            length, count, checksum = _HEAD.unpack(head)
            if length > _FRAME_BYTES_MAX:
                return
            packed = os.pread(self._descriptor, length, at + _HEAD.size)
            if len(packed) < length or google_crc32c.value(packed) != checksum:
                return
            yield at, _HEAD.size + length, count, packed
            at += _HEAD.size + length
            self._end = at
