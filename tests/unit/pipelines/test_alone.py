"""A job has the executor to itself when it must; then other jobs get the executor for as long."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from pipelines import session as session_module
from pipelines.jobs import job as job_module
from pipelines.jobs import runner as runner_module
from pipelines.jobs.outcomes import Results
from pipelines.parts import alone
from pipelines.parts.alone import ExecutorTurns, NotAloneError
from pipelines.parts.blame import ExecutorEndedError
from tests.unit.pipelines.test_runner import Ground


async def work(
    turn: AbstractAsyncContextManager[None], name: str, told: list[str], lasts_s: float
) -> None:
    async with turn:
        told.append(f"{name} begins")
        await asyncio.sleep(lasts_s)
        told.append(f"{name} ends")


def test_who_is_alone_waits_for_those_at_work_and_holds_back_others() -> None:
    async def run() -> list[str]:
        turns, told = ExecutorTurns(), list[str]()
        async with asyncio.TaskGroup() as group:
            for nth in range(2):
                group.create_task(work(turns.among_others(), f"early {nth}", told, 0.02))
            await asyncio.sleep(0)
            group.create_task(work(turns.alone(), "suspect", told, 0.02))
            await asyncio.sleep(0.01)
            group.create_task(work(turns.among_others(), "late", told, 0.0))
        return told

    told = asyncio.run(run())
    assert sorted(told[:4]) == ["early 0 begins", "early 0 ends", "early 1 begins", "early 1 ends"]
    assert told[4:] == ["suspect begins", "suspect ends", "late begins", "late ends"]


def test_who_is_cancelled_while_it_waits_holds_up_nobody() -> None:
    async def run() -> list[str]:
        turns, told = ExecutorTurns(), list[str]()
        for is_given in (False, True):
            async with turns.alone():
                waiting = asyncio.create_task(work(turns.among_others(), "gone", told, 0.0))
                await asyncio.sleep(0)
                if not is_given:
                    waiting.cancel()
                    await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await work(turns.alone(), "suspect", told, 0.0)
        return told

    assert asyncio.run(run()) == ["suspect begins", "suspect ends"]


def test_others_go_on_between_two_that_are_alone() -> None:
    async def run() -> list[str]:
        turns, told = ExecutorTurns(), list[str]()
        async with asyncio.TaskGroup() as group:
            for nth in range(2):
                group.create_task(work(turns.alone(), f"suspect {nth}", told, 0.02))
            await asyncio.sleep(0.01)
            group.create_task(work(turns.among_others(), "other", told, 0.0))
        return told

    told = asyncio.run(run())
    assert told == [
        *("suspect 0 begins", "suspect 0 ends"),
        *("other begins", "other ends"),
        *("suspect 1 begins", "suspect 1 ends"),
    ]


def test_what_does_not_end_holds_up_others_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "_WAIT_S_MAX", 0.01)

    async def run() -> list[str]:
        turns, told = ExecutorTurns(), list[str]()
        async with asyncio.TaskGroup() as group:
            group.create_task(work(turns.among_others(), "endless", told, 0.1))
            await asyncio.sleep(0)
            with pytest.raises(NotAloneError):
                await work(turns.alone(), "suspect", told, 0.0)
            await work(turns.among_others(), "other", told, 0.0)
        return told

    assert asyncio.run(run()) == ["endless begins", "other begins", "other ends", "endless ends"]


@pytest.mark.parametrize(
    ("end", "ago_s", "most_s"),
    [(16, 60.0, 7.0), (1, 60.0, None), (16, 2.0, 23.0), (16, 20.0, 7.0), (1, 2.0, None)],
)
def test_others_wait_for_a_suspect_no_longer_than_for_its_one_event(
    monkeypatch: pytest.MonkeyPatch, end: int, ago_s: float, most_s: float | None
) -> None:
    """A suspect's first job may be slow in an executor that has just started."""
    ground, seen = Ground.of("a", end=end), list[float | None]()

    def job(*_: object, seconds_max: float | None = None) -> list[Results]:
        seen.append(seconds_max)
        raise ExecutorEndedError

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    ground.runner._ended_s -= ago_s
    ground.rested()
    ground.run()
    assert seen == [None, most_s if most_s is None else pytest.approx(most_s, abs=0.5)]


def test_whoever_is_to_blame_is_told_for_how_long_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    ground, said = Ground.of("a", end=16), list[str]()

    def job(*_: object, **__: object) -> list[Results]:
        raise ExecutorEndedError("it has ended")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.runner.blame = lambda _, why: said.append(why)
    for _ in range(3):
        ground.rested()
        ground.run()
    with_nothing = "it has ended, with nothing else at work: the pipeline rests"
    assert said == [f"{with_nothing} for 10 s", f"{with_nothing} for 20 s"]


def test_an_executor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([set[str](), set(), {"1"}, {"1"}])
    monkeypatch.setattr(session_module, "executors_of", lambda _: next(told))
    monkeypatch.setattr(session_module, "_LOOK_S", 0.0)
    spark = session_module.SparkOnDemand(Mock(), lambda: None)
    spark.session = Mock()
    asyncio.run(spark.wait_for_executor())
    assert len([*told]) == 1


def test_an_executor_that_does_not_come_is_not_waited_for_without_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "executors_of", lambda _: set())
    monkeypatch.setattr(session_module, "_EXECUTOR_S_MAX", 0.3)
    spark = session_module.SparkOnDemand(Mock(), lambda: None)
    spark.session = Mock()
    began_s = time.monotonic()
    asyncio.run(spark.wait_for_executor())
    assert time.monotonic() - began_s >= 0.3


@pytest.mark.parametrize(("sink", "most_s"), [(None, 10.0), (object(), 300.0)])
def test_what_writes_to_a_sink_has_its_time_though_it_is_alone(
    monkeypatch: pytest.MonkeyPatch, sink: Any, most_s: float
) -> None:
    """A sink's range stays as it is: with less time, the job would never finish it."""
    seen = list[float]()

    def bounded(
        _: object, __: str, seconds_max: float, ___: object
    ) -> AbstractContextManager[None]:
        seen.append(seconds_max)
        return nullcontext()

    task = Mock(sink=sink, portion=Mock(earlier={}))
    monkeypatch.setattr(job_module, "_bounded", bounded)
    monkeypatch.setattr(job_module, "_worked_on", lambda *_: {task: Results()})
    settings = Mock(job_s_max=60.0, sink_job_s_max=300.0)
    assert job_module.run_job(Mock(), settings, [task], seconds_max=10.0) == [Results()]
    assert seen == [most_s]
