"""Decides what delivery counts: the fate of each lane, seen from its driver."""

from shared.metric_names import (
    DELIVERY_EVENTS_READ,
    DELIVERY_LANE_RESTARTS,
    DELIVERY_LANE_STALLED_SECONDS,
    DELIVERY_LANE_UP,
    DELIVERY_MICRO_BATCH_SECONDS,
    DELIVERY_PROGRESS_AGE_SECONDS,
)
from shared.runtime.metrics import Metrics


class DeliveryMetrics(Metrics):
    """Observes lanes for the keeper; a lane is named after its destination."""

    def lane_up(self, lane: str, *, is_up: bool) -> None:
        self.gauge(DELIVERY_LANE_UP).labels(lane).set(int(is_up))

    def lane_restarted(self, lane: str) -> None:
        self.counter(DELIVERY_LANE_RESTARTS).labels(lane).inc()

    def micro_batch_done(self, lane: str, *, events: int, duration_s: float) -> None:
        self.counter(DELIVERY_EVENTS_READ).labels(lane).inc(events)
        self.histogram(DELIVERY_MICRO_BATCH_SECONDS).labels(lane).observe(duration_s)

    def progress_age(self, lane: str, *, age_s: float) -> None:
        self.gauge(DELIVERY_PROGRESS_AGE_SECONDS).labels(lane).set(age_s)

    def lane_stalled(self, lane: str, *, for_s: float) -> None:
        self.gauge(DELIVERY_LANE_STALLED_SECONDS).labels(lane).set(for_s)
