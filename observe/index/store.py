"""Keeps entries of the index: the newest in memory, the others in sorted files, up to a limit.

Each tenant has its own files; at the limit, the tenant with the most bytes loses its oldest file. A
position beside the files says where to read on in the ledger, so that unwritten entries are read
again. Each file has a sidecar with the stretches of the log whose ids it has in full, and a
checksum.
"""

import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from heapq import nlargest
from itertools import chain, islice
from math import isqrt
from pathlib import Path
from threading import Lock
from typing import TypeAlias
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from observe.index.entries import ENTRY_BYTES, HASH_BYTES, stretch_of
from shared.event.topics import stream_of
from shared.proof.intervals import Offsets
from shared.runtime.files.whole_file import write_whole

log = structlog.get_logger()

# Entries in memory are written to files at this number: 2 MB, which takes 30 ms to sort.
_ENTRIES = 131_072
# With many tenants, entries wait until there are this many per tenant, so that many small tenants
# do not need many files.
_ENTRIES_OF_A_TENANT = 256
# The maximum number of places of one id or key to return; the newest are returned.
_FOUND_MAX = 1_000
# The maximum number of indexed stretches to remember; the longest are kept.
_KNOWN_MAX = 1_000
# Tries of a lookup: it starts again if a file was replaced meanwhile.
_LOOKS = 3
# Each layout of entries has its own folder.
_LAYOUT = "index-1"

_BESIDE = ".known"

# Each with its Kafka partition, first offset and end.
Stretches: TypeAlias = tuple[tuple[int, int, int], ...]
# By topic and Kafka partition: the offsets whose ids are all known.
Known: TypeAlias = dict[str, dict[int, Offsets]]


class _Sidecar(msgspec.Struct):
    """The content of the sidecar of a file."""

    crc: int
    known: Known


@dataclass(slots=True)
class _Loose:
    """Entries that are not in a file yet."""

    entries: bytearray = field(default_factory=bytearray)
    known: Known = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _SealedFile:
    """A sorted file of entries."""

    path: Path
    number: int
    count: int
    known: Known

    @classmethod
    def read(cls, path: Path) -> "_SealedFile":
        """Return the file of a path; ValueError if its content has changed since it was written."""
        entries, beside = path.read_bytes(), path.with_suffix(_BESIDE)
        sidecar = msgspec.json.decode(beside.read_bytes(), type=_Sidecar)
        if not entries or len(entries) % ENTRY_BYTES or crc32(entries) != sidecar.crc:
            raise ValueError(f"{path} is damaged")
        return cls(path, int(path.name), len(entries) // ENTRY_BYTES, sidecar.known)

    def write(self, entries: bytes) -> None:
        beside = _Sidecar(crc32(entries), self.known)
        write_whole(self.path.with_suffix(_BESIDE), msgspec.json.encode(beside))
        write_whole(self.path, entries)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(_BESIDE).unlink(missing_ok=True)

    def find(self, hashed: bytes) -> Iterator[bytes]:
        """Yield the entries of a hash, last first; OSError or ValueError if the file is gone."""
        with self.path.open("rb") as file:
            entries = mmap.mmap(file.fileno(), self.count * ENTRY_BYTES, access=mmap.ACCESS_READ)
        with entries:
            end = self._place_of(entries, hashed + b"\xff" * HASH_BYTES + b"\0")
            while end and (entry := _entry(entries, end - 1))[:HASH_BYTES] == hashed:
                yield entry
                end -= 1

    def _place_of(self, entries: mmap.mmap, wanted: bytes) -> int:
        # Hashes are spread evenly, so the entry is near its expected place: this reads only a page
        # or two of a file that may not be in memory.
        guess = int.from_bytes(wanted[:HASH_BYTES], "big") * self.count >> (8 * HASH_BYTES)
        reach = 4 * isqrt(self.count) + 8
        low, high = max(0, guess - reach), min(self.count, guess + reach)
        if (low and _entry(entries, low) > wanted) or (
            high < self.count and _entry(entries, high - 1) < wanted
        ):
            # One name has very many entries: search the whole file.
            low, high = 0, self.count
        return bisect_left(range(self.count), wanted, low, high, key=lambda at: _entry(entries, at))


@dataclass(slots=True)
class EventIndex:
    """The index in a folder of its own; any thread may ask it, one at a time may fill it."""

    folder: Path
    bytes_max: int
    # Returns the tenant of a stream.
    tenant_of: Callable[[str], str]
    # Whether the log may have events that were not read yet.
    is_behind: bool = True
    # By tenant's folder: entries in memory, entries being written to a file, and the files.
    _open: dict[str, _Loose] = field(default_factory=dict)
    _closing: dict[str, _Loose] = field(default_factory=dict)
    _sealed: dict[str, list[_SealedFile]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.folder /= _LAYOUT
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.glob("*/*"), key=lambda file: file.name):
            if path.name.isdecimal():
                try:
                    sealed = _SealedFile.read(path)
                except (OSError, ValueError) as error:
                    # Searches find its events by reading the log instead.
                    log.warning("index.file_dropped", path=str(path), error=str(error))
                    path.unlink()
                else:
                    self._sealed.setdefault(path.parent.name, []).append(sealed)
        for path in self.folder.glob("*/*"):
            if not path.name.isdecimal() and not (
                path.suffix == _BESIDE and path.with_suffix("").exists()
            ):
                # A writer died before it had finished this file.
                path.unlink()

    @property
    def position(self) -> dict[int, int]:
        """The ends of the ledger's part that is in files, by Kafka partition; empty if none is."""
        try:
            return msgspec.json.decode(self._position.read_bytes(), type=dict[int, int])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    @property
    def byte_count(self) -> int:
        """The total size of all files."""
        with self._lock:
            return sum(map(_bytes_of, self._sealed.values()))

    @property
    def is_full(self) -> bool:
        """Whether there are enough entries in memory to write a file."""
        wanted = max(_ENTRIES, _ENTRIES_OF_A_TENANT * len(self._open))
        return sum(len(of.entries) for of in self._open.values()) >= wanted * ENTRY_BYTES

    def add(self, topic: str, entries: bytes, known: Iterable[tuple[int, int, int]] = ()) -> None:
        """Enter entries of a topic, and the stretches whose ids they contain in full."""
        with self._lock:
            loose = self._open.setdefault(self._group(topic), _Loose())
            loose.entries.extend(entries)
            for partition, first, end in known:
                of_topic = loose.known.setdefault(topic, {})
                of_topic.setdefault(partition, Offsets()).add(first, end)

    def forget_open(self) -> None:
        """Drop the entries in memory; they will be read again."""
        with self._lock:
            self._open, self._closing = {}, {}

    def forget(self) -> None:
        """Drop everything, because it describes another ledger."""
        self.forget_open()
        with self._lock:
            files = [each for of in self._sealed.values() for each in of]
            self._sealed = {}
        for each in files:
            each.remove()
        self._position.unlink(missing_ok=True)

    def look(self, topic: str, hashed: bytes) -> tuple[Stretches, Stretches]:
        """Return the newest places of a hash, and the stretches whose ids are all known."""
        # Entries that came before their stream was known have no tenant.
        groups = {self._group(topic), _group_of("")}
        for looks_left in reversed(range(_LOOKS)):
            with self._lock:
                both = (self._open, self._closing)
                loose = [of[group] for of in both for group in groups if group in of]
                # A copy: 2 MB at most, unless there are very many tenants.
                parts = [bytes(each.entries) for each in loose]
                known = [list(_of_topic(each.known, topic)) for each in loose]
                files = [each for group in groups for each in self._sealed.get(group, ())]
            # After a crash that lost the position, entries may be here twice: count them once.
            entries = dict.fromkeys(entry for each in parts for entry in _scan(each, hashed))
            is_whole = True
            for each in sorted(files, key=lambda each: -each.number):
                if len(entries) >= _FOUND_MAX:
                    # There may be more places, so no stretch is known to be complete.
                    known = []
                    break
                try:
                    entries |= dict.fromkeys(islice(each.find(hashed), _FOUND_MAX))
                    known.append(list(_of_topic(each.known, topic)))
                except (OSError, ValueError):
                    is_whole = False
            if is_whole or not looks_left:
                break
        stretches = tuple(stretch_of(entry) for entry in list(entries)[:_FOUND_MAX])
        return stretches, _longest(chain.from_iterable(known))

    def seal(self, position: Mapping[int, int]) -> None:
        """Write the entries in memory to files; `position` is their end in the ledger."""
        with self._lock:
            self._open, self._closing = {}, self._open
        for group, loose in self._closing.items():
            self._seal(group, loose)
        write_whole(self._position, msgspec.json.encode(dict(position)))
        with self._lock:
            self._closing = {}
        self._drop()

    def _seal(self, group: str, loose: _Loose) -> None:
        files = self._sealed.get(group, [])
        number = 1 + max((each.number for of in self._sealed.values() for each in of), default=0)
        parts, kept = [bytes(loose.entries)], len(files)
        count = len(loose.entries) // ENTRY_BYTES
        # Merge smaller files into the new one, so that each entry is written a few times at most.
        while kept and files[kept - 1].count < min(_ENTRIES, 2 * count):
            kept -= 1
            count += files[kept].count
            parts.append(files[kept].path.read_bytes())
        folder = self.folder / group
        folder.mkdir(exist_ok=True)
        known = _joined([loose.known, *(each.known for each in files[kept:])])
        made = _SealedFile(folder / f"{number:012}", number, count, known)
        made.write(_sorted(b"".join(parts)))
        with self._lock:
            self._sealed[group] = [*files[:kept], made]
        for each in files[kept:]:
            each.remove()

    def _drop(self) -> None:
        """Keep below the limit: the tenant with the most bytes loses its oldest files."""
        while self.byte_count > self.bytes_max:
            with self._lock:
                group = max(self._sealed, key=lambda name: _bytes_of(self._sealed[name]))
                oldest = self._sealed[group].pop(0)
                if not self._sealed[group]:
                    del self._sealed[group]
            oldest.remove()

    def _group(self, topic: str) -> str:
        return _group_of(self.tenant_of(stream_of(topic)))

    @property
    def _position(self) -> Path:
        return self.folder / "position"


def _group_of(tenant: str) -> str:
    return blake2s(tenant.encode(), digest_size=16).hexdigest()


def _bytes_of(files: list[_SealedFile]) -> int:
    return sum(each.count for each in files) * ENTRY_BYTES


def _of_topic(known: Known, topic: str) -> Iterator[tuple[int, int, int]]:
    for partition, offsets in known.get(topic, {}).items():
        for first, end in offsets:
            yield partition, first, end


def _longest(stretches: Iterable[tuple[int, int, int]]) -> Stretches:
    """Join stretches that touch, and return the longest."""
    by_partition: dict[int, Offsets] = {}
    for partition, first, end in stretches:
        by_partition.setdefault(partition, Offsets()).add(first, end)
    joined = _of_topic({"": by_partition}, "")
    return tuple(nlargest(_KNOWN_MAX, joined, key=lambda stretch: stretch[2] - stretch[1]))


def _joined(parts: Sequence[Known]) -> Known:
    """Join the known stretches of all parts; keep the longest for each topic."""
    made: Known = {}
    for topic in {topic for known in parts for topic in known}:
        stretches = _longest(chain.from_iterable(_of_topic(known, topic) for known in parts))
        for partition, first, end in stretches:
            made.setdefault(topic, {}).setdefault(partition, Offsets()).add(first, end)
    return made


def _entry(entries: mmap.mmap, at: int) -> bytes:
    return entries[at * ENTRY_BYTES : (at + 1) * ENTRY_BYTES]


def _scan(entries: bytes, hashed: bytes) -> Iterator[bytes]:
    """Yield the entries of a hash, last first."""
    end = len(entries)
    while (at := entries.rfind(hashed, 0, end)) >= 0:
        if at % ENTRY_BYTES == 0:
            yield entries[at : at + ENTRY_BYTES]
        end = at + HASH_BYTES - 1


def _sorted(entries: bytes) -> bytes:
    count = len(entries) // ENTRY_BYTES
    kind = pa.binary(ENTRY_BYTES)
    column = pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, pa.py_buffer(entries)])
    _, ranked = column.take(pc.sort_indices(column)).buffers()
    assert ranked is not None, "it has values"
    return ranked.to_pybytes()
