"""Kafka records in the core: incoming ones with their coordinates, and outgoing ones.

They have plain values only; a Kafka client's own record classes never reach the core.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class KafkaPartition(NamedTuple):
    """One of the logs that a topic is made of."""

    topic: str
    partition: int


# An offset for each Kafka partition: the next one to read.
Position: TypeAlias = Mapping[KafkaPartition, int]
# The offsets [begin, end) of each Kafka partition.
Ranges: TypeAlias = Mapping[KafkaPartition, tuple[int, int]]

# Kafka keeps header order and allows a name twice; the last one counts (as in Kafka's lastHeader).
Headers: TypeAlias = tuple[tuple[str, bytes], ...]


class Origin(NamedTuple):
    """The place where an event was first stored: retries and replays never change it."""

    topic: str
    partition: int
    offset: int

    @property
    def log(self) -> KafkaPartition:
        """The Kafka partition of the place."""
        return KafkaPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RecordIn:
    """A record that was read."""

    origin: Origin
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class RecordOut:
    """A record to write; the broker sets its time (LogAppendTime)."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = ()
