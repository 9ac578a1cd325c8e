"""Finds an event's Kafka partition in a stream with shards."""

from functools import lru_cache

from gateway.intake.events import key_finder
from shared.config.partitioning import Partitioning

# Enough characters of an unknown shard to recognize it.
_SHOWN_CHARS = 100


class ShardFinder:
    """Finds the Kafka partition of the shard that an event names."""

    def __init__(self, partitioning: Partitioning) -> None:
        self.pointer = partitioning.pointer
        find = key_finder(partitioning.pointer)
        assert find is not None, "the pointer is not empty"
        self._find = find
        self._partitions = {shard: number for number, shard in enumerate(partitioning.shards)}

    def partition(self, value: bytes) -> int | str:
        """Return the Kafka partition, or the fault of the event."""
        shard = self._find(value)
        partition = None if shard is None else self._partitions.get(shard)
        if partition is not None:
            return partition
        count = len(self._partitions)
        if shard is None:
            return f"it names none of the stream's {count} shards as a text or a whole number"
        return f"{shard[:_SHOWN_CHARS]!r} is none of the stream's {count} shards"


shard_finder = lru_cache(maxsize=1_000)(ShardFinder)
