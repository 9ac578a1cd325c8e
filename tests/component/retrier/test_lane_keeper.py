"""Lanes are kept up, whatever one of them does; the queries are scripted ones."""

import threading
import time
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery
from structlog.testing import capture_logs

from shared.runtime.spark import lane_keeper
from shared.runtime.spark.lane_keeper import LaneKeeper
from shared.runtime.spark.lane_metrics import LaneMetrics


class Query:
    """A query as the keeper sees it."""

    def __init__(self) -> None:
        self.isActive = True
        self.status: dict[str, Any] = {"isTriggerActive": False, "message": "Waiting"}
        self.lastProgress: dict[str, Any] | None = None
        self.recentProgress: list[dict[str, Any]] = []
        self.error: str | None = None
        self.may_end = threading.Event()
        self.may_end.set()

    def exception(self) -> str | None:
        return self.error

    def die(self, why: str) -> None:
        self.error, self.isActive = why, False


class Seen(LaneMetrics):
    def __init__(self) -> None:
        super().__init__()
        self.lanes_up: dict[str, bool] = {}
        self.stalled: dict[str, bool] = {}
        self.restarted: list[str] = []

    def lane_up(self, lane: str, *, is_up: bool) -> None:
        self.lanes_up[lane] = is_up

    def lane_restarted(self, lane: str) -> None:
        self.restarted.append(lane)

    def micro_batch_done(self, lane: str, *, events: int, duration_s: float) -> None:
        pass

    def progress_age(self, lane: str, *, age_s: float) -> None:
        pass

    def lane_stalled(self, lane: str, *, for_s: float) -> None:
        self.stalled[lane] = for_s > 0


class House:
    """A keeper, what it starts, and what it ends."""

    def __init__(self, *names: str, stalled_after_s: float = 60) -> None:
        self.queries: list[tuple[str, Query]] = []
        self.refuses: dict[str, Exception] = {}
        self.told: list[tuple[str, Any]] = []
        self.seen = Seen()
        self.keeper = LaneKeeper(
            self._start,
            names,
            self.seen,
            stalled_after_s=stalled_after_s,
            on_progress=lambda name, progress: self.told.append((name, progress)),
        )

    def _start(self, name: str) -> StreamingQuery:
        if name in self.refuses:
            raise self.refuses[name]
        self.queries.append((name, Query()))
        return cast("StreamingQuery", self.queries[-1][1])


@pytest.fixture(autouse=True)
def _ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(query: Any, *, drain_s: float) -> bool:
        query.may_end.wait(10)
        query.isActive = False
        return drain_s > 0

    monkeypatch.setattr(lane_keeper, "end_query", end)
    monkeypatch.setattr(lane_keeper, "end_if_between", lambda query: query.may_end.is_set())


def until_kept(house: House, count: int) -> None:
    until_s = time.monotonic() + 10
    while len(house.queries) < count and time.monotonic() < until_s:
        house.keeper.keep()
    assert len(house.queries) == count


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("py4j"), OSError("disk")])
def test_a_lane_that_cannot_start_stops_no_other(error: Exception) -> None:
    house = House("bad", "good")
    house.refuses["bad"] = error
    house.keeper.keep()
    assert [name for name, _ in house.queries] == ["good"]
    assert house.seen.lanes_up == {"bad": False, "good": True}
    house.refuses.clear()
    until_kept(house, 2)
    assert house.seen.restarted == ["bad"]


def test_a_lane_that_has_failed_a_thousand_times_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_keeper, "RESTART_WAIT_S_MAX", 0.0)
    house = House("bad")
    house.refuses["bad"] = ValueError("no")
    with capture_logs():
        for _ in range(1_100):
            house.keeper.keep()
    house.refuses.clear()
    house.keeper.keep()
    assert house.seen.lanes_up == {"bad": True}


def test_a_dead_lane_starts_again() -> None:
    house = House("a")
    house.keeper.keep()
    house.queries[0][1].die("KAFKA_DATA_LOSS: gone")
    until_kept(house, 2)
    assert house.seen.restarted == ["a"]


def test_a_query_that_ends_by_itself_is_started_again() -> None:
    house = House("a")
    house.keeper.keep()
    house.queries[0][1].isActive = False
    with capture_logs() as logs:
        until_kept(house, 2)
    (died,) = [each for each in logs if each["event"] == "lane.died"]
    assert (died["lane"], died["error"]) == ("a", "it has ended without a word")


def test_a_dead_lane_is_not_started_beside_what_is_left_of_it() -> None:
    house = House("a")
    house.keeper.keep()
    query = house.queries[0][1]
    query.lastProgress = {"batchId": 7}
    query.die("no disk")
    query.may_end.clear()
    house.keeper.keep()
    assert (len(house.queries), house.seen.restarted) == (1, [])
    query.may_end.set()
    until_kept(house, 2)
    assert house.told[-1] == ("a", {"batchId": 7})


def test_drain_ends_all_and_waits_for_them() -> None:
    house = House("a", "b")
    house.keeper.keep()
    # The micro-batch that was waited for is news, too.
    house.queries[0][1].lastProgress = {"batchId": 7}
    house.keeper.drain(drain_s=1)
    assert house.told == [("a", {"batchId": 7})]
    assert not any(query.isActive for _, query in house.queries)
    assert house.seen.lanes_up == {"a": False, "b": False}


def test_a_lane_that_hangs_in_a_micro_batch_is_called_stalled_and_an_idle_one_is_not() -> None:
    house = House("hangs", "idle", stalled_after_s=0.05)
    house.keeper.keep()
    hanging = dict(house.queries)["hangs"]
    hanging.status = {"isTriggerActive": True, "message": "Processing new data"}
    until_s = time.monotonic() + 10
    with capture_logs() as logs:
        while not house.seen.stalled["hangs"] and time.monotonic() < until_s:
            house.keeper.keep()
    (alarm,) = [each for each in logs if each["event"] == "lane.stalled"]
    assert (alarm["lane"], alarm["doing"]) == ("hangs", "Processing new data")
    assert house.seen.stalled == {"hangs": True, "idle": False}
    hanging.status = {"isTriggerActive": False, "message": "Waiting"}
    house.keeper.keep()
    assert house.seen.stalled["hangs"] is False


def test_a_lane_with_nothing_to_do_says_again_and_again_where_it_is() -> None:
    house = House("a")
    house.keeper.keep()
    ((_, query),) = house.queries
    query.lastProgress = {"batchId": 3, "numInputRows": 0}
    house.keeper.keep()
    house.keeper.keep()
    assert house.told == [("a", query.lastProgress)] * 2
