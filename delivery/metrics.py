"""Keeps delivery's metrics in its driver: each lane's health, and each destination's flow."""

from collections.abc import Callable, Mapping

import structlog

from shared.config.destination import Destination
from shared.flow.failing import WARN_AT, failing_part
from shared.flow.flow import Flow, FlowState
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
from shared.retry.attempt import Failure
from shared.runtime.clock import now_ms
from shared.runtime.spark.lane_metrics import LaneMetrics

log = structlog.get_logger()


class DeliveryMetrics(LaneMetrics):
    """The metrics of delivery; a lane is named after its destination.

    Workers count their work in the flow of a destination, which they share. The counts arrive by
    the state topic, separately for each machine, and their growth is added up.

    All processes of a fleet receive all flows, but only a destination's owner shows its growth. So
    the sum over the fleet is right, except at the moment of a hand-over.
    """

    up = DELIVERY_LANE_UP
    restarts = DELIVERY_LANE_RESTARTS
    stalled_s = DELIVERY_LANE_STALLED_SECONDS
    events = DELIVERY_EVENTS_READ
    micro_batch_s = DELIVERY_MICRO_BATCH_SECONDS
    progress_age_s = DELIVERY_PROGRESS_AGE_SECONDS

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        super().__init__()
        self._clock = clock
        self._began_ms = clock()
        # The counts of each store when it was last seen.
        self._seen: dict[tuple[str, str], FlowRecord] = {}
        # How much of its time a failing destination had used up at the last warning, per store: a
        # destination that fails for one machine may be well for another.
        self._warned: dict[tuple[str, str], float] = {}

    def flows_before(self, flows: Mapping[str, FlowRecord]) -> None:
        # Another process has already shown these counts.
        self._seen.update({(name, record.store): record for name, record in flows.items()})

    def lane_gone(self, name: str) -> None:
        """Drop the gauges of a lane that is paused, removed, or shown by another process."""
        for gauge in (self.up, self.stalled_s, self.progress_age_s):
            self.gauge(gauge).remove(name)

    def flow_gone(self, name: str) -> None:
        """Drop the gauges of a flow that is no longer ours; its counts stay."""
        for state in FlowState:
            self.gauge(DELIVERY_FLOW_STATE).remove(name, state.value)
        for gauge in (DELIVERY_PARALLEL, DELIVERY_FAILING_RATIO):
            self.gauge(gauge).remove(name)

    def flow_elsewhere(self, destination: Destination, record: FlowRecord) -> None:
        """Note a flow that another process counts: its present owner, or the one just before."""
        self._seen[destination.id, record.store] = record

    def flow_known(self, destination: Destination, record: FlowRecord) -> None:
        name = destination.id
        for state in FlowState:
            is_in = state is record.state
            self.gauge(DELIVERY_FLOW_STATE).labels(name, state.value).set(is_in)
        self.gauge(DELIVERY_PARALLEL).labels(name).set(record.flow.concurrency.limit)
        self._warn(destination, record)
        where = (name, record.store)
        # If the counts began before this process did, another process has already shown them.
        is_older = record.counts_since_ms < self._began_ms
        before = self._seen.get(where, record if is_older else FlowRecord(Flow())).flow
        self._seen[where] = record
        for outcome, count in record.flow.attempts.items():
            grown = max(0, count - before.attempts.get(outcome, 0))
            self.counter(DELIVERY_ATTEMPTS).labels(name, outcome).inc(grown)
        # Start at 0, so that the first one is an increase as well.
        self.counter(DELIVERY_EVENTS_PARKED).labels(name, Failure.INTERNAL.value)
        for cause, count in record.flow.parks.items():
            grown = max(0, count - before.parks.get(cause, 0))
            self.counter(DELIVERY_EVENTS_PARKED).labels(name, cause).inc(grown)

    def _warn(self, destination: Destination, record: FlowRecord) -> None:
        """Warn in time that a destination will be disabled, once for each step towards that."""
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
