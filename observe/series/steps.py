"""What is kept of one step of time, and in which lengths of steps: one for each range shown."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, TypeVar

from shared.event.times import DAY_MS, HOUR_MS, MINUTE_MS
from shared.proof.log_buckets import LogBuckets

UNKNOWN = math.nan
# Coarser steps keep their lags in buckets as wide as so many: a quantile is within 5 %.
_WIDER = 5


class Range(NamedTuple):
    """A span of time that is shown, in as many steps as a page has room for."""

    name: str
    says: str
    step_ms: int
    steps: int


# Each step is of whole steps of the range before it.
RANGES = (
    Range("15m", "15 min", 10_000, 90),
    Range("1h", "1 h", 30_000, 120),
    Range("6h", "6 h", 2 * MINUTE_MS, 180),
    Range("24h", "24 h", 10 * MINUTE_MS, 144),
    Range("7d", "7 d", HOUR_MS, 7 * DAY_MS // HOUR_MS),
)
STEP_MS = RANGES[0].step_ms


class Accepted(NamedTuple):
    """A step of a stream."""

    # For how much of it somebody has looked.
    covered_s: float = 0.0
    accepted: float = 0.0

    def plus(self, other: "Accepted") -> "Accepted":
        """With what came after it."""
        return Accepted(self.covered_s + other.covered_s, self.accepted + other.accepted)

    def beside(self, other: "Accepted") -> "Accepted":
        """With what another stream had in the same time."""
        return self.plus(other)._replace(covered_s=max(self.covered_s, other.covered_s))

    def with_lags(self, _: LogBuckets) -> "Accepted":
        return self


class Taken(NamedTuple):
    """A step of a destination."""

    covered_s: float = 0.0
    # Events, by what became of them.
    delivered: float = 0.0
    refused: float = 0.0
    failed: float = 0.0
    throttled: float = 0.0
    # Requests, by their status.
    taken: float = 0.0
    rejected: float = 0.0
    limited: float = 0.0
    broken: float = 0.0
    unanswered: float = 0.0
    # Since the gateway had them, of events delivered; the age of the oldest that was not.
    p95_s: float = UNKNOWN
    oldest_s: float = UNKNOWN
    backlog: float = UNKNOWN

    @property
    def outcomes(self) -> float:
        return self.delivered + self.refused + self.failed + self.throttled

    @property
    def success(self) -> float:
        """The part of all outcomes that is good news; not known without any."""
        return self.delivered / self.outcomes if self.outcomes else UNKNOWN

    def plus(self, other: "Taken") -> "Taken":
        """With what came after it: counts add up, of the rest the highest counts."""
        counts = map(add, self[:_COUNTS], other[:_COUNTS])
        return Taken(*counts, *map(_higher, self[_COUNTS:], other[_COUNTS:]))

    def beside(self, other: "Taken") -> "Taken":
        """With what another destination had in the same time."""
        held = [each for each in (self.backlog, other.backlog) if not math.isnan(each)]
        return self.plus(other)._replace(
            covered_s=max(self.covered_s, other.covered_s), backlog=sum(held) if held else UNKNOWN
        )

    def with_lags(self, lags: LogBuckets) -> "Taken":
        if not lags.counts:
            return self
        return self._replace(p95_s=_higher(self.p95_s, lags.quantile(0.95) / 1000))


_COUNTS = Taken._fields.index("p95_s")
Step = TypeVar("Step", Accepted, Taken)


def _higher(one: float, other: float) -> float:
    return other if other > one or math.isnan(one) else one


def wider(lags: LogBuckets) -> LogBuckets:
    """The same in fewer buckets, for what is kept of many destinations for an hour."""
    found = LogBuckets()
    for bucket, count in lags.counts.items():
        middle = bucket - bucket % _WIDER + _WIDER // 2 if bucket else 0
        found.counts[middle] = found.counts.get(middle, 0) + count
    return found


def statuses(reasons: Mapping[str, int]) -> tuple[float, ...]:
    """How many requests were taken, rejected, told to wait, met an error, or had no answer."""
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
    """All that is known of a step that is over."""

    # Events that streams have acknowledged.
    accepted: Mapping[str, int]
    # By destination: what it took, without p95, and how late that was.
    taken: Mapping[str, tuple[Taken, LogBuckets]]
