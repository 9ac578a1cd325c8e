"""Watches the retrier's lanes: whether they are up, how often they died, how long they stall."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import structlog

from shared.event.record import KafkaPartition
from shared.runtime.spark.lane_metrics import LaneMetrics

log = structlog.get_logger()

# The first restart comes at once, as most faults pass soon; a lane that cannot continue at all
# tries twice a minute.
RESTART_WAIT_S_MAX = 30.0


@dataclass(slots=True)
class LaneWatch:
    """Watches lanes; each is as healthy as its worst Kafka partition."""

    metrics: LaneMetrics
    stalled_after_s: float
    # The deaths of each lane's Kafka partitions, and when each partition may be tried again.
    _deaths: defaultdict[str, Counter[KafkaPartition]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    _not_before_s: dict[KafkaPartition, float] = field(default_factory=dict)
    # When each began to have due events without progress, and the lanes stalled for too long.
    _behind_s: dict[KafkaPartition, float] = field(default_factory=dict)
    _stalled: set[str] = field(default_factory=set)

    def started(self, lane: str) -> None:
        self.metrics.lane_up(lane, is_up=True)
        log.info("lane.started", lane=lane)

    def may_start(self, where: KafkaPartition, *, now_s: float) -> bool:
        return now_s >= self._not_before_s.get(where, 0.0)

    def died(
        self, lane: str, places: Collection[KafkaPartition], why: str, *, now_s: float
    ) -> None:
        """Log a death; its Kafka partitions are planned again after 0, 1, 3, 7, 15, then 30 s."""
        deaths = self._deaths[lane]
        for where in places:
            wait_s = min(2.0 ** min(deaths[where], 6) - 1, RESTART_WAIT_S_MAX)
            self._not_before_s[where] = now_s + wait_s
            deaths[where] += 1
        self.metrics.lane_up(lane, is_up=False)
        self.metrics.lane_restarted(lane)
        names = sorted(f"{topic} {number}" for topic, number in places)
        log.error("lane.died", lane=lane, partitions=names, restart_in_s=wait_s, error=why)

    def went_on(self, places: Iterable[KafkaPartition]) -> None:
        """Note Kafka partitions that made progress, here or in another process."""
        for where in places:
            self._behind_s.pop(where, None)
            self._not_before_s.pop(where, None)
            for lane, deaths in self._deaths.items():
                if deaths.pop(where, 0) and not deaths:
                    self.metrics.lane_up(lane, is_up=True)

    def look(self, lane: str, behind: Iterable[KafkaPartition], *, now_s: float) -> None:
        """Check how long a lane's Kafka partitions with due events have made no progress."""
        since_s = {where: self._behind_s.setdefault(where, now_s) for where in behind}
        age_s = now_s - min(since_s.values(), default=now_s)
        is_stalled = age_s > self.stalled_after_s
        self.metrics.progress_age(lane, age_s=age_s)
        self.metrics.lane_stalled(lane, for_s=age_s if is_stalled else 0)
        if is_stalled and lane not in self._stalled:
            self._stalled.add(lane)
            log.error("lane.stalled", lane=lane, no_progress_for_s=round(age_s, 1))
        elif lane in self._stalled and not is_stalled:
            self._stalled.discard(lane)
            log.info("lane.goes_on", lane=lane)
