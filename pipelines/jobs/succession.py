"""Lets a rebuilt pipeline catch up with its predecessor, and take over at its last position.

Both have the same slot, and so one process and one writer. The successor reads as far as the
predecessor has read, and writes nothing to the streams. Once it takes over, it reads up to the
predecessor's last position, and writes all results that the predecessor has not written. So each
result is written exactly once (ADR 0081).
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import structlog

from pipelines.documents import Documents
from pipelines.jobs.lane_states import LaneState
from pipelines.jobs.runner import JobRunner
from pipelines.jobs.state_store import read_head
from pipelines.lanes.lane import PipelineLane
from pipelines.writer import UNWRITTEN
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.record import Position
from shared.event.topics import kept_topic, lane_group, pipeline_lane
from shared.runtime.clock import now_ms
from shared.runtime.kafka.leases.fenced_positions import FencedPositions

log = structlog.get_logger()

# How often a successor's lag is shown; and how soon a failed request to Kafka is repeated.
_TELL_S, _AGAIN_S = 1.0, 1.0
# How often the size of kept state is shown, where people compare several pipelines.
_TELL_KEPT_S = 15.0
# A successor may take over once it has reached one of the predecessor's positions within _NEAR_S of
# learning of it. It loses this right when it takes more than _LOST_S to reach the next position.
_NEAR_S, _LOST_S = 10.0, 30.0


@dataclass(slots=True)
class _Predecessor:
    """The progress of the replaced pipeline: its position, and the broker's time there."""

    position: Position
    frontier_ms: int | None
    is_final: bool = False


@dataclass(slots=True)
class _Chase:
    """A position of the predecessor to reach, and whether the last one was reached in time."""

    target: Position
    since_s: float
    was_near: bool = False

    def look(self, lane: PipelineLane, now_s: float) -> bool:
        """Say whether the successor is near, by its stored position; set the next target."""
        reached = {where: reach.at for where, reach in lane.reaches.items()}
        took_s = now_s - self.since_s
        if all(reached.get(where, -1) >= at for where, at in self.target.items()):
            self.was_near = took_s <= _NEAR_S
            self.target, self.since_s = dict(lane.limits or {}), now_s
        return self.was_near and now_s - self.since_s <= _LOST_S


@dataclass
class Succession:
    """The successions of the pipelines of one process."""

    runner: JobRunner
    documents: Documents
    _before: dict[str, _Predecessor] = field(default_factory=dict)
    _told_s: dict[str, float] = field(default_factory=dict)
    _chases: dict[str, _Chase] = field(default_factory=dict)
    _kept_s: dict[str, float] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def look(self, running: Mapping[str, Pipeline], configuration: Configuration) -> None:
        """Let each successor read as far as the pipeline it replaces, or take its place."""
        for lane_id, pipeline in running.items():
            keeper, lane = self._keepers.get(lane_id), self.runner.book.lanes.get(lane_id)
            if keeper is None or lane is None:
                continue
            self._tell_kept(pipeline, keeper)
            if not keeper.kept.head.is_quiet:
                continue
            current = configuration.pipelines.get(pipeline.name)
            is_built = current is not None and current.title != pipeline.title
            if (before := self._come_to(pipeline, keeper, is_final=not is_built)) is None:
                # The successor must not read beyond a position that is not known.
                lane.limits = {}
                continue
            lane.limits = before.position or None
            keeper.frontier_max_ms = before.frontier_ms
            if is_built:
                self._tell(pipeline, lane)
            elif not (lane.is_under_way or _behind(lane)):
                lane.is_under_way = True
                self._beside(pipeline, self._take_its_place(pipeline, lane, keeper, before))

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    @property
    def _keepers(self) -> Mapping[str, LaneState]:
        return self.runner.keepers.by_lane

    def _beside(self, pipeline: Pipeline, work: Coroutine[Any, Any, None]) -> None:
        """Run work that may take seconds beside the loop, which must not wait for it."""

        async def done() -> None:
            try:
                await work
            except UNWRITTEN as error:
                log.info("pipeline.not_replaced", pipeline=pipeline.title, error=repr(error))
                await asyncio.sleep(_AGAIN_S)
            finally:
                del self._tasks[pipeline.title]

        self._tasks[pipeline.title] = asyncio.create_task(done())

    def _come_to(
        self, pipeline: Pipeline, keeper: LaneState, *, is_final: bool
    ) -> _Predecessor | None:
        """The present or last progress of the replaced pipeline; None while it is not known."""
        lane_id = _lane_before(pipeline, keeper)
        own, kept = self.runner.book.lanes.get(lane_id), self._keepers.get(lane_id)
        if own is not None and kept is not None and not is_final:
            self._before.pop(pipeline.title, None)
            position = {where: reach.at for where, reach in own.reaches.items()}
            return _Predecessor(position, kept.kept.head.frontier_ms)
        known = self._before.get(pipeline.title)
        if known is not None and known.is_final == is_final:
            return known
        if pipeline.title not in self._tasks:
            self._beside(pipeline, self._ask(pipeline, keeper, is_final=is_final))
        return None

    async def _ask(self, pipeline: Pipeline, keeper: LaneState, *, is_final: bool) -> None:
        servers = self.runner.settings.bootstrap_servers
        # From here on, the predecessor's last write is either stored, or never will be.
        await self.runner.writers.of(pipeline.name).begin()
        positions = FencedPositions(servers, lane_group(_lane_before(pipeline, keeper)))
        try:
            position = {where: reach.at for where, reach in (await positions.read()).items()}
        finally:
            await positions.close()
        head = await read_head(servers, kept_topic(pipeline.name, keeper.kept.head.before))
        frontier_ms = head.frontier_ms if head else None
        self._before[pipeline.title] = _Predecessor(position, frontier_ms, is_final)

    def _tell(self, pipeline: Pipeline, lane: PipelineLane) -> None:
        if (now_s := time.monotonic()) - self._told_s.get(pipeline.title, 0.0) >= _TELL_S:
            self._told_s[pipeline.title] = now_s
            first = _Chase(dict(lane.limits or {}), now_s)
            is_near = self._chases.setdefault(pipeline.title, first).look(lane, now_s)
            behind = _behind(lane)
            self.documents.built(pipeline.title, behind, now_ms=now_ms(), has_caught_up=is_near)

    def _tell_kept(self, pipeline: Pipeline, keeper: LaneState) -> None:
        count, size = len(keeper.kept), keeper.kept.size
        self.runner.metrics.keeps(pipeline.name, count, size)
        if (now_s := time.monotonic()) - self._kept_s.get(pipeline.title, -inf) >= _TELL_KEPT_S:
            self._kept_s[pipeline.title] = now_s
            self.documents.keeps(pipeline.title, count, size, now_ms=now_ms())

    async def _take_its_place(
        self, pipeline: Pipeline, lane: PipelineLane, keeper: LaneState, before: _Predecessor
    ) -> None:
        kept = keeper.kept
        frontier_ms = kept.head.frontier_ms if before.frontier_ms is None else before.frontier_ms
        # Deduplication has no windows, so all results are written, whatever their time.
        head = replace(kept.head, quiet_ms=0 if pipeline.window is None else frontier_ms)
        topic = kept_topic(pipeline.name, pipeline.generation)
        try:
            await self.runner.writers.of(pipeline.name).store([], {}, [(topic, *head.record, ())])
            kept.head = head
            lane.limits = keeper.frontier_max_ms = None
            self._before.pop(pipeline.title, None)
            self._chases.pop(pipeline.title, None)
            self.documents.built(pipeline.title, None, now_ms=now_ms())
            log.info("pipeline.took_its_place", pipeline=pipeline.title)
        finally:
            lane.is_under_way = False


def _behind(lane: PipelineLane) -> int:
    """How many events the lane must read to reach the predecessor's position."""
    limits = lane.limits or {}
    return sum(
        max(0, at - lane.reaches[where].at) for where, at in limits.items() if where in lane.reaches
    )


def _lane_before(pipeline: Pipeline, keeper: LaneState) -> str:
    return pipeline_lane(pipeline.source.stream, pipeline.name, keeper.kept.head.before)
