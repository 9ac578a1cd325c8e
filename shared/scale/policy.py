"""Four policies that set the number of instances from a fleet's metrics.

`TargetTracking`, `StepScaling` and `Timetable` work like AWS' autoscaling; `ByLoad` is our own.
deploy/aws uses AWS' target tracking of our load. A policy sees only metrics, which are late and
averaged over a period.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from shared.scale.scale_error import ScaleError
from shared.scale.traffic import DAY_S

# The consecutive points that target tracking needs: it scales out quickly and in slowly.
HIGH_POINTS, LOW_POINTS = 3, 15
# Target tracking scales in only below 0.9 of its target; otherwise noise around the target would
# make it scale out and in again. Our policy does the same.
IN_BELOW = 0.9
# The next step waits until the previous one can have had its effect.
COOLDOWN_S = 300
# The instances must be able to deliver a backlog within this time. A shorter time would double the
# machines, which would come when the backlog has gone (ADR 0065).
DRAIN_S = 180.0
# After the load was lower for this long, a tenth of the instances (at least one) ends, and so on.
IN_AFTER_S = 300
_IN_SHARE = 0.1
# The sizes of a step out and in. A step out is a quarter of all instances, because a single one
# would not help in a spike.
_STEP_OUT, _STEP_IN = 0.25, 1
# A step in needs a metric below this share of the threshold for a step out.
_STEP_IN_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    """The metrics of a fleet for one period."""

    at_s: int
    # The working instances at its end, and the currently desired number, which is never late.
    ready: int
    desired: int
    # The fleet's work as a share of its capacity: at most 1, like processor time.
    use: float
    # Arriving events/s, without lanes that are held, dead or disabled.
    arrivals: float
    # Waiting events, without those lanes; and the age of the oldest event in any lane.
    backlog: int
    age_s: int
    # The throughput of one instance, in events/s.
    rating: float


class Policy(Protocol):
    """A policy, which is asked once for each period, in order."""

    def wanted(self, seen: FleetMetrics) -> int:
        """Return the desired number of instances from now on."""
        ...


class TargetTracking:
    """Keeps a metric at its target; like AWS, it scales out after 3 points and in after 15."""

    def __init__(self, metric: Callable[[FleetMetrics], float], target: float) -> None:
        self._metric, self._target = metric, target
        self._high = self._low = 0

    def wanted(self, seen: FleetMetrics) -> int:
        value = self._metric(seen)
        self._high = self._high + 1 if value > self._target else 0
        self._low = self._low + 1 if value < IN_BELOW * self._target else 0
        count = max(1, math.ceil(seen.ready * value / self._target))
        if self._high >= HIGH_POINTS:
            # The desired number includes booting instances, so none is ordered twice.
            return max(seen.desired, count)
        if self._low >= LOW_POINTS:
            self._low = 0
            return min(seen.desired, count)
        return seen.desired


class StepScaling:
    """Adds a quarter when a metric is above a threshold, and removes one below half of it."""

    def __init__(self, metric: Callable[[FleetMetrics], float], threshold: float) -> None:
        self._metric, self._threshold = metric, threshold
        self._rests_until_s = 0

    def wanted(self, seen: FleetMetrics) -> int:
        value = self._metric(seen)
        if seen.at_s < self._rests_until_s:
            return seen.desired
        if value > self._threshold:
            # The next step out may follow when the started instances work, after their boot time.
            self._rests_until_s = seen.at_s + COOLDOWN_S // 2
            return seen.desired + math.ceil(_STEP_OUT * seen.desired)
        if value <= _STEP_IN_BELOW * self._threshold and seen.desired > 1:
            self._rests_until_s = seen.at_s + COOLDOWN_S
            return seen.desired - _STEP_IN
        return seen.desired


class Timetable:
    """Sets a fixed number from given seconds of the day on, whatever the traffic is."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self._counts = sorted(counts.items())

    def wanted(self, seen: FleetMetrics) -> int:
        begins = [at_s for at_s, _ in self._counts]
        # Before the first entry of a day, yesterday's last one holds.
        return self._counts[bisect_right(begins, seen.at_s % DAY_S) - 1][1]


def load_of(arrivals: float, backlog: float, *, rating: float, drain_s: float = DRAIN_S) -> float:
    """Return the load in instances: for arrivals, and for a backlog to deliver within a time."""
    return (arrivals + backlog / drain_s) / rating


def load_per_instance(seen: FleetMetrics) -> float:
    """Return the load for each working instance, as published by deploy/aws."""
    load = load_of(seen.arrivals, seen.backlog, rating=seen.rating)
    return load / max(seen.ready, 1)


class ByLoad:
    """Our policy: load = (arrivals + backlog / drain time) / rating; out at once, in by tenths.

    The load for each instance falls as instances are added, and does not stop at 1 as processor
    time does. Lanes that wait for a destination do not count: more instances would not help them.
    """

    def __init__(
        self, target: float, *, drain_s: float = DRAIN_S, in_after_s: int = IN_AFTER_S
    ) -> None:
        self._target, self._drain_s, self._in_after_s = target, drain_s, in_after_s
        # The loads of the last `in_after_s`.
        self._loads: deque[tuple[int, float]] = deque()
        self._since_s = 0

    def wanted(self, seen: FleetMetrics) -> int:
        load = load_of(seen.arrivals, seen.backlog, rating=seen.rating, drain_s=self._drain_s)
        self._loads.append((seen.at_s, load))
        while self._loads[0][0] <= seen.at_s - self._in_after_s:
            self._loads.popleft()
        needed = math.ceil(load / self._target)
        if needed > seen.desired:
            self._since_s = seen.at_s
            return needed
        highest = max(load for _, load in self._loads)
        fits_in = math.ceil(highest / (IN_BELOW * self._target))
        if fits_in < seen.desired and seen.at_s - self._since_s >= self._in_after_s:
            self._since_s = seen.at_s
            return max(fits_in, seen.desired - max(1, int(_IN_SHARE * seen.desired)))
        return seen.desired


class Highest:
    """Several policies of a group: like AWS, it uses the highest number of instances."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._policies = policies

    def wanted(self, seen: FleetMetrics) -> int:
        return max(policy.wanted(seen) for policy in self._policies)


FORMS = """\
load:0.7      Hifi's own: adds instances when arrivals and backlog need over 0.7 of each instance
aws-load:0.7  AWS' target tracking of the same load, as in deploy/aws
cpu:0.6       target tracking of processor time at 0.6
step-cpu:0.8  adds a step of instances when processor time is above 0.8
lag:5         adds a step of instances when the oldest event is older than 5 s
fixed:6       always six instances
hours:0=4,8=12  four instances from midnight on, twelve from eight
cpu:0.6+lag:5 the higher number of the two"""


def policy_of(text: str) -> Policy:
    """Read a policy in the form that people write."""
    parts = [_single(part) for part in text.split("+")]
    return parts[0] if len(parts) == 1 else Highest(parts)


def _use(seen: FleetMetrics) -> float:
    return seen.use


# For each name: a check of its argument, and the constructor of its policy.
_MADE: Mapping[str, tuple[Callable[[float], bool], Callable[[float], Policy]]] = {
    "load": (lambda value: value <= 1, ByLoad),
    "aws-load": (lambda value: value <= 1, partial(TargetTracking, load_per_instance)),
    "cpu": (lambda value: value < 1, partial(TargetTracking, _use)),
    "step-cpu": (lambda value: value < 1, partial(StepScaling, _use)),
    "lag": (lambda _: True, partial(StepScaling, lambda seen: seen.age_s)),
    "fixed": (lambda value: value == int(value), lambda value: _timetable({0: int(value)})),
}


def _single(text: str) -> Policy:
    name, _, argument = text.partition(":")
    try:
        if name == "hours":
            rows = [row.split("=") for row in argument.split(",")]
            return _timetable({round(3_600 * float(hour)): int(count) for hour, count in rows})
        value = float(argument)
        takes, made = _MADE[name]
        if not (0 < value < math.inf and takes(value)):
            raise ValueError(argument)  # noqa: TRY301 - the one sentence is below
        return made(value)
    except (KeyError, ValueError) as error:
        raise ScaleError(f"{text!r} is not a policy. Policies are:\n{FORMS}") from error


def _timetable(counts: Mapping[int, int]) -> Timetable:
    if min(counts.values()) < 1 or not all(0 <= at_s < DAY_S for at_s in counts):
        raise ValueError(counts)
    return Timetable(counts)
