"""Says how many instances there should be, from the fleet's metrics: four ways to do it.

`TargetTracking`, `StepScaling` and `Timetable` do as AWS' autoscaling does; `ByLoad` is ours. The
setting in deploy/aws is AWS' target tracking of our load.
A policy sees the fleet as its metrics show it: late, and averaged over a period.
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

# How many points in a row an alarm of target tracking needs: out quickly, in slowly.
HIGH_POINTS, LOW_POINTS = 3, 15
# Target tracking goes in only below nine tenths of its target, or noise around it would go out and
# in again; ours does the same.
IN_BELOW = 0.9
# After a step, the next waits until this one can have worked.
COOLDOWN_S = 300
# A backlog is to be gone within this: that much more than arrives is wanted. Shorter asks for twice
# the machines, which come when the backlog has gone (ADR 0065).
DRAIN_S = 180.0
# A tenth of the instances, or one, goes after the load was lower for this long; the next as long.
IN_AFTER_S = 300
_IN_SHARE = 0.1
# The sizes of a step out and in. Out: a quarter of all instances, as one instance of many is no
# answer to a spike.
_STEP_OUT, _STEP_IN = 0.25, 1
# A step goes in when its metric is this much lower than the value that made it go out.
_STEP_IN_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    """The metrics of a fleet, over one period."""

    at_s: int
    # How many were working at its end; and how many are wished for now, which is never late.
    ready: int
    desired: int
    # The part of its possible work that the fleet did: at most 1, as processor time is.
    use: float
    # Events/s that came, without those of lanes that are held, dead or disabled.
    arrivals: float
    # Events that wait, without those lanes; and how old the oldest event is, of any lane.
    backlog: int
    age_s: int
    # The throughput of one instance, in events/s.
    rating: float


class Policy(Protocol):
    """Something that answers once for each period, in order."""

    def wanted(self, seen: FleetMetrics) -> int:
        """How many instances there should be from now on."""
        ...


class TargetTracking:
    """Keeps a metric at its target, as AWS does: in proportion, out after 3 points, in after 15."""

    def __init__(self, metric: Callable[[FleetMetrics], float], target: float) -> None:
        self._metric, self._target = metric, target
        self._high = self._low = 0

    def wanted(self, seen: FleetMetrics) -> int:
        value = self._metric(seen)
        self._high = self._high + 1 if value > self._target else 0
        self._low = self._low + 1 if value < IN_BELOW * self._target else 0
        count = max(1, math.ceil(seen.ready * value / self._target))
        if self._high >= HIGH_POINTS:
            # Booting instances count already: they are not asked for twice.
            return max(seen.desired, count)
        if self._low >= LOW_POINTS:
            self._low = 0
            return min(seen.desired, count)
        return seen.desired


class StepScaling:
    """Goes out by a quarter when a metric is above a threshold, and in by one below half of it."""

    def __init__(self, metric: Callable[[FleetMetrics], float], threshold: float) -> None:
        self._metric, self._threshold = metric, threshold
        self._rests_until_s = 0

    def wanted(self, seen: FleetMetrics) -> int:
        value = self._metric(seen)
        if seen.at_s < self._rests_until_s:
            return seen.desired
        if value > self._threshold:
            # Out again as soon as what was started can work, which the fleet's boot time says.
            self._rests_until_s = seen.at_s + COOLDOWN_S // 2
            return seen.desired + math.ceil(_STEP_OUT * seen.desired)
        if value <= _STEP_IN_BELOW * self._threshold and seen.desired > 1:
            self._rests_until_s = seen.at_s + COOLDOWN_S
            return seen.desired - _STEP_IN
        return seen.desired


class Timetable:
    """Wants a fixed number from each second of the day on, whatever comes."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self._counts = sorted(counts.items())

    def wanted(self, seen: FleetMetrics) -> int:
        begins = [at_s for at_s, _ in self._counts]
        # Before the first entry of a day, yesterday's last one holds.
        return self._counts[bisect_right(begins, seen.at_s % DAY_S) - 1][1]


def load_of(arrivals: float, backlog: float, *, rating: float, drain_s: float = DRAIN_S) -> float:
    """How many instances' work there is: what comes, and what waits, to be gone within a time."""
    return (arrivals + backlog / drain_s) / rating


def load_per_instance(seen: FleetMetrics) -> float:
    """The load for each instance that works, as it is published (deploy/aws)."""
    load = load_of(seen.arrivals, seen.backlog, rating=seen.rating)
    return load / max(seen.ready, 1)


class ByLoad:
    """Ours: load = (arrivals + backlog / drain time) / rating; out at once, in by a tenth.

    It falls as instances are added, and does not stop at 1 as processor time does. Lanes that wait
    for a destination and not for us are not in it: no instance would help them.
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
    """Several policies of a group: AWS takes the highest number, so it goes in when all agree."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._policies = policies

    def wanted(self, seen: FleetMetrics) -> int:
        return max(policy.wanted(seen) for policy in self._policies)


FORMS = """\
load:0.7      Hifi's own: adds instances when arrivals and backlog need over 0.7 of each instance
aws-load:0.7  AWS' target tracking of the same load, as deploy/aws sets it
cpu:0.6       target tracking of processor time at 0.6
step-cpu:0.8  adds a step of instances when processor time is above 0.8
lag:5         adds a step of instances when the oldest event is older than 5 s
fixed:6       always six instances
hours:0=4,8=12  four instances from midnight on, twelve from eight
cpu:0.6+lag:5 the higher number of the two"""


def policy_of(text: str) -> Policy:
    """A policy as people write it."""
    parts = [_single(part) for part in text.split("+")]
    return parts[0] if len(parts) == 1 else Highest(parts)


def _use(seen: FleetMetrics) -> float:
    return seen.use


# By name: the arguments that it takes, and the policy that is made of one.
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
        raise ScaleError(f"{text!r} is no policy. These are:\n{FORMS}") from error


def _timetable(counts: Mapping[int, int]) -> Timetable:
    if min(counts.values()) < 1 or not all(0 <= at_s < DAY_S for at_s in counts):
        raise ValueError(counts)
    return Timetable(counts)
