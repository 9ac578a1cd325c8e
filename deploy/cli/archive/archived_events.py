"""Finds the events of a stream that only its archive still has, for a replay."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from deploy.cli.archive.places import store_errors
from shared.event.record import KafkaPartition, Position, RecordIn
from shared.proof.archived import ArchivedObject, ArchiveId, Laid, laid
from shared.proof.intervals import Offsets
from shared.runtime.archive.archived_log import sound_bytes, sound_list
from shared.runtime.archive.files import log_rows, read_object
from shared.runtime.archive.stores import OpenStore
from shared.runtime.spark.arrow_rows import records_of


@dataclass(frozen=True, slots=True)
class ArchivedEvents:
    """The archived events of a topic from before the offsets where Kafka's logs begin."""

    bucket: OpenStore
    topic: str
    log_starts: Position
    objects: Sequence[Laid]
    _last: dict[str, bytes] = field(default_factory=dict, init=False)

    def of(self, where: KafkaPartition) -> list[Laid]:
        start = self.log_starts[where]
        mine = [entry for entry in self.objects if entry.archived.partition == where.partition]
        return [entry for entry in mine if entry.from_offset < start]

    def at(self, where: KafkaPartition, at_ms: int) -> int:
        """Return the first offset stored since that time; at most the start of Kafka's log."""
        start = self.log_starts[where]
        for archived, from_offset in self.of(where):
            if archived.to_ms < at_ms:
                continue
            columns = read_object(self._bytes(archived), ("offset", "time_ms"))
            pairs = zip(*(columns[name].to_pylist() for name in ("offset", "time_ms")), strict=True)
            offsets: list[int] = [
                at for at, time_ms in pairs if time_ms >= at_ms and at >= from_offset
            ]
            if offsets:
                return min(offsets[0], start)
        return start

    def missing(self, where: KafkaPartition, at: int) -> int:
        """Return how many offsets from `at` on are neither in the archive nor in Kafka."""
        offsets = Offsets.of([(at, self.log_starts[where])])
        kept = Offsets.of([(entry.archived.first, entry.archived.end) for entry in self.of(where)])
        return len(offsets.minus(kept))

    def records(self, where: KafkaPartition, begin: int, end: int) -> list[RecordIn]:
        """Return the archived records of these offsets."""
        rows = log_rows(
            (self._bytes(archived), where, max(begin, from_offset), end)
            for archived, from_offset in self.of(where)
            if archived.end > begin and from_offset < end
        )
        return [record for batch in rows.to_batches() for record in records_of(batch)]

    def _bytes(self, said: ArchivedObject) -> bytes:
        """Return an object's bytes; keep them until the next object, as it is read in parts."""
        if said.path not in self._last:
            self._last.clear()
            with store_errors():
                self._last[said.path] = sound_bytes(self.bucket, said)
        return self._last[said.path]


def earlier(
    bucket: OpenStore, archive: ArchiveId, topic: str, log_starts: Position, *, from_ms: int
) -> ArchivedEvents:
    """Return the events that only the archive has; StoreError if its manifests are damaged."""
    with store_errors():
        objects = sound_list(bucket, archive, from_ms=from_ms)
    return ArchivedEvents(bucket, topic, log_starts, laid(objects))
