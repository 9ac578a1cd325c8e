"""Tells who has ended an executor: in its state, as a metric, and in the log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from pipelines.documents import Documents, EndedExecutors
from pipelines.metrics import PipelineMetrics
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import with_state
from shared.event.times import DAY_MS
from shared.runtime.clock import now_ms

log = structlog.get_logger()

# Whoever has had none for so long begins anew, and so does who has got the name of one that was
# removed: it stays its owner's for longer.
_REMEMBERED_MS = 30 * DAY_MS

EndedBy: TypeAlias = Mapping[str, EndedExecutors]


@dataclass(slots=True)
class Culprits:
    """Those among the pipelines of one process."""

    documents: Documents
    metrics: PipelineMetrics

    def blame(self, pipeline: Pipeline, why: str) -> None:
        """It has ended an executor, and nobody else can have."""
        self.metrics.executor_ended(pipeline.tenant, pipeline.name)
        self.documents.ended_executor(pipeline.title, why, now_ms=now_ms())
        log.error("pipeline.ended_executor", tenant=pipeline.tenant, pipeline=pipeline.name)


def with_ended(known: EndedBy, key: bytes, value: bytes | None) -> EndedBy:
    """What states tell of it, after one more record."""
    title = key.decode()
    state = with_state({}, key, value).get(title)
    if state is not None and state.executors_ended:
        return {**known, title: EndedExecutors(state.executors_ended, state.executor_ended_at_ms)}
    return {it: ended for it, ended in known.items() if it != title} if title in known else known


def remembered(known: EndedBy, title: str) -> EndedExecutors:
    ended = known.get(title, EndedExecutors())
    return ended if ended.at_ms > now_ms() - _REMEMBERED_MS else EndedExecutors()
