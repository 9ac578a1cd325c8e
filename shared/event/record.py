"""A Kafka record as the core sees it: one coming in with its coordinates, or one going out.

Only plain values live here; no Kafka client's own record class ever reaches the core.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class KafkaPartition(NamedTuple):
    """One of the logs that a topic is made of."""

    topic: str
    partition: int


# An offset for each Kafka partition: how far somebody is.
Position: TypeAlias = Mapping[KafkaPartition, int]
# [begin, end) of each Kafka partition.
Ranges: TypeAlias = Mapping[KafkaPartition, tuple[int, int]]

# Kafka keeps header order and allows a name twice; the last one counts (as in Kafka's lastHeader).
Headers: TypeAlias = tuple[tuple[str, bytes], ...]


class Origin(NamedTuple):
    """Where an event was first stored: the identity that no retry and no replay changes."""

    topic: str
    partition: int
    offset: int

    @property
    def log(self) -> KafkaPartition:
        """The Kafka partition in which that was."""
        return KafkaPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RecordIn:
    """A record as it was read."""

    origin: Origin
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class RecordOut:
    """A record to be written; the broker stamps its time (LogAppendTime)."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = ()
