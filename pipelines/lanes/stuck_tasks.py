"""Keeps tasks that ignore cancellation from taking all places of the executor.

Each occupies a place, and usually a processor, for minutes or hours. Before they hold too many
places, the executor is replaced, once the jobs under way have ended.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from pipelines.documents import Documents
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.culprits import Culprits
from pipelines.metrics import PipelineMetrics
from pipelines.parts.alone import ExecutorTurns, NotAloneError
from pipelines.session import SparkOnDemand
from shared.runtime.spark.left_tasks import LeftTasks, left_tasks, replace_executors

log = structlog.get_logger()

_LOOK_S = 1.0
# A task that reacts to cancellation ends within this time.
_LISTENS_S = 5.0
# Tasks that ignore their cancellation may not run for longer than this, even if there are few.
_STUCK_S_MAX = 120.0
# The wait before another attempt to replace the executor: each attempt holds others back, and an
# executor takes some seconds to end.
_AGAIN_S = 60.0


@dataclass(slots=True)
class StuckTasks:
    """The stuck tasks of one executor."""

    task_places: int
    left: list[LeftTasks] = field(default_factory=list)
    _since_s: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(each.tasks for each in self.left)

    @property
    def owners(self) -> frozenset[str]:
        """The pools of jobs, which have the names of their pipelines."""
        return frozenset(each.pool for each in self.left)

    def see(self, found: Sequence[LeftTasks], now_s: float) -> bool:
        """Record the tasks that are left over now; return whether they have changed."""
        self._since_s = {each.stage: self._since_s.get(each.stage, now_s) for each in found}
        stuck = [each for each in found if now_s - self._since_s[each.stage] >= _LISTENS_S]
        before, self.left = self.left, stuck
        return before != stuck

    def are_too_many(self, now_s: float) -> bool:
        longest_s = max((now_s - self._since_s[each.stage] for each in self.left), default=0.0)
        return 2 * self.count >= self.task_places or longest_s >= _STUCK_S_MAX


@dataclass(slots=True)
class StuckTaskWatch:
    """Looks for stuck tasks once a second."""

    spark: SparkOnDemand
    stuck: StuckTasks
    book: PipelineBook
    turns: ExecutorTurns
    documents: Documents
    metrics: PipelineMetrics
    # False on a cluster, whose operator manages the executors.
    may_replace: bool
    _lost: int = 0
    _not_before_s: float = 0.0
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "stuck"))

    async def run(self) -> None:
        await self.spark.is_up.wait()
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look(time.monotonic())
            except Exception as error:  # noqa: BLE001 - Spark may be ending, or frozen
                log.warning("executor.not_seen", error=repr(error)[:300])

    async def look(self, now_s: float) -> None:
        if lost := self.spark.watch.ended - self._lost:
            self._lost += lost
            self.metrics.executors_lost(lost)
            log.warning("executor.ended", count=lost)
        session = await self.spark.get()
        loop = asyncio.get_running_loop()
        left = await loop.run_in_executor(self._thread, left_tasks, session)
        if self.stuck.see(left, now_s):
            self.metrics.stuck_tasks(self.stuck.count)
            log.warning("executor.tasks_stuck", count=self.stuck.count, by=self._by())
        self.book.waiting = frozenset()
        if self.may_replace and self.stuck.are_too_many(now_s):
            await self._replace(now_s)

    async def _replace(self, now_s: float) -> None:
        """Let their owners take no more places, and replace the executor when their jobs end."""
        owners = {
            lane_id: pipeline
            for lane_id, pipeline in self.documents.by_lane().items()
            if pipeline.name in self.stuck.owners
        }
        self.book.waiting = frozenset(owners)
        if now_s < self._not_before_s or self.book.is_at_work(owners):
            return
        self._not_before_s = now_s + _AGAIN_S
        session = await self.spark.get()
        try:
            async with self.turns.alone():
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, replace_executors, session)
        except NotAloneError as error:
            log.warning("executor.not_replaced", error=str(error))
            return
        log.warning("executor.replaced", stuck=self.stuck.count, by=self._by())
        why = "its tasks continued after they were cancelled, and held places of others"
        for pipeline in owners.values():
            Culprits(self.documents, self.metrics).blame(pipeline, why)

    def _by(self) -> list[str]:
        return sorted(self.stuck.owners)
