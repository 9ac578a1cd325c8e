"""Starts the delivery process: one lane for each destination in the configuration."""

from collections.abc import Mapping
from functools import partial

from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from delivery.spark.lane import Lane, hold_lane, start_lane, warm_up
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms
from shared.runtime.settings import read_settings
from shared.runtime.spark.lane_driver import Flows, run_lanes
from shared.runtime.spark.session import REALTIME_OPTIONS


def main() -> None:
    settings = read_settings(DeliverySettings, program="hifi delivery")
    run_lanes(
        "delivery",
        settings,
        start_lane=partial(start_lane, settings=settings),
        wanted_of=partial(wanted, settings=settings),
        can_wait=Lane.differs_in_rest_only,
        metrics=DeliveryMetrics(),
        worker_daemon="delivery.spark.worker_daemon",
        warm_up=partial(warm_up, settings=settings),
        hold_lane=partial(hold_lane, settings=settings),
        spark_options=REALTIME_OPTIONS if settings.latency == "realtime" else None,
    )


def wanted(
    configuration: Configuration, flows: Flows, *, settings: DeliverySettings
) -> Mapping[str, Lane]:
    """The lanes that should run here; a paused one keeps its position."""
    return {
        name: Lane(destination, is_resting=_is_to_rest(destination, flows.get(name), settings))
        for name, destination in configuration.destinations.items()
        if destination.latency == settings.latency and not destination.is_paused
    }


def _is_to_rest(
    destination: Destination, known: FlowRecord | None, settings: DeliverySettings
) -> bool:
    if settings.latency == "realtime":
        # Its micro-batches last for an interval anyway.
        return False
    # What was known before a person had it resumed says nothing of how it is now.
    if known is None or known.updated_at_ms <= destination.resumed_at_ms:
        return destination.is_disabled
    is_in_trouble = known.is_in_lasting_trouble(now_ms=now_ms(), after_s=settings.time_box_s)
    return destination.is_disabled or is_in_trouble


if __name__ == "__main__":
    main()
