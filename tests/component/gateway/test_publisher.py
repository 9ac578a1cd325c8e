"""What trouble with one Kafka partition may cost the others: nothing. On a scripted client."""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from aiokafka.producer.transaction_manager import TransactionManager

from gateway.publish import producers, publisher
from gateway.publish.report import Fate
from tests.support.scripted_producers import Scene, ScriptedProducer

Test = Callable[[Scene], Coroutine[Any, Any, None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    def run(test: Test) -> None:
        async def scene() -> None:
            s = Scene()
            monkeypatch.setattr(publisher, "new_producer", s.new_producer)
            monkeypatch.setattr(producers, "_REPLACE_PAUSE_S", 0)
            await s.publisher.start(deadline_s=5)
            try:
                await test(s)
            finally:
                await s.publisher.stop()
            assert all(one.is_stopped for one in s.made)

        asyncio.run(scene())

    return run


def test_a_topic_that_is_gone_costs_no_other_batch_its_report(play: Callable[[Test], None]) -> None:
    async def test(s: Scene) -> None:
        warm = s.publish("theirs")
        (await s.under_way(0, "theirs")).store("theirs")
        assert await s.settled(warm) is Fate.STORED
        ours = s.publish("ours")
        first = await s.under_way(0, "ours")
        # Once as the client says it, once as its metadata does.
        first.refusals["theirs"] = UnknownTopicOrPartitionError()
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        del s.cluster.leaders["theirs"]
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        first.store("ours")
        assert await s.settled(ours) is Fate.STORED
        assert s.made == [first], "nothing was numbered, so nothing is broken"

    play(test)


def test_a_partition_without_a_leader_is_not_handed_over_and_costs_nobody_else(
    play: Callable[[Test], None],
) -> None:
    async def test(s: Scene) -> None:
        s.cluster.leaders["theirs"] = [-1]
        ours = s.publish("ours")
        first = await s.under_way(0, "ours")
        # Certain, where the client would keep it for seconds and then not know.
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        assert "theirs" not in first.under_way
        first.store("ours")
        assert await s.settled(ours) is Fate.STORED
        theirs = s.publish("theirs")
        s.cluster.leaders["theirs"] = [0]
        (await s.under_way(0, "theirs")).store("theirs")
        assert await s.settled(theirs) is Fate.STORED, "it goes on when there is a leader"

    play(test)


def test_events_without_a_key_go_where_there_is_a_leader(
    play: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.publish.open_topic._MOVING_S", 0.01)

    async def test(s: Scene) -> None:
        s.publisher.queue_deadline_s = 5
        s.cluster.leaders["ours"] = [-1, 0]
        stuck = s.publish("ours")
        await s.until(lambda: "ours" in s.publisher._topics)
        begun_s = s.publisher._topics["ours"].accumulators[0].oldest_s()
        assert begun_s is not None
        await s.until(lambda: monotonic() > begun_s + 0.02)
        for _ in range(3):
            ours = s.publish("ours")
            (await s.under_way(0, "ours")).store("ours")
            assert await s.settled(ours) is Fate.STORED
        assert not stuck.done()
        s.cluster.leaders["ours"] = [0, 0]
        (await s.under_way(0, "ours")).store("ours")
        assert await s.settled(stuck) is Fate.STORED

    play(test)


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (NotLeaderForPartitionError(), Fate.UNKNOWN),
        (MessageSizeTooLargeError(), Fate.NOT_STORED),
    ],
)
def test_after_an_error_its_partition_has_a_new_producer_and_others_keep_their_reports(
    play: Callable[[Test], None], error: Exception, fate: Fate
) -> None:
    async def test(s: Scene) -> None:
        ours, theirs = s.publish("ours"), s.publish("theirs")
        first = await s.under_way(0, "ours")
        (await s.under_way(0, "theirs")).fail("theirs", error)
        assert await s.settled(theirs) is fate
        again = s.publish("theirs")
        second = await s.under_way(1, "theirs")
        assert "theirs" not in first.under_way, "its numbers are broken there"
        assert not first.is_stopped, "it owes a report"
        first.store("ours")
        assert await s.settled(ours) is Fate.STORED
        await s.until(lambda: first.is_stopped)
        second.store("theirs")
        assert await s.settled(again) is Fate.STORED

    play(test)


def test_others_need_not_wait_for_the_new_producer(
    play: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(s: Scene) -> None:
        connects = asyncio.Event()

        async def slow_start(producer: ScriptedProducer) -> None:
            await connects.wait()
            producer._numbers.set_pid_and_epoch(8, 0)

        monkeypatch.setattr(ScriptedProducer, "start", slow_start)
        theirs = s.publish("theirs")
        (await s.under_way(0, "theirs")).fail("theirs", NotLeaderForPartitionError())
        assert await s.settled(theirs) is Fate.UNKNOWN
        ours = s.publish("ours")
        (await s.under_way(0, "ours")).store("ours")
        assert await s.settled(ours) is Fate.STORED
        waiting = s.publish("theirs")
        assert await s.settled(waiting) is Fate.NOT_STORED, "it had no producer in time"
        connects.set()
        again = s.publish("theirs")
        (await s.under_way(1, "theirs")).store("theirs")
        assert await s.settled(again) is Fate.STORED

    play(test)


def test_a_producer_that_is_asked_something_is_not_closed_before_it_answers(
    play: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's client answers nobody any more once it is closed; the probe would ask for ever."""
    monkeypatch.setattr(publisher, "_PROBE_S", 0.01)

    async def test(s: Scene) -> None:
        asked, answers = asyncio.Event(), asyncio.Event()
        first = s.made[0]

        async def slowly() -> bool:
            asked.set()
            await answers.wait()
            return not first.is_stopped

        monkeypatch.setattr(first, "force_metadata_update", slowly)
        await asked.wait()
        theirs = s.publish("theirs")
        (await s.under_way(0, "theirs")).fail("theirs", NotLeaderForPartitionError())
        await s.settled(theirs)
        again = s.publish("theirs")
        (await s.under_way(1, "theirs")).store("theirs")
        assert await s.settled(again) is Fate.STORED
        assert not first.is_stopped
        answers.set()
        await s.until(lambda: first.is_stopped)

    play(test)


def test_a_producer_that_has_died_is_used_by_nobody_any_more(
    play: Callable[[Test], None],
) -> None:
    async def test(s: Scene) -> None:
        s.made[0].refusals["theirs"] = KafkaError("its sender is dead")
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        ours = s.publish("ours")
        (await s.under_way(1, "ours")).store("ours")
        assert await s.settled(ours) is Fate.STORED

    play(test)


def test_a_topic_that_is_gone_is_forgotten_when_nobody_waits_for_it(
    play: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "_PROBE_S", 0.01)

    async def test(s: Scene) -> None:
        publishing = s.publish("theirs")
        (await s.under_way(0, "theirs")).store("theirs")
        await s.settled(publishing)
        assert "theirs" in s.publisher._topics
        del s.cluster.leaders["theirs"]
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        await s.until(lambda: "theirs" not in s.publisher._topics)

    play(test)


def test_before_its_numbers_run_out_a_partition_gets_a_new_producer(
    play: Callable[[Test], None],
) -> None:
    """Kafka's numbers are 32 bits wide and go on at 0 after 2^31 - 1; aiokafka's go on below 0."""

    async def test(s: Scene) -> None:
        ours = TopicPartition("ours", 0)
        current = s.publisher._producers.current
        assert current is not None
        last = 2**31 - 2**20 - 1
        current.numbers[ours] = last
        s.made[0]._numbers.increment_sequence_number(ours, last)
        for nth in (0, 1):
            other = s.publish("theirs")
            publishing = s.publish("ours")
            producer = await s.under_way(nth, "ours")
            producer.store("ours")
            assert await s.settled(publishing) is Fate.STORED
            (await s.under_way(nth, "theirs")).store("theirs")
            assert await s.settled(other) is Fate.STORED, "who was under way keeps the report"
            await s.until(lambda: len(s.made) == 2)

    play(test)


def test_aiokafka_goes_on_where_kafka_does_not() -> None:
    """Should this ever change, nobody need be replaced for it."""

    async def wrapped() -> int:
        numbers, place = TransactionManager(None, 0), TopicPartition("t", 0)
        numbers.increment_sequence_number(place, 2**31 - 10)
        numbers.increment_sequence_number(place, 100)
        return int(numbers.sequence_number(place))

    assert asyncio.run(wrapped()) == 90 - 2**31
