"""The events that a restore has put back into a stream, from the records of its transactions.

Each record covers all events put back so far, so only the newest one of a restore counts. Exactly
the events that it covers are in the stream, however often the restore was interrupted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from shared.event.record import KafkaPartition, Origin
from shared.event.topics import stream_of, stream_topic

# The times of acceptance are the gateway's: a little earlier than Kafka's, and by another clock.
_CLOCK_SLACK_MS = 60_000


class RestoredEvents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that one restore has put back into one stream."""

    id: str
    # The tenant, the stream and the topic of the archive (`ArchiveId.life`).
    tenant: str
    stream: str
    life: str = ""
    to_stream: str
    count: int
    # When the first and the newest of them were put back.
    began_ms: int
    last_ms: int
    # An offset in each Kafka partition of the stream that now has them: none of them is before it.
    begins: Mapping[int, int]
    # When Kafka had received the first and the last of them, before they were archived.
    from_ms: int
    to_ms: int
    # Their former offsets, by Kafka partition. Offsets from an archive that leaves events out are
    # not listed, as each would need a span of its own.
    spans: Mapping[int, list[tuple[int, int]]] = {}

    @property
    def key(self) -> str:
        return f"{self.to_stream}/{self.id}.{self.life}"

    def has(self, origin: Origin, accepted_at_ms: int) -> bool:
        """Whether it has put back the event that had this place and this time of acceptance.

        A recreated topic has the same offsets again, at another time.
        """
        return (
            stream_of(origin.topic) == self.stream
            and self.from_ms - _CLOCK_SLACK_MS <= accepted_at_ms <= self.to_ms + _CLOCK_SLACK_MS
            and any(
                first <= origin.offset < end for first, end in self.spans.get(origin.partition, ())
            )
        )

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> "RestoredEvents":
        """Read a record; ValueError if it is not one."""
        return msgspec.json.decode(value, type=cls)


@dataclass(frozen=True, slots=True)
class RestoredView:
    """The events of a stream that restores of the last month have put back."""

    count: int = 0
    # The latest restore, and its time.
    last: str = ""
    last_ms: int = 0

    @classmethod
    def of(cls, restores: Sequence[RestoredEvents]) -> "RestoredView":
        """Sum up restores, which come in order, the newest last."""
        if not restores:
            return cls()
        newest = restores[-1]
        return cls(sum(each.count for each in restores), newest.id, newest.last_ms)


NOT_RESTORED = RestoredView()


@dataclass(slots=True)
class Restores:
    """The newest record of each restore."""

    _newest: dict[str, RestoredEvents] = field(default_factory=dict)

    def take(self, value: bytes) -> None:
        """Take a record; ignore one that cannot be read."""
        try:
            restore = RestoredEvents.from_json(value)
        except ValueError:
            return
        # Put a restore's new record last: it is the newest.
        self._newest.pop(restore.key, None)
        self._newest[restore.key] = restore

    def get(self, key: str) -> RestoredEvents | None:
        return self._newest.get(key)

    def into(self, stream: str) -> list[RestoredEvents]:
        """The restores that have put events into a stream, the newest last."""
        return [restore for restore in self._newest.values() if restore.to_stream == stream]

    def out_of(self, stream: str) -> list[RestoredEvents]:
        """The restores that have put back events of a stream, the newest last."""
        return [restore for restore in self._newest.values() if restore.stream == stream]

    def begins(self) -> dict[KafkaPartition, int]:
        """The first offsets from which there may be events that were put back."""
        offsets: dict[KafkaPartition, int] = {}
        for restore in self._newest.values():
            for partition, at in restore.begins.items():
                where = KafkaPartition(stream_topic(restore.to_stream), partition)
                offsets[where] = min(at, offsets.get(where, at))
        return offsets
