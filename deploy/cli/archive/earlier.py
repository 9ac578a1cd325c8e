"""Finds what Kafka has no more of a stream in its archive: for whoever sends it once more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.cli.archive.places import StoreError
from shared.event.record import KafkaPartition, Position, Ranges
from shared.proof.archived import Archived, ArchiveId, Laid, laid
from shared.proof.intervals import Offsets
from shared.runtime.archive.files import log_rows, read_object
from shared.runtime.archive.reading import Damage, fetched, listed
from shared.runtime.archive.stores import OpenStore, StoreAwayError


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an archive has of a topic, before the offsets at which Kafka's logs begin."""

    bucket: OpenStore
    topic: str
    log_starts: Position
    objects: Sequence[Laid]

    def of(self, where: KafkaPartition) -> list[Laid]:
        start = self.log_starts[where]
        mine = [it for it in self.objects if it.archived.partition == where.partition]
        return [it for it in mine if it.from_offset < start]

    def at(self, where: KafkaPartition, at_ms: int) -> int:
        """The first offset that Kafka got at that time or later, if need be that of its log."""
        start = self.log_starts[where]
        for said, from_offset in self.of(where):
            if said.to_ms < at_ms:
                continue
            columns = read_object(self._bytes(said), ("offset", "time_ms"))
            pairs = zip(*(columns[it].to_pylist() for it in ("offset", "time_ms")), strict=True)
            found: list[int] = [
                at for at, time_ms in pairs if time_ms >= at_ms and at >= from_offset
            ]
            if found:
                return min(found[0], start)
        return start

    def missing(self, where: KafkaPartition, at: int) -> int:
        """How many offsets from there on neither this nor Kafka has."""
        offsets = Offsets.of([(at, self.log_starts[where])])
        kept = Offsets.of([(it.archived.first, it.archived.end) for it in self.of(where)])
        return len(offsets.minus(kept))

    @property
    def edges(self) -> dict[KafkaPartition, list[int]]:
        """Where objects end, and where Kafka's log begins: who reads goes from one to the next."""
        return {
            where: [*sorted(it.archived.end for it in self.of(where)), start]
            for where, start in self.log_starts.items()
        }

    def read(self, ranges: Ranges) -> Any:
        """Those offsets, with the columns of Spark's Kafka source."""
        return log_rows(
            (self._bytes(said), where, max(begin, from_offset), end)
            for where, (begin, end) in ranges.items()
            for said, from_offset in self.of(where)
            if said.end > begin and from_offset < end
        )

    def _bytes(self, said: Archived) -> bytes:
        try:
            ((_, data),) = fetched(self.bucket, [said])
        except StoreAwayError as error:
            raise StoreError(f"{error}.") from error
        if isinstance(data, Damage):
            raise _error_of(data)
        return data


def earlier(
    bucket: OpenStore, archive: ArchiveId, topic: str, log_starts: Position, *, from_ms: int
) -> Earlier:
    """StoreError if what stands beside its objects is not as it was written."""
    try:
        there = listed(bucket, archive, from_ms=from_ms)
    except StoreAwayError as error:
        raise StoreError(f"{error}.") from error
    for damage in there.damage:
        raise _error_of(damage)
    return Earlier(bucket, topic, log_starts, laid(there.objects))


def _error_of(damage: Damage) -> StoreError:
    return StoreError(
        f"{damage.path} is {damage.kind}: `hifi archive verify` names all that is wrong."
    )
