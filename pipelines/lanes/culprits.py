"""Reports which pipeline has ended an executor: in its state, as a metric, and in the log."""

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

# The count restarts after this long without an ended executor. A new pipeline with the name of a
# removed one also starts at zero: its owner keeps the name for longer than this.
_REMEMBERED_MS = 30 * DAY_MS

EndedBy: TypeAlias = Mapping[str, EndedExecutors]


@dataclass(slots=True)
class Culprits:
    """The culprits among the pipelines of one process."""

    documents: Documents
    metrics: PipelineMetrics

    def blame(self, pipeline: Pipeline, why: str) -> None:
        """Report that this pipeline, and no other, has ended an executor."""
        self.metrics.executor_ended(pipeline.tenant, pipeline.name)
        self.documents.ended_executor(pipeline.title, why, now_ms=now_ms())
        log.error("pipeline.ended_executor", tenant=pipeline.tenant, pipeline=pipeline.name)


def with_ended(known: EndedBy, key: bytes, value: bytes | None) -> EndedBy:
    """Fold one more state record into the counts of ended executors."""
    title = key.decode()
    state = with_state({}, key, value).get(title)
    if state is not None and state.executors_ended:
        return {**known, title: EndedExecutors(state.executors_ended, state.executor_ended_at_ms)}
    return (
        {name: ended for name, ended in known.items() if name != title} if title in known else known
    )


def remembered(known: EndedBy, title: str) -> EndedExecutors:
    ended = known.get(title, EndedExecutors())
    return ended if ended.at_ms > now_ms() - _REMEMBERED_MS else EndedExecutors()
