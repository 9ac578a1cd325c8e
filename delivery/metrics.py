"""Decides what delivery counts: the fate of each lane, seen from its driver."""

from collections.abc import Mapping

from shared.flow import Flow, FlowState
from shared.flow_record import FlowRecord
from shared.metric_names import (
    DELIVERY_ATTEMPTS,
    DELIVERY_EVENTS_PARKED,
    DELIVERY_EVENTS_READ,
    DELIVERY_FLOW_STATE,
    DELIVERY_LANE_RESTARTS,
    DELIVERY_LANE_STALLED_SECONDS,
    DELIVERY_LANE_UP,
    DELIVERY_MICRO_BATCH_SECONDS,
    DELIVERY_PARALLEL,
    DELIVERY_PROGRESS_AGE_SECONDS,
)
from shared.runtime.metrics import Metrics


class DeliveryMetrics(Metrics):
    """Observes lanes for the keeper; a lane is named after its destination.

    What workers do is counted where they share it, in the flow of a destination, and comes here by
    the state topic: every machine's counts grow by themselves, and the differences are added up.
    """

    def __init__(self) -> None:
        super().__init__()
        # What each store had counted when it was last seen.
        self._seen: dict[tuple[str, str], FlowRecord] = {}

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

    def flows_before(self, flows: Mapping[str, FlowRecord]) -> None:
        """What had been counted before this process began: another one has shown it."""
        self._seen.update({(name, record.store): record for name, record in flows.items()})

    def flow_known(self, destination: str, record: FlowRecord) -> None:
        for state in FlowState:
            is_in = state is record.state
            self.gauge(DELIVERY_FLOW_STATE).labels(destination, state.value).set(is_in)
        self.gauge(DELIVERY_PARALLEL).labels(destination).set(record.flow.concurrency.limit)
        where = (destination, record.store)
        before = self._seen.get(where, FlowRecord(Flow())).flow
        self._seen[where] = record
        for outcome, count in record.flow.attempts.items():
            grown = max(0, count - before.attempts.get(outcome, 0))
            self.counter(DELIVERY_ATTEMPTS).labels(destination, outcome).inc(grown)
        for cause, count in record.flow.parks.items():
            grown = max(0, count - before.parks.get(cause, 0))
            self.counter(DELIVERY_EVENTS_PARKED).labels(destination, cause).inc(grown)
