"""Finds waiting events of which another copy may have been sent since they were stored. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shared.event.envelope import Envelope
from shared.event.record import Origin
from shared.event.topics import RETRIER


@dataclass(frozen=True, slots=True)
class Doubts:
    """Places that were or may be read twice: by a lane in a stream, or by the retrier in a tier.

    They travel with each job, thousands of ranges after a bad day, so they are plain tuples.
    """

    # Keyed by the reader: topic, Kafka partition, first offset and end.
    ranges: Mapping[str, Sequence[tuple[str, int, int, int]]] = field(default_factory=dict)
    # Whether it is unknown at present which events are in doubt.
    are_general: bool = False

    @classmethod
    def of(cls, ranges: Iterable[tuple[str, tuple[str, int, int, int]]]) -> "Doubts":
        by_reader: dict[str, list[tuple[str, int, int, int]]] = {}
        for reader, each in ranges:
            by_reader.setdefault(reader, []).append(each)
        return cls(by_reader)

    def cover(self, waiting: Envelope) -> bool:
        """Whether another copy of the event may arrive before this one."""
        if self.are_general:
            return True
        destination_id, _ = waiting.travel
        read_at = waiting.read_at
        return self._have(destination_id, waiting.origin) or (
            read_at is not None and self._have(RETRIER, read_at)
        )

    def _have(self, reader: str, place: Origin) -> bool:
        return any(
            (topic, partition) == place[:2] and begin <= place.offset < end
            for topic, partition, begin, end in self.ranges.get(reader, ())
        )
