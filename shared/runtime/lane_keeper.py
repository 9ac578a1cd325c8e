"""Decides how lanes are kept as they are wanted: started, changed, restarted, drained.

A lane is one Spark query. One that dies is started again after a wait that doubles; one that is
no longer wanted, or wanted otherwise, is stopped between two micro-batches if that can be had.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger()

# The first restart comes at once, as most deaths are passing; a lane that cannot start at all
# tries twice a minute.
RESTART_WAIT_S_MAX = 30.0
# A lane that has run so long has recovered: its next death starts the waits anew.
HEALTHY_AFTER_S = 60.0
# Between two micro-batches a busy query is idle for some milliseconds only.
_DRAIN_LOOK_S = 0.002

W = TypeVar("W")


class LaneObserver(Protocol):
    """Who wants to know how lanes fare; the driver's metrics."""

    def lane_up(self, lane: str, *, is_up: bool) -> None: ...
    def lane_restarted(self, lane: str) -> None: ...
    def micro_batch_done(self, lane: str, *, events: int, duration_s: float) -> None: ...
    def progress_age(self, lane: str, *, age_s: float) -> None: ...


@dataclass(slots=True)
class _Lane(Generic[W]):
    wanted: W
    query: StreamingQuery | None = None
    deaths: int = 0
    started_s: float = 0.0
    start_again_s: float = 0.0
    progress_s: float = 0.0
    micro_batch_seen: int = -1


class LaneKeeper(Generic[W]):
    """Keeps one query per wanted lane. Called from one thread, twice a second."""

    def __init__(
        self,
        start: Callable[[str, W], StreamingQuery],
        observer: LaneObserver,
        *,
        on_progress: Callable[[str, Mapping[str, Any]], None] = lambda _, __: None,
    ) -> None:
        self._start = start
        self._observer = observer
        # Told of the newest micro-batch of a lane, as Spark describes it.
        self._on_progress = on_progress
        self._lanes: dict[str, _Lane[W]] = {}

    def keep(self, wanted: Mapping[str, W], *, drain_s: float) -> None:
        """Bring what runs closer to what is wanted."""
        for name in list(self._lanes):
            if name not in wanted or self._lanes[name].wanted != wanted[name]:
                self._stop(name, drain_s=drain_s)
        for name, lane_wanted in wanted.items():
            lane = self._lanes.setdefault(name, _Lane(lane_wanted))
            self._look_after(name, lane)

    def drain(self, *, drain_s: float) -> None:
        """Stop every lane, each between two micro-batches if that can be had in time."""
        for name in list(self._lanes):
            self._stop(name, drain_s=drain_s)

    def _look_after(self, name: str, lane: _Lane[W]) -> None:
        now_s = time.monotonic()
        if lane.query is not None and not lane.query.isActive:
            self._note_death(name, lane, now_s)
        if lane.query is None and now_s >= lane.start_again_s:
            self._start_lane(name, lane, now_s)
        if lane.query is not None:
            self._note_progress(name, lane, lane.query, now_s)
        self._observer.lane_up(name, is_up=lane.query is not None)

    def _start_lane(self, name: str, lane: _Lane[W], now_s: float) -> None:
        try:
            lane.query = self._start(name, lane.wanted)
        except PySparkException as error:
            self._set_back(lane, now_s)
            log.warning("lane.start_failed", lane=name, error=_first_line(error))
            return
        lane.started_s = lane.progress_s = now_s
        log.info("lane.started", lane=name)
        if lane.deaths:
            self._observer.lane_restarted(name)

    def _note_death(self, name: str, lane: _Lane[W], now_s: float) -> None:
        assert lane.query is not None, "only a started lane can die"
        error = lane.query.exception()
        if now_s - lane.started_s > HEALTHY_AFTER_S:
            lane.deaths = 0
        lane.query = None
        self._set_back(lane, now_s)
        log.error(
            "lane.died",
            lane=name,
            restart_in_s=round(lane.start_again_s - now_s, 1),
            error=_first_line(error) if error else "stopped",
        )

    def _set_back(self, lane: _Lane[W], now_s: float) -> None:
        lane.start_again_s = now_s + min(2.0**lane.deaths - 1, RESTART_WAIT_S_MAX)
        lane.deaths += 1

    def _note_progress(
        self, name: str, lane: _Lane[W], query: StreamingQuery, now_s: float
    ) -> None:
        last = query.lastProgress
        if last is not None and last["batchId"] != lane.micro_batch_seen:
            lane.progress_s = now_s
            for progress in query.recentProgress:
                if progress["batchId"] > lane.micro_batch_seen and progress["numInputRows"]:
                    self._observer.micro_batch_done(
                        name,
                        events=progress["numInputRows"],
                        duration_s=progress["batchDuration"] / 1000,
                    )
            lane.micro_batch_seen = last["batchId"]
            self._on_progress(name, last)
        elif not _status(query)["isTriggerActive"]:
            # Idle, which is progress as well: there is nothing to do.
            lane.progress_s = now_s
        self._observer.progress_age(name, age_s=now_s - lane.progress_s)

    def _stop(self, name: str, *, drain_s: float) -> None:
        lane = self._lanes.pop(name)
        if lane.query is None:
            return
        until_s = time.monotonic() + drain_s
        while (
            lane.query.isActive
            and _status(lane.query)["isTriggerActive"]
            and time.monotonic() < until_s
        ):
            time.sleep(_DRAIN_LOOK_S)
        with contextlib.suppress(PySparkException):
            lane.query.stop()
        self._observer.lane_up(name, is_up=False)
        log.info("lane.stopped", lane=name)


def _status(query: StreamingQuery) -> dict[str, Any]:
    status: dict[str, Any] = query.status
    return status


def _first_line(error: object) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
