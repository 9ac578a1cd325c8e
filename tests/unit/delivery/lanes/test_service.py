"""What the delivery process does beside its lanes."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delivery.lanes import service
from shared.runtime import health as clock
from shared.runtime.health import Health, Pulse
from shared.runtime.spark.session import SparkEndedError


class Jvm:
    """Spark's: it answers until it is stopped, and hangs until it is let go on."""

    def __init__(self) -> None:
        self.goes_on, self.was_asked, self.has_ended = threading.Event(), threading.Event(), False
        self.goes_on.set()

    def isStopped(self) -> bool:  # noqa: N802 - as Spark calls it
        self.was_asked.set()
        assert self.goes_on.wait(30)
        return self.has_ended

    def sc(self) -> "Jvm":
        return self

    @property
    def session(self) -> Any:
        return cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_jsc=self)))


async def _until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


async def _well(health: Health) -> None:
    """Its answer is on its way."""
    while health.death is not None:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


def test_a_spark_that_stands_still_is_told_while_all_else_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(service, "_ASK_S", 0.0)
    jvm, health, loop, answers = Jvm(), Health(), Pulse(), Pulse()

    async def scenario() -> None:
        nonlocal now_s
        health.start()
        health.must_turn("what plans the lanes", loop, within_s=60.0)
        health.must_turn("Spark", answers, within_s=60.0)
        asking = asyncio.create_task(service._ask(jvm.session, answers))
        for _ in range(3):
            now_s += 61.0
            loop.beat()
            jvm.was_asked.clear()
            await _until(jvm.was_asked)
            await _well(health)
        jvm.goes_on.clear()
        jvm.was_asked.clear()
        await _until(jvm.was_asked)
        now_s += 61.0
        loop.beat()
        assert health.death == "Spark has not turned for 61 s"
        jvm.goes_on.set()
        await _well(health)
        jvm.has_ended = True
        with pytest.raises(SparkEndedError):
            await asking

    asyncio.run(scenario())
