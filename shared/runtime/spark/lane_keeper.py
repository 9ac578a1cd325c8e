"""Keeps the lanes of a process that are Spark queries: starts, watches and drains them.

One that dies is started again after a wait that doubles. At the end of the process each is ended
between two micro-batches, if that can be had.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

import structlog
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from shared.runtime.spark.lane_metrics import LaneMetrics
from shared.runtime.spark.query_end import end_if_between, end_query

log = structlog.get_logger()

# The first restart comes at once, as most deaths are passing; a lane that cannot start at all
# tries twice a minute.
RESTART_WAIT_S_MAX = 30.0
# A lane that has run so long has recovered: its next death starts the waits anew.
HEALTHY_AFTER_S = 60.0
# What Spark says when records that a lane has not read are gone, and what can be done about it.
_DATA_LOSS = ("KAFKA_DATA_LOSS", "data may have been lost", "OffsetOutOfRange")
_DATA_LOSS_ADVICE = (
    "events that this lane had not read are gone from Kafka (retention, or the topic was made"
    " anew); it does not skip them by itself: see 'A lane that stops' in docs/guarantees.md"
)


@dataclass(slots=True)
class _Lane:
    query: StreamingQuery | None = None
    deaths: int = 0
    started_s: float = 0.0
    start_again_s: float = 0.0
    progress_s: float = 0.0
    micro_batch_seen: int = -1
    is_stalled: bool = False


@dataclass(eq=False, slots=True)
class LaneKeeper:
    """Keeps one query for each lane. Called from one thread, twice a second."""

    _start: Callable[[str], StreamingQuery]
    names: InitVar[Collection[str]]
    _observer: LaneMetrics
    _: KW_ONLY
    stalled_after_s: float
    # What somebody can mend, by the text of an error; None: it has to speak for itself.
    why: Callable[[str], str | None] = lambda _: None
    # Told of the newest micro-batch of a lane, as Spark describes it.
    on_progress: Callable[[str, Mapping[str, Any]], None] = lambda _, __: None
    _lanes: dict[str, _Lane] = field(init=False)

    def __post_init__(self, names: Collection[str]) -> None:
        self._lanes = {name: _Lane() for name in names}

    def keep(self) -> None:
        """Start what does not run, and look how the others do."""
        for name, lane in self._lanes.items():
            self._look_after(name, lane)

    def drain(self, *, drain_s: float) -> None:
        """End every lane, each between two micro-batches if that can be had in time."""
        running = {name: lane.query for name, lane in self._lanes.items() if lane.query}
        with ThreadPoolExecutor(max(1, len(running))) as threads:
            for name, query in running.items():
                # A session that is gone says so elsewhere: nobody asks what became of these.
                threads.submit(self._end, name, query, drain_s=drain_s)

    def _look_after(self, name: str, lane: _Lane) -> None:
        now_s = time.monotonic()
        if lane.query is not None and not lane.query.isActive and end_if_between(lane.query):
            self._note_progress(name, lane, lane.query, now_s)
            self._note_end(name, lane, lane.query, now_s)
        if lane.query is None and now_s >= lane.start_again_s:
            self._start_lane(name, lane, now_s)
        if lane.query is not None:
            self._note_progress(name, lane, lane.query, now_s)
        self._observer.lane_up(name, is_up=lane.query is not None)

    def _start_lane(self, name: str, lane: _Lane, now_s: float) -> None:
        try:
            lane.query = self._start(name)
        except Exception as error:  # noqa: BLE001 - whatever one lane meets, the others go on
            self._set_back(lane, now_s)
            log.warning(
                "lane.start_failed",
                lane=name,
                kind=type(error).__name__,
                restart_in_s=round(lane.start_again_s - now_s, 1),
                error=self.why(str(error)) or _first_line(error),
            )
            return
        lane.started_s = lane.progress_s = now_s
        lane.micro_batch_seen = -1
        log.info("lane.started", lane=name)
        if lane.deaths:
            self._observer.lane_restarted(name)

    def _note_end(self, name: str, lane: _Lane, query: StreamingQuery, now_s: float) -> None:
        """A query has died: nobody has asked it to end."""
        lane.query = None
        if now_s - lane.started_s > HEALTHY_AFTER_S:
            lane.deaths = 0
        self._set_back(lane, now_s)
        text = str(query.exception() or "it has ended without a word")
        is_data_loss = any(sign in text for sign in _DATA_LOSS)
        log.error(
            "lane.data_lost" if is_data_loss else "lane.died",
            lane=name,
            restart_in_s=round(lane.start_again_s - now_s, 1),
            error=self.why(text) or _first_line(text),
            **({"advice": _DATA_LOSS_ADVICE} if is_data_loss else {}),
        )

    def _set_back(self, lane: _Lane, now_s: float) -> None:
        lane.start_again_s = now_s + min(2.0 ** min(lane.deaths, 6) - 1, RESTART_WAIT_S_MAX)
        lane.deaths += 1

    def _note_progress(self, name: str, lane: _Lane, query: StreamingQuery, now_s: float) -> None:
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
            self.on_progress(name, last)
        elif not query.status["isTriggerActive"]:
            # Idle, which is progress as well: there is nothing to do.
            lane.progress_s = now_s
            if last is not None:
                self.on_progress(name, last)
        age_s = now_s - lane.progress_s
        self._observer.progress_age(name, age_s=age_s)
        self._note_stall(name, lane, query, age_s)

    def _note_stall(self, name: str, lane: _Lane, query: StreamingQuery, age_s: float) -> None:
        is_stalled = age_s > self.stalled_after_s
        if is_stalled and not lane.is_stalled:
            log.error(
                "lane.stalled",
                lane=name,
                no_progress_for_s=round(age_s, 1),
                # Spark's words for where it stands: reading offsets, processing, committing.
                doing=query.status["message"],
            )
        elif lane.is_stalled and not is_stalled:
            log.info("lane.goes_on", lane=name)
        lane.is_stalled = is_stalled
        self._observer.lane_stalled(name, for_s=age_s if is_stalled else 0)

    def _end(self, name: str, query: StreamingQuery, *, drain_s: float) -> None:
        is_drained = end_query(query, drain_s=drain_s)
        with suppress(PySparkException):
            last = query.lastProgress
            if last is not None:
                self.on_progress(name, last)
        self._observer.lane_up(name, is_up=False)
        self._observer.lane_stalled(name, for_s=0)
        log.info("lane.stopped", lane=name, is_drained=is_drained)


def _first_line(error: object) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
