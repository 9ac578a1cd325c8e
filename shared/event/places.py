"""The answer of the index of events: where in a stream's log some events may be."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from shared.event.record import KafkaPartition, Ranges

# [first, end) of offsets by Kafka partition, in ascending order.
Stretches: TypeAlias = Mapping[KafkaPartition, Sequence[tuple[int, int]]]

PLACES_PATH = "/places"
# Shorter known stretches are not worth a jump, so their events are read as well.
_NEAR = 100


class Places(Struct, frozen=True):
    """The index's answer about an id or an ordering key; only the log can confirm it."""

    # Kafka partition, first offset and end.
    stretches: tuple[tuple[int, int, int], ...] = ()
    # In the same form, stretches whose ids are all in the index: no other events there have the id.
    known: tuple[tuple[int, int, int], ...] = ()
    # Whether there may be more events, which the index has not read yet.
    is_behind: bool = False

    def of(self, topic: str) -> Stretches:
        """Return the stretches by Kafka partition, adjacent ones merged."""
        stretches: dict[KafkaPartition, list[tuple[int, int]]] = {}
        for partition, first, end in sorted(self.stretches):
            known = stretches.setdefault(KafkaPartition(topic, partition), [])
            if known and first <= known[-1][1]:
                known[-1] = known[-1][0], max(end, known[-1][1])
            else:
                known.append((first, end))
        return stretches

    def unknown(self, spans: Ranges) -> Stretches:
        """Return the stretches of the log to read for an id that the index may lack."""
        left: dict[KafkaPartition, list[tuple[int, int]]] = {}
        known: dict[int, list[tuple[int, int]]] = {}
        for partition, low, high in sorted(self.known):
            known.setdefault(partition, []).append((low, high))
        for where, (first, end) in spans.items():
            gaps = left[where] = []
            at = first
            for low, high in known.get(where.partition, ()):
                if min(high, end) - max(low, at) >= _NEAR:
                    gaps.append((at, max(low, at)))
                    at = min(high, end)
            gaps.append((at, end))
        return left


def last_part(stretches: Sequence[tuple[int, int]], end: int, count: int) -> tuple[int, int] | None:
    """Return the last `count` offsets before an end within one stretch; None if there are none."""
    for low, high in reversed(stretches):
        top = min(high, end)
        if low < top:
            return max(low, top - count), top
    return None
