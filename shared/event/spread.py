"""Finds Kafka partitions with more than their share of a stream, and the keys that cause it.

Pure: callers count events and look up keys. Nobody counts all keys: the gateway writes the most
frequent ones of each second and Kafka partition into its ledger (`frequent`), and readers of the
ledger add them up in little memory (`Spread`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from zlib import crc32

from shared.event.times import MINUTE_MS
from shared.event.topic_safety import TopicFinding

# With twice its share, one of eight partitions has the work of two machines.
_TIMES_MAX = 2.0
# With fewer events, the spread is mostly chance.
EVENTS_MIN = 1_000
# A key with at least this share of a partition's newest events is what made it hot.
_KEY_PART_MIN = 0.1
_KEYS_SHOWN, _KEY_CHARS_MAX = 3, 60
# A row of the ledger has at most this many keys, each with at least this share of its events. The
# share is lower than that above, because a frequent key may by chance be rarer in one row.
_ROW_KEYS_MAX, _ROW_KEY_PART = 8, 1 / 16
# Half of the measured throughput of one Kafka partition in a pipeline (docs/benchmarks.md), which
# leaves room for a spike.
PARTITION_BYTES_PER_S_EASY = 10_000_000


@dataclass(slots=True)
class HotKeys:
    """The most frequent of any number of keys: a space-saving sketch (Metwally, 2005).

    It has every key with more than 1/`room` of the events. A count may be too high, but by no more
    than the lowest count.
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
        """Count events with rare keys or without keys."""
        self._total += count

    def halve(self) -> None:
        """Halve the weight of all events so far."""
        self._total /= 2
        self._counts = {key: count / 2 for key, count in self._counts.items()}

    def top(self) -> list[tuple[str, float]]:
        """Return the frequent keys with their shares of all events, the largest first."""
        ranked = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        parts = ((key, count / self._total) for key, count in ranked)
        return [(key, part) for key, part in parts if part >= _KEY_PART_MIN][:_KEYS_SHOWN]


@dataclass(frozen=True, slots=True)
class SpreadView:
    """The recent spread of a stream's events over its Kafka partitions."""

    # The number of the fullest Kafka partition, its share of all events, and that share as a
    # multiple of an even share.
    fullest: int
    part: float
    times: float
    # Whether that multiple is too high.
    is_hot: bool
    # The most frequent keys, each with its share of the stream's events.
    keys: tuple[tuple[str, float], ...] = ()


@dataclass(slots=True)
class Spread:
    """The spread of one stream's events and its frequent keys, in little memory.

    Each minute halves the weight of all earlier events.
    """

    _counts: dict[int, float] = field(default_factory=dict)
    _keys: HotKeys = field(default_factory=HotKeys)
    _minute: int = 0

    def take(
        self, partition: int, count: int, keys: Iterable[tuple[str, int]], *, now_ms: int
    ) -> None:
        """Count events of one Kafka partition, with their frequent keys."""
        self._age(now_ms)
        self._counts[partition] = self._counts.get(partition, 0) + count
        for key, times in keys:
            self._keys.add(key, times)
            count -= times
        self._keys.add_others(count)

    def view(self, partition_count: int, *, now_ms: int) -> SpreadView | None:
        """Return the spread; None if it may be due to chance, because events are too few."""
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
        # After 60 halvings nothing is left.
        for _ in range(min(minute - self._minute, 60)):
            self._counts = {number: count / 2 for number, count in self._counts.items()}
            self._keys.halve()
        self._minute = max(minute, self._minute)


def key_text(key: bytes) -> str:
    """Return a key as text; a long key is cut, with a checksum at its end."""
    text = key.decode(errors="replace")
    if len(text) <= _KEY_CHARS_MAX:
        return text
    return f"{text[:_KEY_CHARS_MAX]}… #{crc32(key):08x}"


def frequent(counts: Mapping[bytes, int], event_count: int) -> tuple[tuple[str, int], ...]:
    """Return the frequent keys among some events, with their counts, the most frequent first."""
    least = event_count * _ROW_KEY_PART
    ranked = sorted(
        ((count, key) for key, count in counts.items() if count >= least),
        key=itemgetter(0),
        reverse=True,
    )
    return tuple((key_text(key), count) for count, key in ranked[:_ROW_KEYS_MAX])


def hottest(counts: Sequence[float]) -> int | None:
    """Return the number of the fullest Kafka partition, if it has more than twice its share."""
    total = sum(counts)
    if total < EVENTS_MIN or len(counts) < 2:  # noqa: PLR2004 - a single one has its share
        return None
    most = max(range(len(counts)), key=counts.__getitem__)
    return most if counts[most] * len(counts) > _TIMES_MAX * total else None


def examine_spread(
    stream: str, counts: Sequence[int], keys: Iterable[tuple[str, float]], *, is_by_shards: bool
) -> list[TopicFinding]:
    """Find the cause of an uneven spread of an hour's events over a stream's Kafka partitions."""
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
        says += f"; the most frequent keys of its newest events are {named}"
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
            f" each one easily carries {PARTITION_BYTES_PER_S_EASY / 1e6:.0f} MB/s"
        )
        mend = f"`hifi streams put {stream} --partitions {needed}`: docs/partitions.md"
        findings.append(TopicFinding(f"partitions of {stream}", "note", says, mend))
    if shards > partition_count:
        says = f"a destination has {shards} shards, but the stream has {_count(partition_count)}"
        mend = (
            f"`hifi streams put {stream} --partitions {shards}`: a shard without one does nothing"
        )
        findings.append(TopicFinding(f"partitions of {stream}", "note", says, mend))
    return findings


def _count(partition_count: int) -> str:
    return "1 Kafka partition" if partition_count == 1 else f"{partition_count} Kafka partitions"
