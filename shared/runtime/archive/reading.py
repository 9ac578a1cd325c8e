"""Reads archives: what there is of one, which of its objects are as they were written."""

import hashlib
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import msgspec

from shared.proof.archived import (
    Archived,
    ArchiveId,
    continues,
    day_in,
    is_manifest,
    life_in,
    manifest_beside,
    may_hold,
)
from shared.runtime.archive.stores import OpenStore

# Each waits for the store most of its time.
_AT_ONCE = 16
# Between an object and what stands beside it, on a busy machine too.
_MOMENT_S = 2.0


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with one object."""

    path: str
    kind: Literal["missing", "changed", "unreadable"]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """What an archive says that it has."""

    objects: tuple[Archived, ...]
    damage: tuple[Damage, ...]


def archives_of(bucket: OpenStore, tenant: str, stream: str) -> list[str]:
    """The names of a stream's archives."""
    above = f"{tenant}/streams/{stream}"
    folders = bucket.folders(above)
    names = (folder.rstrip("/").rpartition("/")[2] for folder in folders)
    return sorted(name.removeprefix("archive=") for name in names if name.startswith("archive="))


def lives_of(bucket: OpenStore, archive: ArchiveId) -> list[ArchiveId]:
    """Those of the topics that the stream has had, the newest last.

    What was kept before they had names is one by itself, unless another goes on where it ends.
    """
    names = filter(None, map(life_in, bucket.folders(archive.above)))
    lives = {each: _paths(bucket, each) for each in (archive._replace(life=it) for it in names)}
    unnamed = _paths(bucket, archive._replace(life=""))
    if unnamed and not any(continues(paths, unnamed) for paths in lives.values()):
        lives[archive._replace(life="")] = unnamed
    found = [each for each, paths in lives.items() if paths] or [archive]
    if len(found) > 1:
        found.sort(key=lambda each: _last_ms(bucket, each, lives[each]))
    return found


def _last_ms(bucket: OpenStore, archive: ArchiveId, paths: Sequence[str]) -> int:
    """When Kafka got the last event of it."""
    day = max(map(day_in, paths))
    newest = (said_at(bucket, archive, path) for path in paths if day_in(path) == day)
    return max((each.to_ms for each in newest if isinstance(each, Archived)), default=0)


def _paths(bucket: OpenStore, archive: ArchiveId) -> list[str]:
    return sorted(filter(is_manifest, bucket.names(archive.manifests)))


def listed(
    bucket: OpenStore, archive: ArchiveId, *, from_ms: int | None = None, to_ms: int | None = None
) -> Listed:
    """By what stands beside the objects; those of other days are not looked at.

    With what was kept before lives had names, if it is of this one.
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
        found = list(pool.map(lambda each: said_at(bucket, *each), wanted))
    return Listed(
        tuple(each for each in found if isinstance(each, Archived)),
        (
            *(each for each in found if isinstance(each, Damage)),
            *(Damage(path, "missing", "its object is there") for path in sorted(unsaid)),
        ),
    )


def _unsaid(bucket: OpenStore, archive: ArchiveId, known: Container[str]) -> list[str]:
    """The manifests that are not there, of objects that are."""
    beside = (manifest_beside(archive, path) for path in bucket.names(archive.objects))
    unsaid = [it for it in beside if it and it not in known and bucket.get(it) is None]
    if unsaid:
        # An object is there a moment before what stands beside it.
        time.sleep(_MOMENT_S)
    return [it for it in unsaid if bucket.get(it) is None]


def said_at(bucket: OpenStore, archive: ArchiveId, path: str) -> Archived | Damage:
    """What stands beside an object of that archive."""
    raw = bucket.get(path)
    if raw is None:
        return Damage(path, "missing")
    try:
        said = Archived.from_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Damage(path, "unreadable", str(error))
    if said.id != archive or said.manifest_path != path:
        return Damage(path, "changed", f"it speaks of {said.path}")
    return said


def miscounted(said: Archived, count: int) -> Damage | None:
    """Says what is wrong if an object has not as many events as its manifest says."""
    if said.count == count:
        return None
    return Damage(said.manifest_path, "changed", f"it says {said.count} events, and not {count}")


def fetched(
    bucket: OpenStore, objects: Iterable[Archived]
) -> Iterator[tuple[Archived, bytes | Damage]]:
    """Each with its bytes, if they are those that were written; one at a time in memory."""
    for each in objects:
        data = bucket.get(each.path)
        if data is None:
            yield each, Damage(each.path, "missing", f"{each.count} events")
        elif hashlib.sha256(data).hexdigest() != each.sha256:
            yield each, Damage(each.path, "changed", f"{each.count} events")
        else:
            yield each, data
