"""Finds Kafka partitions that get more than their share of a stream, and the keys that make them.

Pure: others count what came where, and look which keys there were.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shared.event.topic_safety import TopicFinding

# With twice its share of eight, one partition has as much to do as two machines.
_TIMES_MAX = 2.0
# Of fewer events chance makes any picture.
EVENTS_MIN = 1_000
# A key with so much of a partition's newest events has made it hot.
_KEY_PART_MIN = 0.1
_KEYS_SHOWN, _KEY_CHARS_MAX = 3, 60
# What one Kafka partition brings through a pipeline is measured (docs/benchmarks.md); with half of
# that there is room for a spike.
PARTITION_BYTES_PER_S_EASY = 10_000_000


@dataclass(slots=True)
class HotKeys:
    """The keys that come most, however many there are: a space-saving sketch (Metwally, 2005).

    A key that comes more often than one in `room` is in it; its count is too high by no more than
    the least of them.
    """

    room: int = 64
    _counts: dict[bytes, int] = field(default_factory=dict)
    _total: int = 0

    def add(self, key: bytes) -> None:
        self._total += 1
        if key in self._counts or len(self._counts) < self.room:
            self._counts[key] = self._counts.get(key, 0) + 1
            return
        least = min(self._counts, key=self._counts.__getitem__)
        self._counts[key] = self._counts.pop(least) + 1

    def top(self) -> list[tuple[bytes, float]]:
        """Those with a good part of all, and which part, the largest first."""
        found = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        parts = ((key, count / self._total) for key, count in found)
        return [(key, part) for key, part in parts if part >= _KEY_PART_MIN][:_KEYS_SHOWN]


def hottest(counts: Sequence[int]) -> int | None:
    """The number of the Kafka partition that got more than twice its share, if one did."""
    total = sum(counts)
    if total < EVENTS_MIN or len(counts) < 2:  # noqa: PLR2004 - one alone has its share
        return None
    most = max(range(len(counts)), key=counts.__getitem__)
    return most if counts[most] * len(counts) > _TIMES_MAX * total else None


def examine_spread(
    stream: str, counts: Sequence[int], keys: Iterable[tuple[bytes, float]], *, is_by_shards: bool
) -> list[TopicFinding]:
    """What is wrong with how an hour's events lie in a stream's Kafka partitions."""
    hot = hottest(counts)
    if hot is None:
        return []
    part = counts[hot] / sum(counts)
    named = ", ".join(
        f"{key.decode(errors='replace')[:_KEY_CHARS_MAX]!r} ({share:.0%})" for key, share in keys
    )
    says = (
        f"Kafka partition {hot} got {part:.0%} of the last hour's events, {part * len(counts):.1f}"
        " times its share"
    )
    if is_by_shards:
        mend = "that shard is large: give it a stream of its own, or split it"
    elif named:
        says += f"; of its newest most come with the keys {named}"
        mend = "choose a key with more values (docs/partitions.md), or give these their own stream"
    else:
        mend = "no key stands out: more partitions spread the keys further (docs/partitions.md)"
    return [TopicFinding(f"spread of {stream}", "note", says, mend)]


def examine_count(
    stream: str, partition_count: int, *, bytes_per_s: float, shards: int
) -> list[TopicFinding]:
    """Whether a stream has Kafka partitions enough for what comes, and for who shares it out."""
    found = []
    needed = -(-round(bytes_per_s) // PARTITION_BYTES_PER_S_EASY)
    if needed > partition_count:
        says = (
            f"{bytes_per_s / 1e6:,.1f} MB/s came in the last hour, in {_count(partition_count)}:"
            f" each brings {PARTITION_BYTES_PER_S_EASY / 1e6:.0f} MB/s with ease"
        )
        mend = f"`hifi streams put {stream} --partitions {needed}`: docs/partitions.md"
        found.append(TopicFinding(f"partitions of {stream}", "note", says, mend))
    if shards > partition_count:
        says = (
            f"a destination has {shards} shards, and there are {_count(partition_count)} for them"
        )
        mend = (
            f"`hifi streams put {stream} --partitions {shards}`: a shard without one does nothing"
        )
        found.append(TopicFinding(f"partitions of {stream}", "note", says, mend))
    return found


def _count(partition_count: int) -> str:
    return "1 Kafka partition" if partition_count == 1 else f"{partition_count} Kafka partitions"
