"""Shows how long each pipeline has had work without any progress."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipelines.lanes.book import PipelineBook
from pipelines.metrics import PipelineMetrics
from shared.config.pipeline import Pipeline

_SHOW_S = 1.0


@dataclass(slots=True)
class Stalls:
    """The stalls of the pipelines of one process."""

    book: PipelineBook
    metrics: PipelineMetrics
    stalled_after_s: float
    _show_s: float = 0.0
    # Since when each lane has had unread events without any progress.
    _behind_s: dict[str, float] = field(default_factory=dict)

    def gone(self, lane_id: str) -> None:
        self._behind_s.pop(lane_id, None)

    def show(self, running: Mapping[str, Pipeline]) -> None:
        """Update the metrics, once a second."""
        if (now_s := time.monotonic()) < self._show_s:
            return
        self._show_s = now_s + _SHOW_S
        for lane_id, pipeline in running.items():
            if lane_id not in self.book.lanes:
                continue
            lane = self.book.lanes[lane_id]
            has_news = bool(self.book.news(lane_id))
            since_s = self._behind_s.setdefault(lane_id, now_s) if has_news else now_s
            lingers_s = 0.0 if lane.gathering is None else lane.gathering.linger_s
            age_s = max(0.0, now_s - max(since_s, lane.went_on_s) - lingers_s)
            if not has_news:
                self._behind_s.pop(lane_id, None)
            self.metrics.progress_age(pipeline.name, age_s=age_s)
            is_stalled = age_s > self.stalled_after_s
            self.metrics.lane_stalled(pipeline.name, for_s=age_s if is_stalled else 0)
