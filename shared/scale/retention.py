"""Forecasts what topics will keep, beside what they keep now, and when a disk is full."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.event.times import DAY_MS

# The limit of a topic's growth.
Bound = Literal["time", "size", "for ever", "compacted"]


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A topic as it is: its settings, its content, and its latest records."""

    name: str
    partitions: int
    copies: int
    # With None, nothing is deleted by age, or by size. The size is that of one Kafka partition.
    retention_ms: int | None
    retention_bytes: int | None
    is_compacted: bool
    segment_ms: int
    segment_bytes: int
    # The figures of one copy.
    record_count: int
    stored_bytes: int
    oldest_ms: int | None
    # How many records came within the last `window_ms`.
    recent_count: int
    window_ms: int


@dataclass(frozen=True, slots=True)
class BrokerDisk:
    """A broker's disk, and what our topics have on it."""

    broker: int
    # None if the broker does not say.
    total_bytes: int | None
    free_bytes: int | None
    topic_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TopicForecast:
    """The bytes of one copy that a topic will keep if records go on coming as they did of late."""

    use: TopicUse
    bound: Bound
    bytes_s: float
    # None if it has no end, or if nobody can know (compaction keeps the newest of each key).
    kept_bytes: float | None

    @property
    def most_bytes(self) -> float:
        """Before Kafka deletes: it deletes whole segments, so each partition may have one more."""
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
    """Days until the disk is full if all goes on so; None if it never is or its room is unknown.

    Each topic grows by what comes until it keeps as much as it may.
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
