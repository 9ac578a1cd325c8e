"""Shows the state of pipelines as Prometheus metrics."""

from collections.abc import Mapping

from shared import metric_names as names
from shared.runtime.spark.lane_metrics import LaneMetrics


class PipelineMetrics(LaneMetrics):
    """The metrics of pipelines; their label is the pipeline's name."""

    up = names.PIPELINES_LANE_UP
    restarts = names.PIPELINES_LANE_RESTARTS
    stalled_s = names.PIPELINES_LANE_STALLED_SECONDS
    events = names.PIPELINES_EVENTS_READ
    micro_batch_s = names.PIPELINES_MICRO_BATCH_SECONDS
    progress_age_s = names.PIPELINES_PROGRESS_AGE_SECONDS

    def came_to(self, pipeline: str, counts: Mapping[str, int]) -> None:
        """Count the outcomes of the events of a job that has ended."""
        for outcome, count in counts.items():
            self.counter(names.PIPELINES_EVENTS).labels(pipeline, outcome).inc(count)

    def keeps(self, pipeline: str, count: int, size: int) -> None:
        """Show how many windows or keys are kept, and how many bytes."""
        self.gauge(names.PIPELINES_KEPT).labels(pipeline).set(count)
        self.gauge(names.PIPELINES_KEPT_BYTES).labels(pipeline).set(size)

    def executor_ended(self, tenant: str, pipeline: str) -> None:
        """Count an executor that this pipeline alone has ended."""
        self.counter(names.PIPELINES_EXECUTOR_ENDED).labels(tenant, pipeline).inc()

    def executors_lost(self, count: int) -> None:
        self.counter(names.PIPELINES_EXECUTORS_LOST).inc(count)

    def stuck_tasks(self, count: int) -> None:
        self.gauge(names.PIPELINES_STUCK_TASKS).set(count)

    def spark_is_up(self) -> None:
        self.gauge(names.PIPELINES_SPARK_UP).set(1)

    def lane_gone(self, pipeline: str) -> None:
        """Remove the gauges of a lane that is gone or no longer ours: its new owner shows them."""
        kept = (names.PIPELINES_KEPT, names.PIPELINES_KEPT_BYTES)
        for metric in (self.up, self.stalled_s, self.progress_age_s, *kept):
            gauge = self.gauge(metric)
            if (pipeline,) in gauge._metrics:  # noqa: SLF001 - there is no public way to ask
                gauge.remove(pipeline)
