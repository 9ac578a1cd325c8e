"""Starts the delivery process: one lane for each destination in the configuration."""

from functools import partial

from delivery.lane import start_lane
from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from shared.runtime.lane_driver import run_lanes


def main() -> None:
    settings = DeliverySettings()
    run_lanes(
        "delivery",
        settings,
        start_lane=partial(start_lane, settings=settings),
        wanted_of=lambda configuration: configuration.destinations,
        metrics=DeliveryMetrics(),
    )


if __name__ == "__main__":
    main()
