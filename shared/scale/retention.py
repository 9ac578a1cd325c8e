"""Forecasts the sizes of topics, and when a broker's disk will be full."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.event.times import DAY_MS

# The limit of a topic's growth.
Bound = Literal["time", "size", "for ever", "compacted"]


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A topic's present state: its settings, its content, and its latest records."""

    name: str
    partitions: int
    copies: int
    # None means that nothing is deleted by age, or by size. The size is for one Kafka partition.
    retention_ms: int | None
    retention_bytes: int | None
    is_compacted: bool
    segment_ms: int
    segment_bytes: int
    # Figures of one copy.
    record_count: int
    stored_bytes: int
    oldest_ms: int | None
    # The number of records of the last `window_ms`.
    recent_count: int
    window_ms: int


@dataclass(frozen=True, slots=True)
class BrokerDisk:
    """A broker's disk, with the sizes of Hifi's topics on it."""

    broker: int
    # None if the broker does not say.
    total_bytes: int | None
    free_bytes: int | None
    topic_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TopicForecast:
    """The bytes that one copy of a topic will keep at the present rate of records."""

    use: TopicUse
    bound: Bound
    bytes_s: float
    # None if it grows forever, or if it is unknown (compaction keeps the newest of each key).
    kept_bytes: float | None

    @property
    def most_bytes(self) -> float:
        """The maximum: Kafka deletes whole segments, so each partition may have one more."""
        if self.bound == "compacted":
            return self.use.stored_bytes
        if self.kept_bytes is None:
            return math.inf
        segment = min(
            self.use.segment_bytes,
            self.bytes_s * self.use.segment_ms / 1_000 / self.use.partitions,
        )
        return self.kept_bytes + segment * self.use.partitions


def forecast_of(use: TopicUse) -> TopicForecast:
    record_bytes = use.stored_bytes / use.record_count if use.record_count else 0.0
    bytes_s = use.recent_count * record_bytes * 1_000 / use.window_ms if use.window_ms else 0.0
    if use.is_compacted and use.retention_ms is None:
        return TopicForecast(use, "compacted", bytes_s, None)
    by_time = math.inf if use.retention_ms is None else bytes_s * use.retention_ms / 1_000
    by_size = math.inf if use.retention_bytes is None else use.retention_bytes * use.partitions
    kept = min(by_time, by_size)
    if kept == math.inf:
        return TopicForecast(use, "for ever", bytes_s, None)
    return TopicForecast(use, "time" if by_time <= by_size else "size", bytes_s, kept)


def days_until_full(disk: BrokerDisk, forecasts: Sequence[TopicForecast]) -> float | None:
    """Return the days until the disk is full; None if it never is, or if its space is unknown.

    Each topic grows at its present rate until it has reached its maximum.
    """
    if disk.free_bytes is None:
        return None
    growing = []
    for each in forecasts:
        copies_bytes = each.use.stored_bytes * each.use.copies
        share = disk.topic_bytes.get(each.use.name, 0) / copies_bytes if copies_bytes else 0.0
        rate = each.bytes_s * each.use.copies * share
        if rate > 0:
            left = max(0.0, each.most_bytes - each.use.stored_bytes)
            growing.append((left / each.bytes_s, rate))
    free, now_s = float(disk.free_bytes), 0.0
    rate = sum(rate for _, rate in growing)
    for ends_s, ending in sorted(growing):
        if rate * (ends_s - now_s) >= free:
            return (now_s + free / rate) * 1_000 / DAY_MS
        free -= rate * (ends_s - now_s)
        rate -= ending
        now_s = ends_s
    return None
