"""The figures of one step of time, and the ranges of the charts with their lengths of steps."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, TypeVar

from shared.event.times import DAY_MS, HOUR_MS, MINUTE_MS
from shared.proof.log_buckets import LogBuckets

UNKNOWN = math.nan
# In coarser steps the buckets of lags are this many times as wide: quantiles are exact to 5 %.
_WIDER = 5


class Range(NamedTuple):
    """A span of time for charts, with as many steps as a page has room for."""

    name: str
    says: str
    step_ms: int
    steps: int


# Each step consists of whole steps of the previous range.
RANGES = (
    Range("15m", "15 min", 10_000, 90),
    Range("1h", "1 h", 30_000, 120),
    Range("6h", "6 h", 2 * MINUTE_MS, 180),
    Range("24h", "24 h", 10 * MINUTE_MS, 144),
    Range("7d", "7 d", HOUR_MS, 7 * DAY_MS // HOUR_MS),
)
STEP_MS = RANGES[0].step_ms


class StreamStep(NamedTuple):
    """A step of a stream."""

    # Seconds of the step that were observed.
    covered_s: float = 0.0
    accepted: float = 0.0

    def plus(self, other: "StreamStep") -> "StreamStep":
        """Join this step with the one after it."""
        return StreamStep(self.covered_s + other.covered_s, self.accepted + other.accepted)

    def beside(self, other: "StreamStep") -> "StreamStep":
        """Join this step with another stream's at the same time."""
        return self.plus(other)._replace(covered_s=max(self.covered_s, other.covered_s))

    def with_lags(self, _: LogBuckets) -> "StreamStep":
        return self


class DestinationStep(NamedTuple):
    """A step of a destination."""

    covered_s: float = 0.0
    # Events, by outcome.
    delivered: float = 0.0
    refused: float = 0.0
    failed: float = 0.0
    rate_limited: float = 0.0
    # Requests, by their status.
    taken: float = 0.0
    rejected: float = 0.0
    limited: float = 0.0
    broken: float = 0.0
    unanswered: float = 0.0
    # The lag of delivered events since acceptance; the age of the oldest without an outcome.
    p95_s: float = UNKNOWN
    oldest_s: float = UNKNOWN
    backlog: float = UNKNOWN

    @property
    def outcomes(self) -> float:
        return self.delivered + self.refused + self.failed + self.rate_limited

    @property
    def success(self) -> float:
        """The delivered share of all outcomes; UNKNOWN if there are none."""
        return self.delivered / self.outcomes if self.outcomes else UNKNOWN

    def plus(self, other: "DestinationStep") -> "DestinationStep":
        """Join this step with the next one: add counts, and keep the highest of other figures."""
        counts = map(add, self[:_COUNTS], other[:_COUNTS])
        return DestinationStep(*counts, *map(_higher, self[_COUNTS:], other[_COUNTS:]))

    def beside(self, other: "DestinationStep") -> "DestinationStep":
        """Join this step with another destination's at the same time."""
        known = [each for each in (self.backlog, other.backlog) if not math.isnan(each)]
        return self.plus(other)._replace(
            covered_s=max(self.covered_s, other.covered_s), backlog=sum(known) if known else UNKNOWN
        )

    def with_lags(self, lags: LogBuckets) -> "DestinationStep":
        if not lags.counts:
            return self
        return self._replace(p95_s=_higher(self.p95_s, lags.quantile(0.95) / 1000))


_COUNTS = DestinationStep._fields.index("p95_s")
Step = TypeVar("Step", StreamStep, DestinationStep)


def _higher(one: float, other: float) -> float:
    return other if other > one or math.isnan(one) else one


def wider(lags: LogBuckets) -> LogBuckets:
    """Return the lags in fewer buckets, for the figures of many destinations over an hour."""
    widened = LogBuckets()
    for bucket, count in lags.counts.items():
        middle = bucket - bucket % _WIDER + _WIDER // 2 if bucket else 0
        widened.counts[middle] = widened.counts.get(middle, 0) + count
    return widened


def statuses(reasons: Mapping[str, int]) -> tuple[float, ...]:
    """Count requests: taken, rejected, answered with 429, answered with 5xx, not answered."""
    counts = [0.0] * 5
    for reason, count in reasons.items():
        kind, _, status = reason.partition("_")
        if not reason:
            continue
        if kind != "status":
            counts[4] += count
        elif status == "429":
            counts[2] += count
        else:
            counts[{"2": 0, "5": 3}.get(status[:1], 1)] += count
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class EndedStep:
    """All figures of a finished step."""

    # By stream: the number of acknowledged events.
    accepted: Mapping[str, int]
    # By destination: its step, without p95, and the lags of its events.
    taken: Mapping[str, tuple[DestinationStep, LogBuckets]]
