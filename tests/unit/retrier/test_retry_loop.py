"""Who has which Kafka partitions of the tiers, where each goes on, and who waits for whom."""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka.errors import IllegalGenerationError
from structlog.testing import capture_logs

from retrier.broker import Broker, BrokerTime
from retrier.lane import lanes
from retrier.loop import DueQueue, RetryLoop
from retrier.service import RetrierMetrics
from retrier.settings import RetrierSettings
from retrier.task import DueJob, RangeEnd
from retrier.watch import LaneWatch
from shared.event.record import KafkaPartition, Origin, Position, RecordIn
from shared.event.topics import RETRIER, retry_topic, retry_topics
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.leases.fenced_positions import WHATEVER, FencedPositions, Reach
from shared.runtime.kafka.leases.member import Standing
from tests.support.kept_log import KeptLog

SETTINGS = RetrierSettings(folder=Path("nowhere"))
TIER, SLOW = retry_topic("30s"), retry_topic("slow")
A, B, OF_SLOW = KafkaPartition(TIER, 0), KafkaPartition(TIER, 1), KafkaPartition(SLOW, 0)
LATE_MS = 1_000_000


class StillBroker(Broker):
    """It is so late that all is due."""

    async def now_ms(self) -> int:
        return LATE_MS

    async def clock(self) -> BrokerTime:
        return BrokerTime(LATE_MS, 0.0)


class KeptPositions(FencedPositions):
    """A lease group's, in memory; it can refuse."""

    def __init__(self, known: dict[KafkaPartition, Reach]) -> None:
        self.known = known
        self.written: list[Mapping[KafkaPartition, Reach]] = []
        self.refuses = False

    async def read(self) -> dict[KafkaPartition, Reach]:
        return dict(self.known)

    async def write(
        self, reaches: Mapping[KafkaPartition, Reach], standing: Callable[[], Standing | None]
    ) -> None:
        if reaches and (self.refuses or standing() is None):
            raise IllegalGenerationError
        self.known |= reaches
        self.written += [reaches] if reaches else []


class ToldPositions(LanePositions):
    """What an older retrier had told, if Kafka says it."""

    def __init__(self, former: Position | None) -> None:
        super().__init__("kept")
        self.former = former

    async def last(self, _: Collection[str]) -> Mapping[str, Position]:
        return {} if self.former is None else {RETRIER: self.former}

    async def tell(self, _: Collection[str] | None = None) -> None:
        """Nobody looks."""


@dataclass
class House(RetryLoop):
    """One process, whose tasks do what they are told."""

    jobs: list[DueJob] = field(default_factory=list)
    # What a task does instead of sending everything.
    task: Callable[[DueJob], list[RangeEnd]] | None = None

    def _submit(self, _: DueQueue, job: DueJob) -> list[RangeEnd]:
        self.jobs += [job] if job.ranges else []
        if self.task is not None:
            return self.task(job)
        return [RangeEnd(it, end, end - begin) for it, (begin, end) in job.ranges.items()]

    @property
    def kept(self) -> KeptPositions:
        return cast("KeptPositions", self.fenced)

    @property
    def at(self) -> dict[KafkaPartition, int]:
        return {where: reach.at for where, reach in self._reaches.items() if reach.at}

    def fill(self, count: int, *places: KafkaPartition) -> None:
        log = cast("KeptLog", self.log)
        for where in places:
            first = len(log.logs[where])
            log.write(
                RecordIn(Origin(*where, first + n), 1, b"s/d", b"{}", ()) for n in range(count)
            )

    async def begin_with(self, *slots: int) -> None:
        self.member.held |= frozenset(slots)
        self.begin(frozenset(slots))
        assert await self._look()

    async def settle(self) -> None:
        """Look once, and do all there is to do."""
        await self._look()
        self._start_jobs()
        while self._jobs:
            await asyncio.wait(list(self._jobs.values()))
            self._start_jobs()


def house(
    known: Mapping[KafkaPartition, Reach] | None = None, former: Position | None = None
) -> House:
    log = KeptLog()
    for topic in retry_topics(tier.name for tier in SETTINGS.schedule.tiers):
        log.make(topic, 2)
    watch = LaneWatch(RetrierMetrics(), stalled_after_s=60)
    nobody: Any = None
    return House(
        nobody,
        SETTINGS,
        lanes(SETTINGS),
        watch,
        StillBroker("kept"),
        log,
        KeptPositions(dict(known or {})),
        ToldPositions({} if former is None else former),
    )


def once(may_end: threading.Event) -> Callable[[DueJob], list[RangeEnd]]:
    """A task that sends four events, and waits for their answers."""

    def task(job: DueJob) -> list[RangeEnd]:
        may_end.wait(60)
        return [RangeEnd(where, 4, 4) for where in job.ranges]

    return task


def ranges(jobs: Iterable[DueJob], where: KafkaPartition) -> list[tuple[int, int, int]]:
    """What was sent of it, and up to where it was known that it may be a repeat."""
    return [
        (*job.ranges[where], job.plan.replay_until[where]) for job in jobs if where in job.ranges
    ]


def test_what_is_due_is_sent_once_and_kafka_knows_it_beforehand() -> None:
    async def scenario() -> None:
        hifi = house()
        await hifi.begin_with(0, 1)
        hifi.fill(3, A, B)
        await hifi.settle()
        assert ranges(hifi.jobs, A) == ranges(hifi.jobs, B) == [(0, 3, 0)]
        of_a = [each[A] for each in hifi.kept.written if A in each]
        assert [(reach.at, reach.until) for reach in of_a] == [(0, 0), (0, 3), (3, 3)]
        await hifi.settle()
        assert len(hifi.jobs) == 2

    asyncio.run(scenario())


def test_it_goes_on_by_marks_and_labels_just_what_was_under_way() -> None:
    async def scenario() -> None:
        hifi = house({A: Reach(2, 5, 77), B: Reach(1, WHATEVER)}, former={A: 0})
        hifi.fill(9, A, B)
        await hifi.begin_with(0, 1)
        # Whoever still has it is told that he has lost it.
        assert hifi.kept.known[A] == Reach(2, 5)
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(2, 9, 5)]
        assert ranges(hifi.jobs, B) == [(1, 9, 9)]

    asyncio.run(scenario())


def test_without_marks_it_goes_on_where_an_older_one_had_told_and_labels_all_there_is() -> None:
    async def scenario() -> None:
        hifi = house(former={A: 4})
        hifi.fill(6, A)
        await hifi.begin_with(0)
        hifi.fill(2, A)
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(4, 8, 6)]
        assert hifi.kept.known[A].at == 8

    asyncio.run(scenario())


def test_while_kafka_does_not_say_nothing_begins() -> None:
    async def scenario() -> None:
        hifi = house()
        told = cast("ToldPositions", hifi.positions)
        told.former = None
        hifi.fill(6, A)
        hifi.member.held = frozenset({0})
        hifi.begin(hifi.member.held)
        assert not await hifi._look()
        await hifi.settle()
        assert (hifi.jobs, hifi.kept.written) == ([], [])
        told.former = {}
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(0, 6, 0)]

    asyncio.run(scenario())


def test_a_number_that_hangs_holds_up_neither_the_others_nor_the_other_lane() -> None:
    async def scenario() -> None:
        hifi, may_end = house(), threading.Event()

        def hang(job: DueJob) -> list[RangeEnd]:
            if A in job.ranges:
                may_end.wait(60)
            return [RangeEnd(it, end, 1) for it, (_, end) in job.ranges.items()]

        hifi.task = hang
        await hifi.begin_with(0, 1)
        hifi.fill(3, A, B, OF_SLOW)
        await hifi._look()
        hifi._start_jobs()
        others = [job for queue, job in hifi._jobs.items() if queue != DueQueue(RETRIER, 0)]
        assert len(others) == 2
        await asyncio.wait(others)
        assert hifi.at == {B: 3, OF_SLOW: 3}
        may_end.set()
        await hifi.settle()
        assert hifi.at == {A: 3, B: 3, OF_SLOW: 3}

    asyncio.run(scenario())


def test_a_task_without_a_word_is_sent_again_labelled() -> None:
    async def scenario() -> None:
        hifi = house()
        await hifi.begin_with(0)
        hifi.fill(4, A)
        hifi.task = lambda _: []
        with capture_logs() as logs:
            await hifi._look()
            hifi._start_jobs()
            await asyncio.wait(hifi._jobs.values())
        (died,) = [each for each in logs if each["event"] == "lane.died"]
        assert died["partitions"] == [f"{TIER} 0"]
        hifi.task = None
        hifi.fill(1, A)
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(0, 4, 0), (0, 5, 4)]

    asyncio.run(scenario())


def test_what_is_begun_in_doubt_is_not_begun() -> None:
    """Kafka has not taken how far it may go."""

    async def scenario() -> None:
        hifi = house()
        await hifi.begin_with(0)
        hifi.fill(4, A)
        await hifi._look()
        hifi.kept.refuses = True
        with capture_logs():
            hifi._start_jobs()
            await asyncio.wait(hifi._jobs.values())
        assert hifi.jobs == []
        hifi.kept.refuses = False
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(0, 4, 0)]

    asyncio.run(scenario())


def test_what_others_have_by_now_is_not_told_of_any_more() -> None:
    async def scenario() -> None:
        hifi, may_end = house(), threading.Event()
        hifi.task = lambda job: (
            (may_end.wait(60) and [RangeEnd(it, 4, 4) for it in job.ranges]) or []
        )
        await hifi.begin_with(0)
        hifi.fill(4, A)
        await hifi._look()
        hifi._start_jobs()
        while not hifi.jobs:  # noqa: ASYNC110 - it is in a thread
            await asyncio.sleep(0.01)
        hifi.member.held = frozenset()
        hifi.drop(frozenset({0}))
        await asyncio.sleep(0)
        # Another process has been here, and it comes back.
        hifi.kept.known[A] = Reach(2, 3)
        await hifi.begin_with(0)
        may_end.set()
        await asyncio.wait(hifi._jobs.values())
        assert hifi.at == {A: 2}
        hifi.task = None
        await hifi.settle()
        assert ranges(hifi.jobs, A)[1:] == [(2, 4, 3)]

    asyncio.run(scenario())


def test_what_is_lost_while_kafka_is_asked_is_not_entered() -> None:
    """It would go on from where it was then, whenever it comes back."""

    async def scenario() -> None:
        hifi = house({A: Reach(2, 2)})
        hifi.fill(4, A)
        hifi.member.held = frozenset({0})
        hifi.begin(hifi.member.held)
        read = hifi.kept.read

        async def read_late() -> dict[KafkaPartition, Reach]:
            known = await read()
            hifi.member.held = frozenset()
            hifi.drop(frozenset({0}))
            await asyncio.sleep(0)
            return known

        hifi.kept.read = read_late  # type: ignore[method-assign]
        await hifi.settle()
        hifi.kept.read = read  # type: ignore[method-assign]
        hifi.kept.known[A] = Reach(3, 3)
        await hifi.begin_with(0)
        assert hifi.at == {A: 3}

    asyncio.run(scenario())


def test_what_is_given_up_comes_to_its_end_first() -> None:
    async def scenario() -> None:
        hifi, may_end = house(), threading.Event()
        hifi.task = lambda job: (
            (may_end.wait(60) and [RangeEnd(it, 4, 4) for it in job.ranges]) or []
        )
        await hifi.begin_with(0, 1)
        hifi.fill(4, A)
        await hifi._look()
        hifi._start_jobs()
        giving_up = asyncio.create_task(hifi.finish(frozenset({0})))
        done, _ = await asyncio.wait([giving_up], timeout=0.1)
        assert not done
        may_end.set()
        await giving_up
        assert hifi.kept.known[A] == Reach(4, 4)
        hifi.member.held -= {0}
        await asyncio.sleep(0)
        hifi.task = None
        hifi.fill(1, A, B)
        await hifi.settle()
        assert hifi.at == {B: 1}

    asyncio.run(scenario())


def test_what_kafka_deleted_unread_is_said_and_the_rest_goes_on() -> None:
    async def scenario() -> None:
        hifi = house()
        await hifi.begin_with(0)
        hifi.fill(6, A)
        cast("KeptLog", hifi.log).forget(A, 4)
        hifi.task = lambda job: [RangeEnd(it, 0, 0, "gone", is_gone=True) for it in job.ranges]
        with capture_logs() as logs:
            await hifi._look()
            hifi._start_jobs()
            await asyncio.wait(hifi._jobs.values())
        (lost,) = [each for each in logs if each["event"] == "lane.data_lost"]
        assert (lost["at"], lost["to"]) == (0, 4)
        hifi.task = None
        await hifi.settle()
        # It had been begun, and ended without a word of what was sent.
        assert ranges(hifi.jobs, A)[1:] == [(4, 6, 6)]

    asyncio.run(scenario())


def test_a_kafka_partition_that_is_added_is_read_from_its_beginning() -> None:
    async def scenario() -> None:
        hifi = house()
        await hifi.begin_with(0, 1, 2)
        cast("KeptLog", hifi.log).make(TIER, 3)
        new = KafkaPartition(TIER, 2)
        hifi.fill(2, new)
        await hifi.settle()
        assert ranges(hifi.jobs, new) == [(0, 2, 0)]
        assert hifi.member._slot_count == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_those_who_wait_for_the_slow_leave_slots_to_the_others(slots: int) -> None:
    async def scenario() -> None:
        hifi, may_end = house(), threading.Event()
        hifi.settings = SETTINGS.model_copy(update={"slots": slots})

        def hang(job: DueJob) -> list[RangeEnd]:
            if OF_SLOW in job.ranges or KafkaPartition(SLOW, 1) in job.ranges:
                may_end.wait(60)
            return [RangeEnd(it, end, 1) for it, (_, end) in job.ranges.items()]

        hifi.task = hang
        await hifi.begin_with(0, 1)
        hifi.fill(1, OF_SLOW, KafkaPartition(SLOW, 1), A, B)
        await hifi._look()
        hifi._start_jobs()
        running = [queue for queue in hifi._jobs if queue.lane != RETRIER]
        assert len(running) == min(2, slots // 2)
        may_end.set()
        await hifi.settle()
        assert len(hifi.at) == 4

    asyncio.run(scenario())
