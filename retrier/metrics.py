"""Counts what the retrier does, as its driver sees it: the fate of its lane."""

from collections.abc import Mapping

from shared.config.destination import Destination
from shared.flow.flow_record import FlowRecord
from shared.metric_names import (
    RETRIER_EVENTS_RELEASED,
    RETRIER_LANE_RESTARTS,
    RETRIER_LANE_STALLED_SECONDS,
    RETRIER_LANE_UP,
    RETRIER_MICRO_BATCH_SECONDS,
    RETRIER_PROGRESS_AGE_SECONDS,
)
from shared.runtime.metrics import Metrics


class RetrierMetrics(Metrics):
    """Observes the lane for the keeper; there is one, so no label names it."""

    def lane_up(self, lane: str, *, is_up: bool) -> None:  # noqa: ARG002 - there is one lane
        self.gauge(RETRIER_LANE_UP).set(int(is_up))

    def lane_restarted(self, lane: str) -> None:  # noqa: ARG002 - there is one lane
        self.counter(RETRIER_LANE_RESTARTS).inc()

    def micro_batch_done(
        self,
        lane: str,  # noqa: ARG002 - there is one lane
        *,
        events: int,
        duration_s: float,
    ) -> None:
        self.counter(RETRIER_EVENTS_RELEASED).inc(events)
        self.histogram(RETRIER_MICRO_BATCH_SECONDS).observe(duration_s)

    def progress_age(self, lane: str, *, age_s: float) -> None:  # noqa: ARG002 - there is one lane
        self.gauge(RETRIER_PROGRESS_AGE_SECONDS).set(age_s)

    def lane_stalled(self, lane: str, *, for_s: float) -> None:  # noqa: ARG002 - as above
        self.gauge(RETRIER_LANE_STALLED_SECONDS).set(for_s)

    def flows_before(self, flows: Mapping[str, FlowRecord]) -> None:
        """Nothing, as below."""

    def flow_known(self, destination: Destination, record: FlowRecord) -> None:
        """Nothing: delivery shows it, whoever of the two made the requests."""
