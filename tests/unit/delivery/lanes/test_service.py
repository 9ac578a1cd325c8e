"""Duties of the delivery process beside its lanes."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delivery.lanes.service import FlowGauges
from delivery.metrics import DeliveryMetrics
from shared.config.destination import Destination
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord, store_name
from shared.retry.attempt import Response
from shared.runtime import health as clock
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.leases.member import LeaseMember
from shared.runtime.spark import process
from shared.runtime.spark.session import SparkEndedError
from tests.support.suite.samples import NOW_MS
from tests.unit.flow.test_flow import told

TO = Destination("s", "a", "http://localhost/")
STORE, OLD = store_name("one", now_ms=NOW_MS), store_name("one", now_ms=NOW_MS - 1)


class Jvm:
    """Spark's JVM: it answers until it is stopped, and hangs while it is frozen."""

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
    """Wait until the process counts as alive again."""
    while health.death is not None:  # noqa: ASYNC110 - it sets no event
        await asyncio.sleep(0)


def test_a_spark_that_stands_still_is_told_while_all_else_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(process, "_ASK_S", 0.0)
    jvm, health, loop, answers = Jvm(), Health(), Pulse(), Pulse()

    async def scenario() -> None:
        nonlocal now_s
        health.start()
        health.must_turn("the loop that plans lanes", loop, within_s=60.0)
        health.must_turn("Spark", answers, within_s=60.0)
        asking = asyncio.create_task(process.keep_asking(jvm.session, answers))
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


def test_names_that_nobody_resolves_do_not_keep_spark_from_being_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names are resolved in threads that the whole process shares."""
    monkeypatch.setattr(process, "_ASK_S", 0.0)
    jvm, answers, resolved = Jvm(), Pulse(), threading.Event()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        lookup = loop.run_in_executor(None, resolved.wait)
        asking = asyncio.create_task(process.keep_asking(jvm.session, answers))
        try:
            async with asyncio.timeout(10):
                while not jvm.was_asked.is_set():  # noqa: ASYNC110 - it is another thread
                    await asyncio.sleep(0.001)
        finally:
            asking.cancel()
            resolved.set()
        await lookup

    asyncio.run(scenario())


class Fleet:
    """Two processes that hear of the same flows, and what Prometheus has from both."""

    def __init__(self) -> None:
        self.shown = []
        for _ in range(2):
            metrics = DeliveryMetrics(clock=lambda: NOW_MS)
            member = LeaseMember("kafka:1", "hifi.leases.delivery", cast("Any", None))
            self.shown.append(FlowGauges(metrics, member))
        self.flow = Flow()

    def has(self, *owned: bool) -> None:
        """Set which processes hold the destination's slot from now on."""
        for shown, is_holder in zip(self.shown, owned, strict=True):
            slots = {shown.member.slot_of(TO.id)} if is_holder else set()
            shown.member.owned = frozenset(slots)

    def look(self, store: str = STORE, *, delivered: int = 0, is_removed: bool = False) -> None:
        """Count this many delivered requests, and let each process look in turn."""
        for _ in range(delivered):
            self.flow = told(self.flow, Response(200))
        record = FlowRecord(Flow(), store=store).with_flow(self.flow, now_ms=NOW_MS)
        for shown in self.shown:
            shown.look({} if is_removed else {TO.id: TO}, {TO.id: record})

    def figures(self, metric: str, **labels: str) -> list[float | None]:
        """Return the metric as each process shows it."""
        name, labels = f"hifi_delivery_{metric}", {"destination": TO.id, **labels}
        return [each.metrics.registry.get_sample_value(name, labels) for each in self.shown]

    @property
    def attempts(self) -> list[float | None]:
        return self.figures("attempts_total", outcome="ok")


def test_of_several_processes_one_counts_an_attempt_and_its_count_stays() -> None:
    fleet = Fleet()
    fleet.has(True, False)
    fleet.look()
    fleet.look(delivered=3)
    assert fleet.attempts == [3, None], "a process that never had it shows no such line"
    # No process has the slot for a moment: attempts in that time are counted by none, never twice.
    fleet.has(False, False)
    fleet.look(delivered=1)
    fleet.has(False, True)
    fleet.look(delivered=1)
    fleet.look(delivered=5)
    assert fleet.attempts == [3, 5]
    fleet.has(True, False)
    fleet.look()
    fleet.look(delivered=2)
    assert fleet.attempts == [5, 5]


def test_the_file_of_a_machine_that_has_it_again_is_not_counted_anew() -> None:
    fleet = Fleet()
    fleet.has(True, False)
    fleet.look(delivered=0)
    fleet.look(OLD, delivered=1_000)
    fleet.look(OLD, delivered=2)
    assert fleet.attempts == [2, None]


def test_only_who_has_a_destination_shows_how_it_is() -> None:
    fleet = Fleet()
    gauges = [("flow_state", {"state": "closed"}), ("parallel_requests", {}), ("failing_ratio", {})]
    for owned in [(True, False), (False, True), (False, False), (True, False)]:
        fleet.has(*owned)
        fleet.look()
        for name, labels in gauges:
            is_shown = [each is not None for each in fleet.figures(name, **labels)]
            assert is_shown == list(owned), name
    fleet.look(is_removed=True)
    for name, labels in gauges:
        assert fleet.figures(name, **labels) == [None, None]


def test_what_others_have_costs_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process hears of every destination several times a second."""
    fleet = Fleet()
    fleet.has(True, False)
    fleet.look()
    gone: list[str] = []
    monkeypatch.setattr(fleet.shown[1].metrics, "flow_gone", gone.append)
    for _ in range(3):
        fleet.look(delivered=1)
    assert gone == []
