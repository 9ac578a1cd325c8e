"""The driver at work while Kafka answers little, late or not at all."""

import asyncio
import time
from collections.abc import Collection

import pytest
from structlog.testing import capture_logs

from delivery.lanes.marks import Mark, mark_record
from delivery.lanes.units import JobKind
from shared.event.record import KafkaPartition
from shared.runtime import health
from shared.runtime.health import Health, Pulse
from tests.support.delivery.memory_log import MemoryLog
from tests.unit.delivery.lanes.test_loop import BESIDE, HERE, TO, A, B, Driver


class StartedProcess(Health):
    """The health of a process that ends once it has started to work."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_event = asyncio.Event()

    def start(self) -> None:
        super().start()
        self.stop_event.set()


def run(driver: Driver, stop: asyncio.Event, health: Health, pulse: Pulse) -> None:
    """Run the loop, without Spark, until it is stopped."""

    async def scenario() -> None:
        async with asyncio.timeout(30):
            await driver.loop.run(stop, health, pulse)

    asyncio.run(scenario())


def test_a_process_has_come_to_its_work_though_a_kafka_partition_has_no_leader() -> None:
    """Otherwise the process would be killed every five minutes, with everybody's lanes."""
    driver = Driver(events=0, marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    driver.loop.config.value = driver.loop.roster._seen
    driver.log.make("hifi.lanes", 1)
    driver.log.leaderless = {A}
    driver.loop.member.is_told = True
    started = StartedProcess()
    run(driver, started.stop_event, started, Pulse())
    assert started.is_started
    assert driver.position() == {B: 0}


def test_a_lane_that_cannot_begin_somewhere_is_down_and_says_why() -> None:
    driver = Driver(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    driver.log.make("hifi.lanes", 1)
    driver.log.leaderless = {A}
    driver.look()
    driver.loop._look_at_fates(driver.now_s)
    assert driver.shows("lane_up") == 1, "a new Kafka partition has no leader yet"
    with capture_logs() as logs:
        for after_s in (10.0, 20.0, 100.0):
            driver.loop._look_at_fates(driver.now_s + after_s)
    assert logs == [
        {
            "event": "lane.cannot_begin",
            "log_level": "error",
            "lane": TO.id,
            "partitions": [0],
            "error": "no leader",
        }
    ]
    assert driver.shows("lane_up") == 0
    assert driver.shows("lane_stalled_seconds") == pytest.approx(100)
    driver.log.leaderless = set()
    driver.look()
    with capture_logs() as logs:
        driver.loop._look_at_fates(driver.now_s + 101.0)
    assert [each["event"] for each in logs] == ["lane.begins"]
    assert (driver.shows("lane_up"), driver.shows("lane_stalled_seconds")) == (1, 0)


def test_while_kafka_says_nothing_at_all_no_lane_is_blamed() -> None:
    driver = Driver()
    driver.log.leaderless = {A, B}
    driver.look()
    with capture_logs() as logs:
        driver.loop._look_at_fates(driver.now_s)
        driver.loop._look_at_fates(driver.now_s + 10.0)
    assert (logs, driver.shows("lane_up")) == ([], None)


def test_a_late_mark_is_set_right_with_the_next_look() -> None:
    driver = Driver(marks={HERE: Mark(9, 9), BESIDE: Mark(0, 0)})
    driver.look()
    driver.loop.marks.marks[HERE] = late = Mark(2, 4)
    driver.loop._mark_came(HERE, late)
    driver.look()
    assert driver.outlet.rows == [mark_record(HERE, Mark(9, 9))]
    assert driver.position() == {A: 9, B: 0}


class Frozen(MemoryLog):
    """A Kafka that accepts requests, and answers none until it is resumed."""

    goes_on: asyncio.Event

    async def ends(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        await self.goes_on.wait()
        return await super().ends(places)


class CountedBeats(Pulse):
    """A pulse that, at the fifth beat, resumes Kafka and stops the process."""

    def __init__(self, log: Frozen, stop: asyncio.Event) -> None:
        super().__init__()
        self.log, self.stop, self.beats = log, stop, 0

    def beat(self) -> None:
        super().beat()
        self.beats += 1
        if self.beats == 5:
            assert not self.log.goes_on.is_set()
            self.log.goes_on.set()
            self.stop.set()


def test_a_process_that_waits_for_kafka_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killing the process would not bring Kafka back."""
    monkeypatch.setattr(health, "_LOOP_BEAT_S", 0.001)
    driver = Driver()
    driver.loop.config.value = driver.loop.roster._seen
    driver.log.__class__ = Frozen
    assert isinstance(driver.log, Frozen)
    driver.log.goes_on = asyncio.Event()
    stop = asyncio.Event()
    pulse = CountedBeats(driver.log, stop)
    run(driver, stop, Health(), pulse)
    assert pulse.beats == 5
    assert driver.position() == {A: 0, B: 0}


def test_nobody_looks_for_what_has_to_wait_until_those_who_are_well_may_have_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asking for the ends of hundreds of logs costs as much as all that is sent meanwhile."""
    driver, stop = Driver(), asyncio.Event()
    driver.loop.config.value = driver.loop.roster._seen
    looks_s: list[float] = []

    async def look() -> float:
        looks_s.append(time.monotonic())
        if len(looks_s) == 2:
            stop.set()
        return 0.0

    monkeypatch.setattr(driver.loop, "_look", look)
    driver.loop.turns.pause(JobKind.SHARED, {"default": 5_000}, now_s=time.monotonic())
    run(driver, stop, Health(), Pulse())
    assert looks_s[1] >= driver.loop.turns.opens_s > looks_s[0]
