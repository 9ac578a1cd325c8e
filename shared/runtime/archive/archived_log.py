"""Finds the objects of an archive for one Kafka partition, from an offset or a time on.

An archive may be large, so the search goes day by day, by the names of objects. It reads manifests
only of the objects that are needed next.
"""

from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shared.config.outside.store import Store
from shared.proof.archived import (
    LONGEST_MS,
    ArchivedObject,
    ArchiveId,
    Laid,
    day_in,
    day_of,
    is_manifest,
    range_in,
)
from shared.runtime.archive.files import read_object, rows_of
from shared.runtime.archive.reading import Damage, fetched, listed, miscounted, said_at
from shared.runtime.archive.stores import OpenStore

# The maximum number of objects, and of their stored bytes, that one look-up returns.
OBJECTS_MAX, BYTES_MAX = 256, 64 * 1_048_576
_AT_ONCE = 16


class DamagedObjectError(Exception):
    """A part of an archive is not as it was written; the text is for people."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"{damage.path} is {damage.kind}: `hifi archive verify` lists all damage")


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive objects of an archive with events of one Kafka partition."""

    store: Store
    # Stores that are folders must be below this one.
    folders: Path | None
    objects: tuple[Laid, ...]

    @property
    def first(self) -> int:
        return self.objects[0].from_offset

    @property
    def end(self) -> int:
        return self.objects[-1].archived.end

    @property
    def archive(self) -> str:
        return self.objects[0].archived.archive

    def at_ms(self, at: int) -> int:
        """Return when Kafka got the event at an offset, or the first event of the same object."""
        return next(archived.from_ms for archived, _ in self.objects if at < archived.end)

    def has(self, at: int) -> bool:
        return self.first <= at < self.end


def sound_bytes(bucket: OpenStore, said: ArchivedObject) -> bytes:
    """Return an object; raise DamagedObjectError if it is not as it was written."""
    ((_, data),) = fetched(bucket, [said])
    if isinstance(data, Damage):
        raise DamagedObjectError(data)
    return data


def sound_rows(bucket: OpenStore, said: ArchivedObject) -> Iterator[dict[str, Any]]:
    """Return its events; raise DamagedObjectError if their number is not the manifest's."""
    events = read_object(sound_bytes(bucket, said))
    if damage := miscounted(said, events.num_rows):
        raise DamagedObjectError(damage)
    return rows_of(events)


def sound_list(
    bucket: OpenStore, archive: ArchiveId, *, from_ms: int | None = None, to_ms: int | None = None
) -> tuple[ArchivedObject, ...]:
    """List an archive's objects; raise DamagedObjectError if an entry is not as it was written."""
    there = listed(bucket, archive, from_ms=from_ms, to_ms=to_ms)
    for damage in there.damage:
        raise DamagedObjectError(damage)
    return there.objects


@dataclass(slots=True)
class ArchivedLog:
    """The log of one archive; for one search only, because it caches names."""

    bucket: OpenStore
    archive: ArchiveId
    partition: int
    _names: dict[str, list[str]] = field(default_factory=dict)
    _days: list[str] | None = None

    @property
    def days(self) -> list[str]:
        if self._days is None:
            folders = self.bucket.folders(self.archive.manifests)
            self._days = sorted(filter(None, map(day_in, folders)))
        return self._days

    def first_at(self, at_ms: int) -> int | None:
        """Return the first offset that Kafka got at that time or later; None if there is none."""
        begin = day_of(max(0, at_ms - LONGEST_MS))
        for day in self.days:
            names = self._of(day) if day >= begin else []
            if not names or self._said(names[-1]).to_ms < at_ms:
                continue
            index = bisect_left(names, at_ms, key=lambda name: self._said(name).to_ms)
            manifest = self._said(names[index])
            if manifest.from_ms >= at_ms:
                return manifest.first
            columns = read_object(sound_bytes(self.bucket, manifest), ("offset", "time_ms"))
            pairs = zip(*(columns[name].to_pylist() for name in ("offset", "time_ms")), strict=True)
            offsets = (int(offset) for offset, time_ms in pairs if time_ms >= at_ms)
            return next(offsets, manifest.end)
        return None

    def objects(self, at: int, border: int) -> list[Laid]:
        """Return the contiguous objects from an offset up to the border.

        The first one may begin later, if no object has the offset. Filtered objects do not count.
        """
        laid, size, reached = list[Laid](), 0, at
        names = self._next_names(at, border)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for manifest in pool.map(partial(said_at, self.bucket, self.archive), names):
                if isinstance(manifest, Damage):
                    if laid:
                        break
                    raise DamagedObjectError(manifest)
                is_full = bool(laid) and size + manifest.size > BYTES_MAX
                if is_full or (laid and manifest.first > reached):
                    break
                if manifest.is_whole:
                    laid.append(Laid(manifest, max(manifest.first, reached)))
                    size, reached = size + manifest.size, manifest.end
        return laid

    def _next_names(self, at: int, border: int) -> list[str]:
        """Return the names of objects that begin before the border and end after the offset."""
        chosen, reached = list[str](), at
        for day in self.days[self._day_at(at) :]:
            for name in self._of(day):
                _, first, end = range_in(name)
                if first >= border or len(chosen) == OBJECTS_MAX:
                    return chosen
                if end > reached:
                    chosen.append(name)
                    reached = end
        return chosen

    def _day_at(self, at: int) -> int:
        """Return the index of the last day with an object that begins at or before the offset."""
        low, high = 0, len(self.days)
        while low < high:
            middle = (low + high) // 2
            day = next((index for index in range(middle, high) if self._of(self.days[index])), None)
            if day is None or range_in(self._of(self.days[day])[0])[1] > at:
                high = middle
            else:
                low = day + 1
        return max(0, low - 1)

    def _of(self, day: str) -> list[str]:
        """Return a day's names of objects by first offset, the longer of two equal ones first."""
        if day not in self._names:
            folder = f"{self.archive.manifests}/date={day}/partition={self.partition}"
            names = filter(is_manifest, self.bucket.names(folder))
            self._names[day] = sorted(names, key=_place)
        return self._names[day]

    def _said(self, name: str) -> ArchivedObject:
        manifest = said_at(self.bucket, self.archive, name)
        if isinstance(manifest, Damage):
            raise DamagedObjectError(manifest)
        return manifest


def _place(name: str) -> tuple[int, int]:
    _, first, end = range_in(name)
    return first, -end
