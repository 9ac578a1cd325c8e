"""Starts the delivery process: one lane for each destination in the configuration."""

from collections.abc import Mapping
from functools import partial

from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from delivery.spark.lane import announce_end, begins_at, hold_lane, start_lane, warm_up
from shared.config.configuration import Configuration
from shared.config.destination import Destination, Latency
from shared.runtime.settings import read_settings
from shared.runtime.spark.lane_driver import run_lanes
from shared.runtime.spark.session import REALTIME_OPTIONS


def main() -> None:
    settings = read_settings(DeliverySettings, program="hifi delivery")
    run_lanes(
        "delivery",
        settings,
        start_lane=partial(start_lane, settings=settings),
        wanted_of=partial(wanted, latency=settings.latency),
        metrics=DeliveryMetrics(),
        worker_daemon="delivery.spark.worker_daemon",
        warm_up=partial(warm_up, settings=settings),
        hold_lane=partial(hold_lane, settings=settings),
        announce_end=partial(announce_end, settings=settings),
        begins_at=partial(begins_at, settings=settings),
        spark_options=REALTIME_OPTIONS if settings.latency == "realtime" else None,
    )


def wanted(configuration: Configuration, latency: Latency) -> Mapping[str, Destination]:
    """The lanes that should run here; a paused one keeps its position."""
    return {
        name: destination
        for name, destination in configuration.destinations.items()
        if destination.latency == latency and not destination.is_paused
    }


if __name__ == "__main__":
    main()
