"""Reads archives: what there is of one, which of its objects are as they were written."""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import msgspec

from shared.proof.archived import Archived, ArchiveId, is_manifest, may_hold
from shared.runtime.archive.stores import OpenStore

# Each waits for the store most of its time.
_AT_ONCE = 16


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


def listed(
    bucket: OpenStore, archive: ArchiveId, *, from_ms: int | None = None, to_ms: int | None = None
) -> Listed:
    """By what stands beside the objects; those of other days are not looked at."""
    paths = [
        path
        for path in bucket.names(archive.manifests)
        if is_manifest(path) and may_hold(path, from_ms=from_ms, to_ms=to_ms)
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda path: _said(bucket, archive, path), sorted(paths)))
    return Listed(
        tuple(each for each in found if isinstance(each, Archived)),
        tuple(each for each in found if isinstance(each, Damage)),
    )


def _said(bucket: OpenStore, archive: ArchiveId, path: str) -> Archived | Damage:
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
