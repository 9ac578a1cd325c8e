"""Reads archives: lists their objects, and finds missing, changed and unreadable ones."""

import hashlib
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import msgspec

from shared.proof.archived import (
    ArchivedObject,
    ArchiveId,
    continues,
    day_in,
    is_manifest,
    life_in,
    manifest_beside,
    may_hold,
)
from shared.runtime.archive.stores import OpenStore

# Threads, which mostly wait for the store.
_AT_ONCE = 16
# The longest time between the writes of an object and of its manifest, even on a busy machine.
_MOMENT_S = 2.0


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage of one object."""

    path: str
    kind: Literal["missing", "changed", "unreadable"]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveListing:
    """The objects of an archive, by their manifests."""

    objects: tuple[ArchivedObject, ...]
    damage: tuple[Damage, ...]


def archives_of(bucket: OpenStore, tenant: str, stream: str) -> list[str]:
    """Return the names of a stream's archives."""
    above = f"{tenant}/streams/{stream}"
    folders = bucket.folders(above)
    names = (folder.rstrip("/").rpartition("/")[2] for folder in folders)
    return sorted(name.removeprefix("archive=") for name in names if name.startswith("archive="))


def lives_of(bucket: OpenStore, archive: ArchiveId) -> list[ArchiveId]:
    """Return the archives of each topic that the stream has had, the newest last.

    Old objects, whose paths name no topic, count as a separate topic's, unless a named topic's
    objects continue them.
    """
    names = filter(None, map(life_in, bucket.folders(archive.above)))
    lives = {each: _paths(bucket, each) for each in (archive._replace(life=life) for life in names)}
    unnamed = _paths(bucket, archive._replace(life=""))
    if unnamed and not any(continues(paths, unnamed) for paths in lives.values()):
        lives[archive._replace(life="")] = unnamed
    archives = [each for each, paths in lives.items() if paths] or [archive]
    if len(archives) > 1:
        archives.sort(key=lambda each: _last_ms(bucket, each, lives[each]))
    return archives


def _last_ms(bucket: OpenStore, archive: ArchiveId, paths: Sequence[str]) -> int:
    """Return when Kafka got the archive's last event."""
    day = max(map(day_in, paths))
    newest = (said_at(bucket, archive, path) for path in paths if day_in(path) == day)
    return max((each.to_ms for each in newest if isinstance(each, ArchivedObject)), default=0)


def _paths(bucket: OpenStore, archive: ArchiveId) -> list[str]:
    return sorted(filter(is_manifest, bucket.names(archive.manifests)))


def listed(
    bucket: OpenStore, archive: ArchiveId, *, from_ms: int | None = None, to_ms: int | None = None
) -> ArchiveListing:
    """List objects of a time range by their manifests, without reading other days.

    Old objects, whose paths name no topic, are included if this topic's objects continue them.
    """
    all_paths = {archive: _paths(bucket, archive)}
    if archive.life:
        unnamed = archive._replace(life="")
        earlier = _paths(bucket, unnamed)
        if continues(all_paths[archive], earlier):
            all_paths[unnamed] = earlier
    unsaid = [
        beside
        for part, paths in all_paths.items()
        for beside in _unsaid(bucket, part, set(paths))
        if may_hold(beside, from_ms=from_ms, to_ms=to_ms)
    ]
    wanted = [
        (part, path)
        for part, paths in all_paths.items()
        for path in paths
        if may_hold(path, from_ms=from_ms, to_ms=to_ms)
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        manifests = list(pool.map(lambda each: said_at(bucket, *each), wanted))
    return ArchiveListing(
        tuple(each for each in manifests if isinstance(each, ArchivedObject)),
        (
            *(each for each in manifests if isinstance(each, Damage)),
            *(Damage(path, "missing", "its object exists") for path in sorted(unsaid)),
        ),
    )


def _unsaid(bucket: OpenStore, archive: ArchiveId, known: Container[str]) -> list[str]:
    """Return the paths of missing manifests whose objects exist."""
    beside = (manifest_beside(archive, path) for path in bucket.names(archive.objects))
    unsaid = [path for path in beside if path and path not in known and bucket.get(path) is None]
    if unsaid:
        # An object exists a moment before its manifest.
        time.sleep(_MOMENT_S)
    return [path for path in unsaid if bucket.get(path) is None]


def said_at(bucket: OpenStore, archive: ArchiveId, path: str) -> ArchivedObject | Damage:
    """Read the manifest of an object of that archive."""
    raw = bucket.get(path)
    if raw is None:
        return Damage(path, "missing")
    try:
        manifest = ArchivedObject.from_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Damage(path, "unreadable", str(error))
    if manifest.id != archive or manifest.manifest_path != path:
        return Damage(path, "changed", f"it describes {manifest.path}")
    return manifest


def miscounted(said: ArchivedObject, count: int) -> Damage | None:
    """Return the damage if an object's number of events is not its manifest's."""
    if said.count == count:
        return None
    return Damage(said.manifest_path, "changed", f"it says {said.count} events instead of {count}")


def fetched(
    bucket: OpenStore, objects: Iterable[ArchivedObject]
) -> Iterator[tuple[ArchivedObject, bytes | Damage]]:
    """Yield each object with its bytes or its damage; only one is in memory at a time."""
    for each in objects:
        data = bucket.get(each.path)
        if data is None:
            yield each, Damage(each.path, "missing", f"{each.count} events")
        elif hashlib.sha256(data).hexdigest() != each.sha256:
            yield each, Damage(each.path, "changed", f"{each.count} events")
        else:
            yield each, data
