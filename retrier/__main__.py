"""Starts the retrier process: two lanes over all retry tiers, for every destination there is."""

from functools import partial

from retrier.lane import lanes, start_lane
from retrier.settings import RetrierSettings
from shared import metric_names as names
from shared.runtime.settings import read_settings
from shared.runtime.spark.lane_driver import run_lanes
from shared.runtime.spark.lane_metrics import LaneMetrics


class RetrierMetrics(LaneMetrics):
    up = names.RETRIER_LANE_UP
    restarts = names.RETRIER_LANE_RESTARTS
    stalled_s = names.RETRIER_LANE_STALLED_SECONDS
    events = names.RETRIER_EVENTS_RELEASED
    micro_batch_s = names.RETRIER_MICRO_BATCH_SECONDS
    progress_age_s = names.RETRIER_PROGRESS_AGE_SECONDS


def main() -> None:
    settings = read_settings(RetrierSettings, program="hifi retrier")
    run_lanes(
        "retrier",
        settings,
        start_lane=partial(start_lane, settings=settings),
        lanes=lanes(settings),
        metrics=RetrierMetrics(),
        worker_daemon="retrier.worker_daemon",
    )


if __name__ == "__main__":
    main()
