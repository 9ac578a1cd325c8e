"""Counts what delivery does, as its driver sees it: each lane's fate, each destination's flow."""

from collections.abc import Callable, Mapping

import structlog

from shared.config.destination import Destination
from shared.flow.flow import WARN_AT, Flow, FlowState, failing_part
from shared.flow.flow_record import FlowRecord
from shared.metric_names import (
    DELIVERY_ATTEMPTS,
    DELIVERY_EVENTS_PARKED,
    DELIVERY_EVENTS_READ,
    DELIVERY_FAILING_RATIO,
    DELIVERY_FLOW_STATE,
    DELIVERY_LANE_RESTARTS,
    DELIVERY_LANE_STALLED_SECONDS,
    DELIVERY_LANE_UP,
    DELIVERY_MICRO_BATCH_SECONDS,
    DELIVERY_PARALLEL,
    DELIVERY_PROGRESS_AGE_SECONDS,
)
from shared.runtime.clock import now_ms
from shared.runtime.metrics import Metrics

log = structlog.get_logger()


class DeliveryMetrics(Metrics):
    """Observes lanes for the keeper; a lane is named after its destination.

    What workers do is counted where they share it, in the flow of a destination, and comes here by
    the state topic: every machine's counts grow by themselves, and the differences are added up.
    """

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        super().__init__()
        self._clock = clock
        # What each store had counted when it was last seen.
        self._seen: dict[tuple[str, str], FlowRecord] = {}
        # How much of its time was used up when a failing destination was last warned of, by the
        # store that says so: what fails for one machine may be well for another.
        self._warned: dict[tuple[str, str], float] = {}

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

    def flow_known(self, destination: Destination, record: FlowRecord) -> None:
        name = destination.id
        for state in FlowState:
            is_in = state is record.state
            self.gauge(DELIVERY_FLOW_STATE).labels(name, state.value).set(is_in)
        self.gauge(DELIVERY_PARALLEL).labels(name).set(record.flow.concurrency.limit)
        self._warn(destination, record)
        where = (name, record.store)
        before = self._seen.get(where, FlowRecord(Flow())).flow
        self._seen[where] = record
        for outcome, count in record.flow.attempts.items():
            grown = max(0, count - before.attempts.get(outcome, 0))
            self.counter(DELIVERY_ATTEMPTS).labels(name, outcome).inc(grown)
        for cause, count in record.flow.parks.items():
            grown = max(0, count - before.parks.get(cause, 0))
            self.counter(DELIVERY_EVENTS_PARKED).labels(name, cause).inc(grown)

    def _warn(self, destination: Destination, record: FlowRecord) -> None:
        """Say in time that a destination will be given up, once for each step towards it."""
        after_s = destination.disable_after_s
        part = failing_part(record.flow, disable_after_s=after_s, now_ms=self._clock())
        self.gauge(DELIVERY_FAILING_RATIO).labels(destination.id).set(part)
        step = max((at for at in WARN_AT if part >= at), default=0.0)
        where = (destination.id, record.store)
        if step > self._warned.get(where, 0.0) and record.state is not FlowState.DISABLED:
            log.warning(
                "destination.failing",
                destination=destination.id,
                used_up=step,
                failing_since_ms=record.flow.failing_since_ms,
                disabled_at_ms=record.flow.failing_since_ms + round(1000 * after_s),
            )
        self._warned[where] = step
