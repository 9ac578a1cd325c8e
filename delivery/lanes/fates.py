"""Tracks the health of each lane: whether it is up, how often it died, how long it has stalled.

A lane is as healthy as its worst strand: one Kafka partition of a stream may hang or have lost
events while all others continue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from delivery.lanes.strands.way import Laggard
from delivery.lanes.units import Strand
from delivery.metrics import DeliveryMetrics

log = structlog.get_logger()

# The first restart comes at once, as most faults pass soon; a lane that cannot continue at all
# tries twice a minute.
RESTART_WAIT_S_MAX = 30.0
# A lane that has worked for this long has recovered: its restart waits begin from 0 s again.
HEALTHY_AFTER_S = 60.0
# Strands that die within this time are taken to have died for the same reason.
_TOGETHER_S = 0.5
# All brokers know a new topic within a second or two.
_BEGINS_WITHIN_S = 5.0
_DATA_LOSS_ADVICE = (
    "events that this lane had not read are gone from Kafka (retention, or the topic was deleted"
    " and recreated); the lane does not skip them by itself: see 'A lane that stops' in"
    " docs/guarantees.md"
)


@dataclass(slots=True)
class _LaneFate:
    up_s: float
    died_s: float = 0.0
    deaths: int = 0
    # Strands to plan again after a death; the others continue meanwhile.
    dead: set[Strand] = field(default_factory=set)
    is_stalled: bool = False
    # The length of the stall that the gauge shows; None if the gauge must be set (again).
    shown_s: float | None = None


@dataclass(slots=True)
class Fates:
    """The health of all lanes that this process runs."""

    metrics: DeliveryMetrics
    stalled_after_s: float
    _lanes: dict[str, _LaneFate] = field(default_factory=dict)
    # When each lane that waits to begin in some Kafka partition started to wait, and which of these
    # lanes were logged.
    _waiting: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def names(self) -> set[str]:
        return set(self._lanes)

    def up(self, name: str, *, now_s: float) -> None:
        if name not in self._lanes:
            self._lanes[name] = _LaneFate(up_s=now_s)
            self.metrics.lane_up(name, is_up=True)
            log.info("lane.started", lane=name)

    def down(self, name: str) -> None:
        if self._lanes.pop(name, None) is not None:
            self.metrics.lane_gone(name)
            log.info("lane.stopped", lane=name)

    def went_on(self, strand: Strand, *, now_s: float) -> None:
        fate = self._lanes.get(strand.destination)
        if fate is None:
            return
        if strand in fate.dead:
            fate.dead.remove(strand)
            self.metrics.lane_up(strand.destination, is_up=not fate.dead)
        if fate.deaths and not fate.dead and now_s - fate.died_s > HEALTHY_AFTER_S:
            fate.deaths = 0

    def died(self, strand: Strand, why: str, *, is_data_lost: bool, now_s: float) -> None:
        """Log a death; strands that die together count as one."""
        name = strand.destination
        self.up(name, now_s=now_s)
        fate = self._lanes[name]
        is_new = self._is_new(fate, now_s)
        fate.dead.add(strand)
        if not is_new:
            return
        fate.died_s = now_s
        fate.deaths += 1
        self.metrics.lane_up(name, is_up=False)
        self.metrics.lane_restarted(name)
        log.error(
            "lane.data_lost" if is_data_lost else "lane.died",
            lane=name,
            partition=strand.where.partition,
            restart_in_s=_wait_s(fate.deaths),
            error=why,
            **({"advice": _DATA_LOSS_ADVICE} if is_data_lost else {}),
        )

    def again_s(self, name: str, *, now_s: float) -> float:
        """Return when a strand of a lane may continue if it dies now."""
        fate = self._lanes.get(name, _LaneFate(up_s=now_s))
        if self._is_new(fate, now_s):
            return now_s + _wait_s(fate.deaths + 1)
        return fate.died_s + _wait_s(fate.deaths)

    def _is_new(self, fate: _LaneFate, now_s: float) -> bool:
        until_s = fate.died_s + max(_TOGETHER_S, _wait_s(fate.deaths))
        return not fate.dead or now_s >= until_s

    def look(self, name: str, last: Laggard | None, *, now_s: float) -> None:
        """Check, once a second, whether a lane makes progress with its events."""
        fate = self._lanes.get(name)
        if fate is None:
            return
        age_s = max(0.0, now_s - max(last.since_s, fate.up_s)) if last else 0.0
        if age_s == fate.shown_s:
            # Most of thousands of lanes have nothing to send.
            return
        fate.shown_s = age_s
        self.metrics.progress_age(name, age_s=age_s)
        is_stalled = age_s > self.stalled_after_s
        if last and is_stalled and not fate.is_stalled:
            log.error(
                "lane.stalled",
                lane=name,
                partition=last.strand.where.partition,
                no_progress_for_s=round(age_s, 1),
                doing="sending" if last.is_sending else "waiting for its turn",
            )
        elif fate.is_stalled and not is_stalled:
            log.info("lane.goes_on", lane=name)
        fate.is_stalled = is_stalled
        self.metrics.lane_stalled(name, for_s=age_s if is_stalled else 0)

    def wait(self, waiting: Mapping[str, tuple[Sequence[int], str]], *, now_s: float) -> None:
        """Report lanes that cannot begin in a Kafka partition; call once a second, after `look`."""
        for name in self._waiting.keys() - waiting.keys():
            del self._waiting[name]
            if name in self._told:
                self._told.remove(name)
                self._begins(name)
        for name, (partitions, why) in waiting.items():
            age_s = now_s - self._waiting.setdefault(name, now_s)
            if age_s < _BEGINS_WITHIN_S:
                continue
            if name not in self._told:
                self._told.add(name)
                log.error("lane.cannot_begin", lane=name, partitions=partitions, error=why)
            self.metrics.lane_up(name, is_up=False)
            if age_s > self.stalled_after_s:
                self.metrics.lane_stalled(name, for_s=age_s)
                if fate := self._lanes.get(name):
                    fate.shown_s = None

    def _begins(self, name: str) -> None:
        if fate := self._lanes.get(name):
            self.metrics.lane_up(name, is_up=not fate.dead)
            log.info("lane.begins", lane=name)
        else:
            # The lane was paused meanwhile, or is no longer ours.
            self._lanes[name] = _LaneFate(up_s=0.0)
            self.down(name)


def _wait_s(deaths: int) -> float:
    """Return 0, 1, 3, 7, 15, 30 s, by the number of deaths."""
    return min(2.0 ** min(deaths - 1, 6) - 1, RESTART_WAIT_S_MAX) if deaths else 0.0
