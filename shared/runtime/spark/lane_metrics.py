"""Shows the state of lanes: the metrics that delivery and the retrier have in common."""

from collections.abc import Callable

from shared.metric_names import Metric
from shared.runtime.metrics import M, Metrics


class LaneMetrics(Metrics):
    """Observes lanes.

    A subclass defines the metrics. A label names the lane; a metric for a single lane has no label.
    """

    up: Metric
    restarts: Metric
    stalled_s: Metric
    events: Metric
    micro_batch_s: Metric
    progress_age_s: Metric

    def lane_up(self, lane: str, *, is_up: bool) -> None:
        _of(lane, self.up, self.gauge).set(is_up)

    def lane_restarted(self, lane: str) -> None:
        _of(lane, self.restarts, self.counter).inc()

    def micro_batch_done(self, lane: str, *, events: int, duration_s: float) -> None:
        _of(lane, self.events, self.counter).inc(events)
        _of(lane, self.micro_batch_s, self.histogram).observe(duration_s)

    def progress_age(self, lane: str, *, age_s: float) -> None:
        _of(lane, self.progress_age_s, self.gauge).set(age_s)

    def lane_stalled(self, lane: str, *, for_s: float) -> None:
        _of(lane, self.stalled_s, self.gauge).set(for_s)


def _of(lane: str, metric: Metric, made: Callable[[Metric], M]) -> M:
    return made(metric).labels(lane) if metric.labels else made(metric)
