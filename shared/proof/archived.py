"""Describes an object of an archive, and names it.

An object holds the events of one Kafka partition between two offsets. Its name and its description
depend on these events alone: a process that writes it again, after a crash, writes the same. The
description is beside each object, so that a restore needs no Kafka.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import msgspec

from shared.proof.intervals import Offsets

_LIFE = "life="
_DIGITS = 20
_SUFFIX, _OBJECT_SUFFIX = ".json", ".parquet"
_MANIFEST = re.compile(r"/date=[\d-]+/partition=\d+/\d{20}-\d{20}\.json$")


class ArchiveId(NamedTuple):
    """One archive: the events of a stream that a pipeline keeps."""

    tenant: str
    stream: str
    # The pipeline.
    name: str
    # The id of the topic: one that was deleted and recreated has another id, and offsets from 0.
    # Empty if it is unknown, as in old archives.
    life: str = ""

    @property
    def above(self) -> str:
        """The path above all of this archive, for every topic id, and above no other archive."""
        return f"{self.tenant}/streams/{self.stream}/archive={self.name}"

    @property
    def root(self) -> str:
        return f"{self.above}/{_LIFE}{self.life}" if self.life else self.above

    @property
    def objects(self) -> str:
        return f"{self.root}/events"

    @property
    def manifests(self) -> str:
        return f"{self.root}/manifest"


class ArchivedObject(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one object."""

    tenant: str
    stream: str
    archive: str
    # The topic's id (`ArchiveId.life`).
    life: str = ""
    partition: int
    # The offsets that it covers; some may have been filtered, or be Kafka's own markers.
    first: int
    end: int
    count: int
    # The size of the stored object, and its digest in hex.
    size: int
    sha256: str
    # When Kafka got its first and its last event.
    from_ms: int
    to_ms: int
    # The earliest and the latest of the events' own times.
    event_from_ms: int
    event_to_ms: int
    # The document of its pipeline, and whether that keeps all events unchanged.
    document: str
    is_whole: bool

    @property
    def id(self) -> ArchiveId:
        return ArchiveId(self.tenant, self.stream, self.archive, self.life)

    @property
    def path(self) -> str:
        return f"{self.id.objects}/{self._place}{_OBJECT_SUFFIX}"

    @property
    def manifest_path(self) -> str:
        return f"{self.id.manifests}/{self._place}{_SUFFIX}"

    @property
    def _place(self) -> str:
        return place_of(self.from_ms, self.partition, self.first, self.end)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_json(cls, value: bytes) -> "ArchivedObject":
        """Read a description; ValueError if it is not one."""
        return msgspec.json.decode(value, type=cls)


def place_of(from_ms: int, partition: int, first: int, end: int) -> str:
    """The path of an object, below that of its archive's objects."""
    number = f"{first:0{_DIGITS}d}-{end:0{_DIGITS}d}"
    return f"date={day_of(from_ms)}/partition={partition}/{number}"


def day_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def life_in(folder: str) -> str | None:
    """The topic id in the name of a folder right below an archive; None if it has none."""
    name = folder.rstrip("/").rpartition("/")[2]
    return name.removeprefix(_LIFE) if name.startswith(_LIFE) else None


def continues(later: Iterable[str], earlier: Iterable[str]) -> bool:
    """Whether one topic id's objects continue where another's end, by their manifests' paths.

    A topic that was recreated begins with new offsets; the same topic continues with its own.
    """
    begins, edges = dict[str, int](), dict[str, set[int]]()
    for path in later:
        partition, first, _ = range_in(path)
        begins[partition] = min(first, begins.get(partition, first))
    for path in earlier:
        partition, first, end = range_in(path)
        edges.setdefault(partition, set()).update((first, end))
    both = begins.keys() & edges.keys()
    return bool(both) and all(
        begins[name] in edges[name] and begins[name] > min(edges[name]) for name in both
    )


def range_in(path: str) -> tuple[str, int, int]:
    """The folder of an object's Kafka partition, and its first and end offset, from its path."""
    *_, partition, name = path.split("/")
    first, _, end = name.removesuffix(_SUFFIX).partition("-")
    return partition, int(first), int(end)


def is_manifest(path: str) -> bool:
    return _MANIFEST.search(path) is not None


def manifest_beside(archive: ArchiveId, path: str) -> str | None:
    """The path of an object's description; None if it is not an object of the archive."""
    place = path.removeprefix(archive.objects).removesuffix(_OBJECT_SUFFIX)
    beside = f"{archive.manifests}{place}{_SUFFIX}"
    return beside if path.endswith(_OBJECT_SUFFIX) and is_manifest(beside) else None


def day_in(path: str) -> str:
    """The day of an object's first event, from its path; empty if the path is not one of ours."""
    return next((part[5:] for part in path.split("/") if part.startswith("date=")), "")


def may_hold(path: str, *, from_ms: int | None, to_ms: int | None) -> bool:
    """Whether the object at a path may have events of these times, by the day of its first event.

    Its last event is at most LONGEST_MS later.
    """
    if not (day := day_in(path)):
        return False
    return (to_ms is None or day <= day_of(to_ms)) and (
        from_ms is None or day >= day_of(from_ms - LONGEST_MS)
    )


# The longest time that one object may span. A stream with few events has an object a minute, so
# only events that were archived late, out of a paused stream, come near this limit.
LONGEST_MS = 8 * 86_400_000


class Laid(NamedTuple):
    """An object, and the offset from which its events count, so that none counts twice."""

    archived: ArchivedObject
    from_offset: int


def laid(objects: Iterable[ArchivedObject]) -> list[Laid]:
    """Sort by Kafka partition and offset; skip offsets that an earlier object has."""
    reached: dict[int, int] = {}
    kept = []
    for each in sorted(objects, key=lambda one: (one.partition, one.first, -one.end)):
        at = reached.get(each.partition, 0)
        if each.end > at:
            kept.append(Laid(each, max(at, each.first)))
            reached[each.partition] = each.end
    return kept


def by_time(objects: Iterable[Laid]) -> Iterator[Laid]:
    """Yield the oldest first, but those of each Kafka partition in order.

    Brokers' clocks differ: after a change of leader times may go back.
    """
    queues: dict[int, deque[Laid]] = {}
    for each in objects:
        queues.setdefault(each.archived.partition, deque()).append(each)
    heads = [(queue[0].archived.from_ms, partition) for partition, queue in queues.items()]
    heapify(heads)
    while heads:
        _, partition = heads[0]
        yield queues[partition].popleft()
        if queues[partition]:
            heapreplace(heads, (queues[partition][0].archived.from_ms, partition))
        else:
            heappop(heads)


def gaps(objects: Iterable[ArchivedObject]) -> Mapping[int, Offsets]:
    """Return, by Kafka partition, offsets between the first and the last that no object covers.

    An archive that filters may leave out whole objects.
    """
    covered: dict[int, Offsets] = {}
    for each in objects:
        covered.setdefault(each.partition, Offsets()).add(each.first, each.end)
    return {
        partition: missing
        for partition, offsets in covered.items()
        if (missing := Offsets.of([(offsets.start, offsets.end)]).minus(offsets))
    }
