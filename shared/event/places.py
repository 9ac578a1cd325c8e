"""What an index of events tells: where in a stream's log some of them may lie."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from shared.event.record import KafkaPartition

# [first, end) of offsets by Kafka partition, in their order.
Stretches: TypeAlias = Mapping[KafkaPartition, Sequence[tuple[int, int]]]

PLACES_PATH = "/places"


class Places(Struct, frozen=True):
    """What the index has of an id or of an ordering key. The log says whether it is so."""

    # Kafka partition, first offset and end.
    stretches: tuple[tuple[int, int, int], ...] = ()
    # There may be more that it has not read of yet.
    is_behind: bool = False

    def of(self, topic: str) -> Stretches:
        """Those that touch are one."""
        found: dict[KafkaPartition, list[tuple[int, int]]] = {}
        for partition, first, end in sorted(self.stretches):
            known = found.setdefault(KafkaPartition(topic, partition), [])
            if known and first <= known[-1][1]:
                known[-1] = known[-1][0], max(end, known[-1][1])
            else:
                known.append((first, end))
        return found
