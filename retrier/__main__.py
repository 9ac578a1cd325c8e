"""Starts the retrier process: one lane over all retry tiers, for every destination there is."""

from functools import partial

from retrier.lane import LANE, start_lane
from retrier.metrics import RetrierMetrics
from retrier.settings import RetrierSettings
from shared.runtime.lane_driver import run_lanes


def main() -> None:
    settings = RetrierSettings()
    run_lanes(
        "retrier",
        settings,
        start_lane=partial(start_lane, settings=settings),
        # A changed destination changes the lane, which then starts again from its checkpoint.
        wanted_of=lambda configuration: {LANE: dict(configuration.destinations)},
        metrics=RetrierMetrics(),
    )


if __name__ == "__main__":
    main()
