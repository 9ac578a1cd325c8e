"""Tasks that ignore being cancelled are counted, and end with their executor."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from prometheus_client import generate_latest

from pipelines.documents import Documents
from pipelines.lanes import stuck_tasks
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.stuck_tasks import StuckTasks, StuckTaskWatch
from pipelines.metrics import PipelineMetrics
from pipelines.parts import alone
from pipelines.parts.alone import ExecutorTurns
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition
from shared.runtime.kafka.leases.fenced_positions import Reach
from shared.runtime.spark.left_tasks import LeftTasks

WHERE = KafkaPartition("hifi.stream.s", 0)
EVIL, GOOD = (
    Pipeline.of({"name": name, "from": {"stream": "s"}, "to": [{"stream": "t"}]})
    for name in ("evil", "good")
)


def left(tasks: int, *, pool: str = "evil", stage: str = "1.0") -> LeftTasks:
    return LeftTasks(stage, pool, tasks)


def test_who_ends_soon_after_it_was_cut_off_holds_nothing() -> None:
    places = StuckTasks(task_places=4)
    assert not places.see([left(3)], 0.0)
    assert not places.see([], 4.0)
    assert not places.see([left(3)], 5.0)
    assert (places.count, places.are_too_many(5.0)) == (0, False)
    assert places.see([left(3)], 10.0)
    assert not places.see([left(3)], 11.0)
    assert (places.count, places.owners) == (3, frozenset({"evil"}))
    assert places.see([], 12.0)
    assert places.count == 0


@pytest.mark.parametrize(
    ("tasks", "at_s", "expected"),
    [(7, 5.0, False), (8, 5.0, True), (1, 119.0, False), (1, 120.0, True)],
)
def test_half_of_the_places_is_too_much_and_so_is_one_for_two_minutes(
    tasks: int, at_s: float, *, expected: bool
) -> None:
    places = StuckTasks(task_places=16)
    places.see([left(tasks)], 0.0)
    places.see([left(tasks)], at_s)
    assert places.are_too_many(at_s) is expected


class KnownSpark:
    ended = 0

    @property
    def watch(self) -> "KnownSpark":
        return self

    async def get(self) -> "KnownSpark":
        return self


class Ground:
    """A process that runs two pipelines, one of which leaves tasks behind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, may_replace: bool = True) -> None:
        self.found: list[LeftTasks] = [left(8)]
        self.replaced = 0
        monkeypatch.setattr(stuck_tasks, "left_tasks", lambda _: self.found)
        monkeypatch.setattr(stuck_tasks, "replace_executors", self._replace)
        self.book = PipelineBook(events_max=100, time_box_s=5, own_jobs_max=2)
        self.documents = Documents()
        self.documents.take([EVIL, GOOD], now_ms=1)
        for each in (EVIL, GOOD):
            self.documents.judged(each, now_ms=2)
            self.book.enter(each.lane_id, "t", {WHERE: Reach(0, 0)})
        self.book.see_ends({WHERE: 10})
        self.turns, self.metrics = ExecutorTurns(), PipelineMetrics()
        spark: Any = KnownSpark()
        self.spark = spark
        self.watch = StuckTaskWatch(
            spark,
            StuckTasks(16),
            self.book,
            self.turns,
            self.documents,
            self.metrics,
            may_replace=may_replace,
        )

    def _replace(self, _: object) -> None:
        self.replaced += 1

    def look(self, *at_s: float) -> None:
        async def looks() -> None:
            for each in at_s:
                await self.watch.look(each)

        asyncio.run(looks())

    def ended(self) -> list[int]:
        return [self.documents.states[it.title].executors_ended for it in (EVIL, GOOD)]

    def planned(self) -> list[str]:
        return [portion.lane_id for job in self.book.plan(0.0) for portion in job.portions]

    def shown(self) -> list[str]:
        return generate_latest(self.metrics.registry).decode().splitlines()


def test_the_executor_is_replaced_and_whose_tasks_went_on_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground(monkeypatch)
    ground.look(100.0)
    assert ground.replaced == 0
    ground.look(105.0)
    assert (ground.replaced, ground.ended()) == (1, [1, 0])
    assert "hifi_pipelines_stuck_tasks 8.0" in ground.shown()
    assert "continued" in ground.documents.states["evil"].why
    # Until the tasks are gone the other pipeline starts alone; the ending executor is left alone.
    ground.look(110.0)
    assert ground.planned() == [GOOD.lane_id]
    ground.found = []
    ground.spark.ended = 1
    ground.look(111.0)
    assert (ground.replaced, ground.planned()) == (1, [EVIL.lane_id])
    shown = ground.shown()
    assert "hifi_pipelines_stuck_tasks 0.0" in shown
    assert "hifi_pipelines_executors_lost_total 1.0" in shown
    assert 'hifi_pipelines_executor_ended_total{pipeline="evil",tenant="default"} 1.0' in shown


def test_what_it_has_under_way_comes_to_its_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    lane = ground.book.lanes[EVIL.lane_id]
    lane.is_under_way = True
    ground.look(100.0, 105.0)
    assert ground.replaced == 0
    lane.is_under_way = False
    assert ground.planned() == [GOOD.lane_id]
    ground.look(106.0)
    assert ground.replaced == 1


def test_others_that_do_not_end_are_held_back_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alone, "_WAIT_S_MAX", 0.01)
    ground = Ground(monkeypatch)

    async def run() -> None:
        async with ground.turns.among_others():
            for at_s in (100.0, 105.0):
                await ground.watch.look(at_s)
        await ground.watch.look(164.0)
        assert (ground.replaced, ground.ended()) == (0, [0, 0])
        await ground.watch.look(165.0)

    asyncio.run(run())
    assert (ground.replaced, ground.ended()) == (1, [1, 0])


def test_on_a_cluster_they_are_shown_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch, may_replace=False)
    ground.look(100.0, 105.0)
    assert (ground.replaced, ground.ended()) == (0, [0, 0])
    assert sorted(ground.planned()) == [EVIL.lane_id, GOOD.lane_id]
    assert "hifi_pipelines_stuck_tasks 8.0" in ground.shown()


def test_it_looks_again_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    monkeypatch.setattr(stuck_tasks, "_LOOK_S", 0.0)
    looks, is_done = list[float](), asyncio.Event()

    async def look(_: StuckTaskWatch, now_s: float) -> None:
        looks.append(now_s)
        if len(looks) == 1:
            raise OSError("Spark stands still")
        is_done.set()

    async def run(done: Awaitable[object]) -> None:
        ground.spark.is_up = asyncio.Event()
        ground.spark.is_up.set()
        running = asyncio.create_task(ground.watch.run())
        await done
        running.cancel()

    monkeypatch.setattr(StuckTaskWatch, "look", look)
    asyncio.run(run(is_done.wait()))
    assert len(looks) >= 2
