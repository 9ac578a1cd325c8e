"""Keeps many durations as few numbers: counts in buckets that grow by a factor.

Any quantile of the durations is exact to 1 %, two sets merge by adding their counts, and there are
never more than about a thousand buckets (a week in milliseconds).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import mul

# Each bucket ends at GAMMA times its beginning; its middle is off by at most
# (GAMMA - 1) / (GAMMA + 1), which is 0.99 %.
GAMMA = 1.02
_LOG_GAMMA = math.log(GAMMA)
# The number of different durations in a busy minute, in ms; a logarithm costs ten look-ups.
_REMEMBERED = 65_536


@lru_cache(maxsize=_REMEMBERED)
def bucket_of(value_ms: int) -> int:
    """The number of a duration's bucket; bucket 0 is for zero and negative ones."""
    return 0 if value_ms <= 0 else 1 + math.ceil(math.log(value_ms) / _LOG_GAMMA - 1e-9)


def middle_of(bucket: int) -> float:
    """The duration in milliseconds that stands for a bucket."""
    return 0.0 if bucket <= 0 else float(2 * GAMMA ** (bucket - 1) / (GAMMA + 1))


@dataclass(slots=True)
class LogBuckets:
    """Durations in milliseconds, countable, mergeable, with their exact sum."""

    counts: dict[int, int] = field(default_factory=dict)
    sum_ms: int = 0

    @classmethod
    def of_counts(cls, values_ms: Mapping[int, int], *, until_ms: int) -> "LogBuckets":
        """The distances of many times, each with its count, to one time."""
        if values_ms:
            farthest_ms, nearest_ms = until_ms - min(values_ms), until_ms - max(values_ms)
            bucket = bucket_of(nearest_ms)
            if bucket == bucket_of(farthest_ms):
                # As in a backlog, whose events are all about the same age: no need for a loop.
                count = sum(values_ms.values())
                moments = sum(map(mul, values_ms.keys(), values_ms.values()))
                return cls({bucket: count}, until_ms * count - moments if bucket else 0)
        counts: dict[int, int] = {}
        sum_ms = 0
        for at_ms, count in values_ms.items():
            distance_ms = until_ms - at_ms
            if distance_ms > 0:
                sum_ms += distance_ms * count
            bucket = bucket_of(distance_ms)
            counts[bucket] = counts.get(bucket, 0) + count
        return cls(counts, sum_ms)

    def add(self, value_ms: int, count: int = 1) -> None:
        """Add a duration `count` times; a negative one counts as 0, as clocks differ."""
        bucket = bucket_of(value_ms)
        self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.sum_ms += max(value_ms, 0) * count

    def merge(self, other: "LogBuckets") -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.sum_ms += other.sum_ms

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def mean_ms(self) -> float:
        """The exact mean, so that means of successive steps add up; 0 without durations."""
        return self.sum_ms / (self.count or 1)

    def quantile(self, part: float) -> float:
        """The duration that this fraction of all durations does not exceed; 0 without durations."""
        rank = math.ceil(part * self.count)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return middle_of(bucket)
        return 0.0

    def to_list(self) -> list[int]:
        """Return a list for JSON: the sum, then bucket and count in turn."""
        return [self.sum_ms, *chain.from_iterable(sorted(self.counts.items()))]

    @classmethod
    def from_list(cls, flat: Iterable[int]) -> "LogBuckets":
        numbers = iter(flat)
        sum_ms = next(numbers, 0)
        return cls(dict(zip(numbers, numbers, strict=True)), sum_ms)
