"""Lanes are kept as they are wanted, whatever a lane does; the queries are scripted ones."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    def __init__(self, *, stalled_after_s: float = 60) -> None:
        self.queries: list[tuple[str, Query]] = []
        self.held: set[str] = set()
        self.refuses: dict[str, Exception] = {}
        self.started_as: dict[str, int] = {}
        self.told: list[tuple[str, Any]] = []
        self.seen = Seen()
        self.keeper = LaneKeeper[int](
            self._start,
            self.seen,
            drain_s=1,
            stalled_after_s=stalled_after_s,
            hold=self._hold,
            can_wait=lambda old, new: old // 10 == new // 10,
            on_progress=lambda name, progress: self.told.append((name, progress)),
        )

    def _start(self, name: str, wanted: int) -> StreamingQuery:
        if name in self.refuses:
            raise self.refuses[name]
        self.started_as[name] = wanted
        self.queries.append((name, Query()))
        return cast("StreamingQuery", self.queries[-1][1])

    @contextmanager
    def _hold(self, name: str) -> Iterator[None]:
        assert name not in self.held, f"{name} is held twice"
        self.held.add(name)
        try:
            yield
        finally:
            self.held.remove(name)


@pytest.fixture(autouse=True)
def _ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(query: Any, *, drain_s: float) -> bool:
        query.may_end.wait(10)
        query.isActive = False
        return drain_s > 0

    def ask_to_end(query: Any) -> None:
        query.isActive = False

    monkeypatch.setattr(lane_keeper, "end_query", end)
    monkeypatch.setattr(lane_keeper, "ask_to_end", ask_to_end)
    monkeypatch.setattr(lane_keeper, "end_if_between", lambda query: query.may_end.is_set())


def until_kept(house: House, wanted: dict[str, int], count: int) -> None:
    until_s = time.monotonic() + 10
    while len(house.queries) < count and time.monotonic() < until_s:
        house.keeper.keep(wanted)
    assert len(house.queries) == count


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("py4j"), OSError("disk")])
def test_a_lane_that_cannot_start_stops_no_other(error: Exception) -> None:
    house = House()
    house.refuses["bad"] = error
    house.keeper.keep({"bad": 1, "good": 1})
    assert [name for name, _ in house.queries] == ["good"]
    assert house.seen.lanes_up == {"bad": False, "good": True}
    assert house.held == {"good"}
    house.refuses.clear()
    until_kept(house, {"bad": 1, "good": 1}, 2)
    assert house.seen.restarted == ["bad"]


def test_a_lane_that_has_failed_a_thousand_times_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_keeper, "RESTART_WAIT_S_MAX", 0.0)
    house = House()
    house.refuses["bad"] = ValueError("no")
    with capture_logs():
        for _ in range(1_100):
            house.keeper.keep({"bad": 1})
    house.refuses.clear()
    house.keeper.keep({"bad": 1})
    assert house.seen.lanes_up == {"bad": True}


def test_a_dead_lane_lets_go_of_its_checkpoint_and_starts_again() -> None:
    house = House()
    house.keeper.keep({"a": 1})
    house.queries[0][1].die("KAFKA_DATA_LOSS: gone")
    until_kept(house, {"a": 1}, 2)
    assert house.seen.restarted == ["a"]
    assert house.held == {"a"}


def test_a_changed_lane_starts_anew_only_when_its_old_self_has_ended() -> None:
    house = House()
    house.keeper.keep({"a": 1, "b": 1})
    slow = house.queries[0][1]
    slow.may_end.clear()
    begun_s = time.monotonic()
    house.keeper.keep({"a": 2, "b": 1, "c": 1})
    assert time.monotonic() - begun_s < 5, "the keeper waited for a lane to end"
    # The others went on; the changed one waits for its old self, which holds the checkpoint.
    assert [name for name, _ in house.queries] == ["a", "b", "c"]
    slow.may_end.set()
    until_kept(house, {"a": 2, "b": 1, "c": 1}, 4)
    assert house.queries[-1][0] == "a"


def test_a_change_that_can_wait_cuts_no_micro_batch_off() -> None:
    house = House()
    house.keeper.keep({"a": 11})
    (slow,) = (query for _, query in house.queries)
    slow.may_end.clear()
    for wanted in (12, 11, 13):
        house.keeper.keep({"a": wanted})
    assert not slow.isActive, "it was not asked to end"
    assert len(house.queries) == 1, "a second query while the first one still runs"
    # The micro-batch that was waited for is news, and its end is no death.
    slow.lastProgress = {"batchId": 7}
    slow.may_end.set()
    house.keeper.keep({"a": 13})
    assert (len(house.queries), house.started_as) == (2, {"a": 13})
    assert house.told == [("a", {"batchId": 7})]
    assert (house.held, house.seen.lanes_up, house.seen.restarted) == ({"a"}, {"a": True}, [])


def test_a_change_that_cannot_wait_comes_before_one_that_can() -> None:
    house = House()
    house.keeper.keep({"a": 11})
    house.queries[0][1].may_end.clear()
    house.keeper.keep({"a": 12})
    house.keeper.keep({"a": 21})
    house.queries[0][1].may_end.set()
    until_kept(house, {"a": 21}, 2)
    assert house.started_as == {"a": 21}


def test_a_lane_that_dies_while_it_changes_is_a_dead_one() -> None:
    house = House()
    house.keeper.keep({"a": 11})
    slow = house.queries[0][1]
    slow.may_end.clear()
    house.keeper.keep({"a": 12})
    slow.die("KAFKA_DATA_LOSS: gone")
    slow.may_end.set()
    until_kept(house, {"a": 12}, 2)
    assert (house.seen.restarted, house.held) == (["a"], {"a"})


def test_drain_ends_all_and_waits_for_them() -> None:
    house = House()
    house.keeper.keep({"a": 1, "b": 1})
    # The micro-batch that was waited for is news, too.
    house.queries[0][1].lastProgress = {"batchId": 7}
    house.keeper.drain(drain_s=1)
    assert house.told == [("a", {"batchId": 7})]
    assert not any(query.isActive for _, query in house.queries)
    assert house.held == set()
    assert house.seen.lanes_up == {"a": False, "b": False}


def test_a_lane_that_hangs_in_a_micro_batch_is_called_stalled_and_an_idle_one_is_not() -> None:
    house = House(stalled_after_s=0.05)
    house.keeper.keep({"hangs": 1, "idle": 1})
    hanging = dict(house.queries)["hangs"]
    hanging.status = {"isTriggerActive": True, "message": "Processing new data"}
    until_s = time.monotonic() + 10
    with capture_logs() as logs:
        while not house.seen.stalled["hangs"] and time.monotonic() < until_s:
            house.keeper.keep({"hangs": 1, "idle": 1})
    (alarm,) = [each for each in logs if each["event"] == "lane.stalled"]
    assert (alarm["lane"], alarm["doing"]) == ("hangs", "Processing new data")
    assert house.seen.stalled == {"hangs": True, "idle": False}
    hanging.status = {"isTriggerActive": False, "message": "Waiting"}
    house.keeper.keep({"hangs": 1, "idle": 1})
    assert house.seen.stalled["hangs"] is False


def test_a_lane_with_nothing_to_do_says_again_and_again_where_it_is() -> None:
    house = House()
    house.keeper.keep({"a": 1})
    ((_, query),) = house.queries
    query.lastProgress = {"batchId": 3, "numInputRows": 0}
    house.keeper.keep({"a": 1})
    house.keeper.keep({"a": 1})
    assert house.told == [("a", query.lastProgress)] * 2
