"""Starts the retrier process: one lane over all retry tiers, for every destination there is."""

from retrier.lane import begins_at, start_lane
from retrier.metrics import RetrierMetrics
from retrier.settings import RetrierSettings
from shared.event.topics import RETRIER
from shared.runtime.settings import read_settings
from shared.runtime.spark.lane_driver import run_lanes


def main() -> None:
    settings = read_settings(RetrierSettings, program="hifi retrier")
    run_lanes(
        "retrier",
        settings,
        start_lane=start_lane,
        # Always the same: a changed destination is no reason to start the lane again.
        wanted_of=lambda _, __: {RETRIER: settings},
        metrics=RetrierMetrics(),
        worker_daemon="retrier.worker_daemon",
        begins_at=begins_at,
    )


if __name__ == "__main__":
    main()
