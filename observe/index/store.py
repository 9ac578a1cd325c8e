"""Keeps entries of the index: the newest in memory, the others in sorted files, within a bound.

Each tenant has files of its own, and whoever has most loses the oldest of theirs first. What was
not written yet is read again from the ledger: beside the files stands up to where that was read.
"""

import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from itertools import islice
from math import isqrt
from pathlib import Path
from threading import Lock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from observe.index.entries import ENTRY_BYTES, MARK_BYTES, stretch_of
from shared.event.topics import stream_of
from shared.runtime.files.whole_file import write_whole

# A file of so many entries is written: 2 MB, which takes 30 ms to sort.
_ENTRIES = 131_072
# As many for each tenant who has some at least, so that many who send little are not many files.
_ENTRIES_OF_A_TENANT = 256
# Of one id or key: whoever posts the same again and again is shown the newest.
_FOUND_MAX = 1_000
# Another way to lay entries out is another folder.
_LAYOUT = "index-1"


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A sorted file of entries."""

    path: Path
    number: int
    count: int

    def find(self, mark: bytes) -> Iterator[bytes]:
        """Those of a mark, the last first."""
        try:
            with self.path.open("rb") as file:
                entries = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (FileNotFoundError, ValueError):
            # It was the oldest, and is gone.
            return
        with entries:
            end = self._place_of(entries, mark + b"\xff" * MARK_BYTES + b"\0")
            while end and (entry := _entry(entries, end - 1))[:MARK_BYTES] == mark:
                yield entry
                end -= 1

    def _place_of(self, entries: mmap.mmap, wanted: bytes) -> int:
        # Marks are spread evenly: it is near where it would be if they were exactly so, and a
        # page or two are read of a file that may not be in memory.
        guess = int.from_bytes(wanted[:MARK_BYTES], "big") * self.count >> (8 * MARK_BYTES)
        reach = 4 * isqrt(self.count) + 8
        low, high = max(0, guess - reach), min(self.count, guess + reach)
        if (low and _entry(entries, low) > wanted) or (
            high < self.count and _entry(entries, high - 1) < wanted
        ):
            # One name has very many.
            low, high = 0, self.count
        return bisect_left(range(self.count), wanted, low, high, key=lambda at: _entry(entries, at))


@dataclass(slots=True)
class EventIndex:
    """The index in a folder that is ours alone. Asked by any thread, filled by one at a time."""

    folder: Path
    bytes_max: int
    # Whose a stream is.
    tenant_of: Callable[[str], str]
    # What the log may have, and we have not read of.
    is_behind: bool = True
    # By tenant's folder: what is in no file yet, what is on its way into one, and the files.
    _open: dict[str, bytearray] = field(default_factory=dict)
    _closing: dict[str, bytearray] = field(default_factory=dict)
    _sealed: dict[str, list[_Sealed]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.folder /= _LAYOUT
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.glob("*/*"), key=lambda it: it.name):
            size = path.stat().st_size
            if not path.name.isdecimal() or not size or size % ENTRY_BYTES:
                # Its writer died.
                path.unlink()
                continue
            sealed = _Sealed(path, int(path.name), size // ENTRY_BYTES)
            self._sealed.setdefault(path.parent.name, []).append(sealed)

    @property
    def position(self) -> dict[int, int]:
        """Up to where the ledger is in files, by its Kafka partitions; empty if nothing is."""
        try:
            return msgspec.json.decode(self._position.read_bytes(), type=dict[int, int])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    @property
    def byte_count(self) -> int:
        """What the files take."""
        with self._lock:
            return sum(map(_bytes_of, self._sealed.values()))

    @property
    def is_full(self) -> bool:
        """Whether what is open is worth a file."""
        wanted = max(_ENTRIES, _ENTRIES_OF_A_TENANT * len(self._open))
        return sum(map(len, self._open.values())) >= wanted * ENTRY_BYTES

    def add(self, topic: str, entries: bytes) -> None:
        with self._lock:
            self._open.setdefault(self._group(topic), bytearray()).extend(entries)

    def forget_open(self) -> None:
        """What is in no file is going to be read again."""
        with self._lock:
            self._open, self._closing = {}, {}

    def find(self, topic: str, mark: bytes) -> tuple[tuple[int, int, int], ...]:
        """Where what has this mark lies, the newest; Kafka partition, first offset and end."""
        # What came before we had heard of its stream was nobody's.
        groups = {self._group(topic), _group_of("")}
        with self._lock:
            # A copy: 2 MB at most, unless the tenants are very many.
            loose = [bytes(of.get(it, b"")) for of in (self._open, self._closing) for it in groups]
            files = [each for it in groups for each in self._sealed.get(it, ())]
        sealed = sorted(files, key=lambda each: -each.number)
        # What a process had read and not said so was read again: each counts once.
        found = dict.fromkeys(entry for each in loose for entry in _scan(each, mark))
        for each in sealed:
            if len(found) >= _FOUND_MAX:
                break
            found |= dict.fromkeys(islice(each.find(mark), _FOUND_MAX))
        return tuple(stretch_of(entry) for entry in list(found)[:_FOUND_MAX])

    def seal(self, position: Mapping[int, int]) -> None:
        """Write what is open into files; `position` is up to where it was read from the ledger."""
        with self._lock:
            self._open, self._closing = {}, self._open
        for group, entries in self._closing.items():
            self._seal(group, entries)
        write_whole(self._position, msgspec.json.encode(dict(position)))
        with self._lock:
            self._closing = {}
        self._drop()

    def _seal(self, group: str, entries: bytearray) -> None:
        files = self._sealed.get(group, [])
        number = 1 + max((each.number for of in self._sealed.values() for each in of), default=0)
        parts, kept = [bytes(entries)], len(files)
        count = len(entries) // ENTRY_BYTES
        # As large as those before, or nearly: each entry is written a few times at most.
        while kept and files[kept - 1].count < min(_ENTRIES, 2 * count):
            kept -= 1
            count += files[kept].count
            parts.append(files[kept].path.read_bytes())
        folder = self.folder / group
        folder.mkdir(exist_ok=True)
        path = folder / f"{number:012}"
        write_whole(path, _sorted(b"".join(parts)))
        with self._lock:
            self._sealed[group] = [*files[:kept], _Sealed(path, number, count)]
        for each in files[kept:]:
            each.path.unlink()

    def _drop(self) -> None:
        """Keep within the bound; whoever has most loses the oldest."""
        while self.byte_count > self.bytes_max:
            with self._lock:
                group = max(self._sealed, key=lambda it: _bytes_of(self._sealed[it]))
                oldest = self._sealed[group].pop(0)
                if not self._sealed[group]:
                    del self._sealed[group]
            oldest.path.unlink()

    def _group(self, topic: str) -> str:
        return _group_of(self.tenant_of(stream_of(topic)))

    @property
    def _position(self) -> Path:
        return self.folder / "position"


def _group_of(tenant: str) -> str:
    return blake2s(tenant.encode(), digest_size=16).hexdigest()


def _bytes_of(files: list[_Sealed]) -> int:
    return sum(each.count for each in files) * ENTRY_BYTES


def _entry(entries: mmap.mmap, at: int) -> bytes:
    return entries[at * ENTRY_BYTES : (at + 1) * ENTRY_BYTES]


def _scan(entries: bytes, mark: bytes) -> Iterator[bytes]:
    """Those of a mark, the last first."""
    end = len(entries)
    while (at := entries.rfind(mark, 0, end)) >= 0:
        if at % ENTRY_BYTES == 0:
            yield entries[at : at + ENTRY_BYTES]
        end = at + MARK_BYTES - 1


def _sorted(entries: bytes) -> bytes:
    count = len(entries) // ENTRY_BYTES
    kind = pa.binary(ENTRY_BYTES)
    column = pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, pa.py_buffer(entries)])
    _, ranked = column.take(pc.sort_indices(column)).buffers()
    assert ranked is not None, "it has values"
    return ranked.to_pybytes()
