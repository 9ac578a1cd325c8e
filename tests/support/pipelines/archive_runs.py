"""Gives tests of archives two things to compare: a stream's log, and its restored events."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from deploy.cli.archive.restoring import Restore, Restoring, found
from shared.config.outside.store import Store
from shared.event.derived import RESTORED
from shared.event.topics import stream_topic
from shared.proof.archived import ArchivedObject, ArchiveId
from shared.runtime.archive.reading import listed, lives_of
from shared.runtime.archive.stores import OpenStore
from shared.runtime.secret_box import SecretBox
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.kafka_log import read_all

START_S = 240.0


class ArchivedRecord(NamedTuple):
    """A record without its place and its time of arrival."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def folder_of(hifi: RunningHifi) -> Path:
    """Return the folder of the store `archive` of an embedded stack."""
    return hifi.stack.settings.folder / "archive"


def bucket_of(folder: Path) -> OpenStore:
    return OpenStore(Store("archive", f"file://{folder}"), SecretBox.of(""), folders=folder)


def objects_of(bucket: OpenStore, archive: ArchiveId) -> list[ArchivedObject]:
    """Return the archived objects of the stream's newest topic."""
    there = listed(bucket, lives_of(bucket, archive)[-1])
    assert there.damage == ()
    return sorted(there.objects, key=lambda each: (each.partition, each.first))


def wait_until_kept(bucket: OpenStore, archive: ArchiveId, count: int) -> list[ArchivedObject]:
    def kept() -> int:
        return sum(each.count for each in objects_of(bucket, archive))

    wait_until(
        lambda: kept() >= count,
        what=lambda: f"{count} events are archived, not {kept()}",
        timeout_s=START_S,
    )
    return objects_of(bucket, archive)


def log_of(kafka: str, stream: str) -> dict[int, list[ArchivedRecord]]:
    """Return a stream's records by Kafka partition, in order, without the header of a restore."""
    by_partition: dict[int, list[ArchivedRecord]] = {}
    for record in asyncio.run(read_all(kafka, stream_topic(stream))):
        headers = tuple((name, raw) for name, raw in record.headers if name != RESTORED)
        kept = ArchivedRecord(record.key, record.value, headers)
        by_partition.setdefault(record.partition, []).append((record.offset, kept))  # type: ignore[arg-type]
    return {
        partition: [kept for _, kept in sorted(records)]  # type: ignore[misc]
        for partition, records in by_partition.items()
    }


def restored(
    kafka: str, bucket: OpenStore, archive: ArchiveId, to_stream: str, *, restore_id: str
) -> Restoring:
    """Restore all events of the newest topic, or of the named one, at once."""
    life = archive if archive.life else lives_of(bucket, archive)[-1]
    wanted = Restore(restore_id, life, to_stream, None, None, None)
    restoring = Restoring(kafka, bucket, wanted, found(bucket, wanted))

    async def run() -> None:
        async for _ in restoring.run():
            pass

    asyncio.run(run())
    return restoring
