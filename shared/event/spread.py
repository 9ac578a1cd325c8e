"""Finds Kafka partitions that get more than their share of a stream, and the keys that make them.

Pure: others count events and look up keys. Nobody counts all keys: the gateway tells the most
frequent ones of each second and Kafka partition (`frequent`, in its ledger), and readers of that
add them up in little room (`Spread`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from zlib import crc32

from shared.event.times import MINUTE_MS
from shared.event.topic_safety import TopicFinding

# With twice its share of eight, one partition has as much to do as two machines.
_TIMES_MAX = 2.0
# With fewer events, chance makes any picture.
EVENTS_MIN = 1_000
# A key with this much of a partition's newest events has made it hot.
_KEY_PART_MIN = 0.1
_KEYS_SHOWN, _KEY_CHARS_MAX = 3, 60
# A row of the ledger tells at most this many keys, each with a good part of its events: less than
# the part that makes a key worth naming, as chance may have it below that in a row.
_ROW_KEYS_MAX, _ROW_KEY_PART = 8, 1 / 16
# The bytes that one Kafka partition brings through a pipeline are measured (docs/benchmarks.md);
# half of that leaves room for a spike.
PARTITION_BYTES_PER_S_EASY = 10_000_000


@dataclass(slots=True)
class HotKeys:
    """The keys that come most, however many there are: a space-saving sketch (Metwally, 2005).

    A key that comes more often than one in `room` is in it; its count is too high by no more than
    the least of them.
    """

    room: int = 64
    _counts: dict[str, float] = field(default_factory=dict)
    _total: float = 0.0

    def add(self, key: str, count: int = 1) -> None:
        self._total += count
        if key in self._counts or len(self._counts) < self.room:
            self._counts[key] = self._counts.get(key, 0) + count
            return
        least = min(self._counts, key=self._counts.__getitem__)
        self._counts[key] = self._counts.pop(least) + count

    def add_others(self, count: int) -> None:
        """Count events whose keys are not worth telling, or that have none."""
        self._total += count

    def halve(self) -> None:
        """Let what came so far count for half as much."""
        self._total /= 2
        self._counts = {key: count / 2 for key, count in self._counts.items()}

    def top(self) -> list[tuple[str, float]]:
        """The keys with a good part of all events, each with its part, the largest first."""
        ranked = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        parts = ((key, count / self._total) for key, count in ranked)
        return [(key, part) for key, part in parts if part >= _KEY_PART_MIN][:_KEYS_SHOWN]


@dataclass(frozen=True, slots=True)
class SpreadView:
    """How a stream's events have come to lie in its Kafka partitions lately."""

    # The number of the Kafka partition that has most, its part of all events, and how many times
    # its even share that is.
    fullest: int
    part: float
    times: float
    # Whether that is too much.
    is_hot: bool
    # The most frequent keys, and what part of the stream's events each has.
    keys: tuple[tuple[str, float], ...] = ()


@dataclass(slots=True)
class Spread:
    """Where the events of one stream lie, and their keys, in little room for any number of both.

    With each minute what came before counts for half as much.
    """

    _counts: dict[int, float] = field(default_factory=dict)
    _keys: HotKeys = field(default_factory=HotKeys)
    _minute: int = 0

    def take(
        self, partition: int, count: int, keys: Iterable[tuple[str, int]], *, now_ms: int
    ) -> None:
        """Enter events of one Kafka partition, and the frequent ones of their keys."""
        self._age(now_ms)
        self._counts[partition] = self._counts.get(partition, 0) + count
        for key, times in keys:
            self._keys.add(key, times)
            count -= times
        self._keys.add_others(count)

    def view(self, partition_count: int, *, now_ms: int) -> SpreadView | None:
        """None for too few events: chance makes any picture of them."""
        self._age(now_ms)
        counts = [self._counts.get(number, 0.0) for number in range(partition_count)]
        total = sum(counts)
        if total < EVENTS_MIN:
            return None
        fullest = max(range(partition_count), key=counts.__getitem__)
        part = counts[fullest] / total
        times, is_hot = part * partition_count, hottest(counts) is not None
        return SpreadView(fullest, part, times, is_hot, tuple(self._keys.top()))

    def _age(self, now_ms: int) -> None:
        minute = now_ms // MINUTE_MS
        # After an hour nothing is left of anything.
        for _ in range(min(minute - self._minute, 60)):
            self._counts = {number: count / 2 for number, count in self._counts.items()}
            self._keys.halve()
        self._minute = max(minute, self._minute)


def key_text(key: bytes) -> str:
    """A key as it is shown: a long one by its beginning, and a number of its own."""
    text = key.decode(errors="replace")
    if len(text) <= _KEY_CHARS_MAX:
        return text
    return f"{text[:_KEY_CHARS_MAX]}… #{crc32(key):08x}"


def frequent(counts: Mapping[bytes, int], event_count: int) -> tuple[tuple[str, int], ...]:
    """The keys that a good part of some events have, and how many each, the most frequent first."""
    least = event_count * _ROW_KEY_PART
    ranked = sorted(
        ((count, key) for key, count in counts.items() if count >= least),
        key=itemgetter(0),
        reverse=True,
    )
    return tuple((key_text(key), count) for count, key in ranked[:_ROW_KEYS_MAX])


def hottest(counts: Sequence[float]) -> int | None:
    """The number of the Kafka partition that got more than twice its share, if one did."""
    total = sum(counts)
    if total < EVENTS_MIN or len(counts) < 2:  # noqa: PLR2004 - one alone has its share
        return None
    most = max(range(len(counts)), key=counts.__getitem__)
    return most if counts[most] * len(counts) > _TIMES_MAX * total else None


def examine_spread(
    stream: str, counts: Sequence[int], keys: Iterable[tuple[str, float]], *, is_by_shards: bool
) -> list[TopicFinding]:
    """Find what makes an hour's events lie unevenly in a stream's Kafka partitions."""
    hot = hottest(counts)
    if hot is None:
        return []
    part = counts[hot] / sum(counts)
    named = ", ".join(f"{key!r} ({share:.0%})" for key, share in keys)
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
    """Whether a stream has enough Kafka partitions for its events, and for its shards."""
    findings = []
    needed = -(-round(bytes_per_s) // PARTITION_BYTES_PER_S_EASY)
    if needed > partition_count:
        says = (
            f"{bytes_per_s / 1e6:,.1f} MB/s came in the last hour, in {_count(partition_count)}:"
            f" each brings {PARTITION_BYTES_PER_S_EASY / 1e6:.0f} MB/s with ease"
        )
        mend = f"`hifi streams put {stream} --partitions {needed}`: docs/partitions.md"
        findings.append(TopicFinding(f"partitions of {stream}", "note", says, mend))
    if shards > partition_count:
        says = (
            f"a destination has {shards} shards, and there are {_count(partition_count)} for them"
        )
        mend = (
            f"`hifi streams put {stream} --partitions {shards}`: a shard without one does nothing"
        )
        findings.append(TopicFinding(f"partitions of {stream}", "note", says, mend))
    return findings


def _count(partition_count: int) -> str:
    return "1 Kafka partition" if partition_count == 1 else f"{partition_count} Kafka partitions"
