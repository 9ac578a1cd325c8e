"""Owners of the tiers' Kafka partitions: the offset at which each continues, and its waits."""

import asyncio
import threading
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from retrier.loop import DueQueue
from retrier.task import DueJob, RangeEnd
from shared.event.record import KafkaPartition
from shared.event.topics import RETRIER
from shared.runtime.kafka.leases.fenced_positions import WHATEVER, Reach
from tests.support.delivery.memory_retrier import (
    OF_SLOW,
    SETTINGS,
    SLOW,
    TIER,
    A,
    B,
    answered,
    memory_retrier,
    ranges,
)


def test_what_is_due_is_sent_once_and_kafka_knows_it_beforehand() -> None:
    async def scenario() -> None:
        hifi = memory_retrier()
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
        hifi = memory_retrier({A: Reach(2, 5, 77), B: Reach(1, WHATEVER)}, former={A: 0})
        hifi.fill(9, A, B)
        await hifi.begin_with(0, 1)
        # The former owner learns that it has lost the partition.
        assert hifi.kept.known[A] == Reach(2, 5)
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(2, 9, 5)]
        assert ranges(hifi.jobs, B) == [(1, 9, 9)]

    asyncio.run(scenario())


def test_without_marks_it_goes_on_where_an_older_one_had_told_and_labels_all_there_is() -> None:
    async def scenario() -> None:
        hifi = memory_retrier(former={A: 4})
        hifi.fill(6, A)
        await hifi.begin_with(0)
        hifi.fill(2, A)
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(4, 8, 6)]
        assert hifi.kept.known[A].at == 8

    asyncio.run(scenario())


def test_while_kafka_does_not_say_nothing_begins() -> None:
    async def scenario() -> None:
        hifi = memory_retrier()
        told = hifi.told
        told.former = None
        hifi.fill(6, A)
        hifi.member.owned = frozenset({0})
        hifi.begin(hifi.member.owned)
        assert not await hifi._look()
        await hifi.settle()
        assert (hifi.jobs, hifi.kept.written) == ([], [])
        told.former = {}
        await hifi.settle()
        assert ranges(hifi.jobs, A) == [(0, 6, 0)]

    asyncio.run(scenario())


def test_a_number_that_hangs_holds_up_neither_the_others_nor_the_other_lane() -> None:
    async def scenario() -> None:
        hifi, may_end = memory_retrier(), threading.Event()

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
        hifi = memory_retrier()
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
    """Kafka has not confirmed how far the job may read."""

    async def scenario() -> None:
        hifi = memory_retrier()
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
        hifi, may_end = memory_retrier(), threading.Event()
        hifi.task = answered(may_end)
        await hifi.begin_with(0)
        hifi.fill(4, A)
        await hifi._look()
        hifi._start_jobs()
        while not hifi.jobs:  # noqa: ASYNC110 - it is in a thread
            await asyncio.sleep(0.01)
        hifi.member.owned = frozenset()
        hifi.drop(frozenset({0}))
        await asyncio.sleep(0)
        # Another process had the partition meanwhile, and this one gets it back.
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
    """Otherwise the partition would continue from an old position whenever it comes back."""

    async def scenario() -> None:
        hifi = memory_retrier({A: Reach(2, 2)})
        hifi.fill(4, A)
        hifi.member.owned = frozenset({0})
        hifi.begin(hifi.member.owned)
        read = hifi.kept.read

        async def read_late() -> dict[KafkaPartition, Reach]:
            known = await read()
            hifi.member.owned = frozenset()
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
        hifi, may_end = memory_retrier(), threading.Event()
        hifi.task = answered(may_end)
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
        hifi.member.owned -= {0}
        await asyncio.sleep(0)
        hifi.task = None
        hifi.fill(1, A, B)
        await hifi.settle()
        assert hifi.at == {B: 1}

    asyncio.run(scenario())


def test_what_kafka_deleted_unread_is_said_and_the_rest_goes_on() -> None:
    async def scenario() -> None:
        hifi = memory_retrier()
        await hifi.begin_with(0)
        hifi.fill(6, A)
        hifi.tiers.forget(A, 4)
        hifi.task = lambda job: [RangeEnd(it, 0, 0, "gone", is_gone=True) for it in job.ranges]
        with capture_logs() as logs:
            await hifi._look()
            hifi._start_jobs()
            await asyncio.wait(hifi._jobs.values())
        (lost,) = [each for each in logs if each["event"] == "lane.data_lost"]
        assert (lost["at"], lost["to"]) == (0, 4)
        hifi.task = None
        await hifi.settle()
        # The partition's job had begun, and ended without reporting how much was sent.
        assert ranges(hifi.jobs, A)[1:] == [(4, 6, 6)]

    asyncio.run(scenario())


def test_a_kafka_partition_that_is_added_is_read_from_its_beginning() -> None:
    async def scenario() -> None:
        hifi = memory_retrier()
        await hifi.begin_with(0, 1, 2)
        hifi.tiers.make(TIER, 3)
        new = KafkaPartition(TIER, 2)
        hifi.fill(2, new)
        await hifi.settle()
        assert ranges(hifi.jobs, new) == [(0, 2, 0)]
        assert hifi.member._slot_count == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("places", [2, 3, 4])
def test_those_who_wait_for_the_slow_leave_places_to_the_others(places: int) -> None:
    async def scenario() -> None:
        hifi, may_end = memory_retrier(), threading.Event()
        hifi.settings = SETTINGS.model_copy(update={"task_places": places})

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
        assert len(running) == min(2, places // 2)
        may_end.set()
        await hifi.settle()
        assert len(hifi.at) == 4

    asyncio.run(scenario())


def test_one_that_joins_repeats_nothing_and_what_a_dead_one_had_begun_is_labelled() -> None:
    async def scenario() -> None:
        first, may_end = memory_retrier(), threading.Event()
        await first.begin_with(0, 1)
        first.fill(4, A, B)
        await first.settle()
        second = replace(memory_retrier(), log=first.log, fenced=first.fenced)
        # A planned move: one slot moves when its running work has ended.
        first.fill(2, A, B)
        await first._look()
        first._start_jobs()
        await first.finish(frozenset({1}))
        first.member.owned -= {1}
        await second.begin_with(1)
        first.fill(1, A, B)
        await asyncio.gather(first.settle(), second.settle())
        assert ranges(first.jobs, B) == [(0, 4, 0), (4, 6, 4)]
        assert ranges(second.jobs, B) == [(6, 7, 6)]
        # An unplanned move: the process is busy, and nobody hears from it any more.
        first.task = answered(may_end)
        first.fill(3, A)
        await first._look()
        first._start_jobs()
        while len(first.jobs) < 6:  # noqa: ASYNC110 - it is in a thread
            await asyncio.sleep(0.01)
        first.member.owned = frozenset()
        first.fill(5, A)
        await second.begin_with(0)
        await second.settle()
        assert ranges(second.jobs, A) == [(7, 15, 10)]
        # The process comes back, and does not undo anything.
        may_end.set()
        with capture_logs():
            await asyncio.wait(first._jobs.values())
        assert second.kept.known[A] == Reach(15, 15)

    asyncio.run(scenario())
