"""Trouble with one Kafka partition does not affect others, with scripted brokers."""

import asyncio
from time import monotonic

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)

from gateway.publish import batch_producer, publisher
from gateway.publish.report import Fate
from shared.event.record import KafkaPartition
from tests.support.kafka.scripted_brokers import PlayScene, Scene, play

__all__ = ["play"]


def test_a_topic_that_is_gone_costs_no_other_batch_its_report(play: PlayScene) -> None:
    async def test(s: Scene) -> None:
        s.publisher.ack_deadline_s = 0.5
        theirs = s.publish("theirs")
        gone = await s.under_way("theirs")
        del s.cluster.leaders["theirs"]
        # The broker may have appended it before the topic was gone.
        gone.fail(UnknownTopicOrPartitionError())
        assert await s.settled(theirs) is Fate.UNKNOWN
        ours = s.publish("ours")
        under_way = await s.under_way("ours")
        # The next batch is not written at all.
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        under_way.store()
        assert await s.settled(ours) is Fate.STORED

    play(test)


def test_a_topic_is_unknown_only_if_a_broker_says_so_and_not_because_none_answers(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        gone = await s.publish("new")
        s.client.is_silent = True
        silent = await s.publish("new")
        assert (gone.fate, silent.fate) == (Fate.NOT_STORED, Fate.NOT_STORED)
        assert gone.reason == "Kafka knows no topic new"
        assert silent.reason == "Kafka does not return the partitions of new"

    play(test)


def test_a_partition_without_a_leader_is_not_handed_over_and_costs_nobody_else(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        s.cluster.leaders["theirs"] = [-1]
        ours = s.publish("ours")
        under_way = await s.under_way("ours")
        # This is certain, as the batch was never sent; a batch that was sent might be stored.
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        assert "theirs" not in s.client.under_way
        under_way.store()
        assert await s.settled(ours) is Fate.STORED
        theirs = s.publish("theirs")
        s.cluster.leaders["theirs"] = [1]
        (await s.under_way("theirs")).store()
        assert await s.settled(theirs) is Fate.STORED, "it continues with a leader"

    play(test)


def test_what_a_broker_that_does_not_answer_would_have_is_withdrawn(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        s.client.is_reachable = False
        assert await s.settled(s.publish("ours")) is Fate.NOT_STORED
        assert "ours" not in s.client.under_way
        ours = s.publish("ours")
        s.client.is_reachable = True
        (await s.under_way("ours")).store()
        assert await s.settled(ours) is Fate.STORED

    play(test)


def test_events_without_a_key_go_where_there_is_a_leader(
    play: PlayScene, monkeypatch: pytest.MonkeyPatch
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
            (await s.under_way("ours")).store()
            assert await s.settled(ours) is Fate.STORED
        assert not stuck.done()
        s.cluster.leaders["ours"] = [0, 0]
        (await s.under_way("ours")).store()
        assert await s.settled(stuck) is Fate.STORED

    play(test)


def test_after_an_error_its_partition_has_a_new_epoch_and_others_keep_theirs(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        for topic in ("ours", "theirs"):
            warm = s.publish(topic, count=3)
            (await s.under_way(topic)).store()
            assert await s.settled(warm) is Fate.STORED
        ours, theirs = s.publish("ours"), s.publish("theirs")
        under_way = await s.under_way("ours")
        (await s.under_way("theirs")).fail(OutOfOrderSequenceNumber())
        assert await s.settled(theirs) is Fate.UNKNOWN
        again = s.publish("theirs")
        batch = await s.under_way("theirs")
        assert batch.numbered == (7, 1, 0), "a new epoch must begin"
        batch.store()
        assert await s.settled(again) is Fate.STORED
        under_way.store()
        assert await s.settled(ours) is Fate.STORED
        more = s.publish("ours")
        batch = await s.under_way("ours")
        assert batch.numbered == (7, 0, 4)
        batch.store()
        assert await s.settled(more) is Fate.STORED

    play(test)


def test_numbers_of_a_batch_that_is_refused_are_not_used_again(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        refused = s.publish("ours")
        (await s.under_way("ours")).fail(MessageSizeTooLargeError())
        assert await s.settled(refused) is Fate.NOT_STORED
        stored = s.publish("ours")
        batch = await s.under_way("ours")
        assert batch.numbered == (7, 1, 0)
        batch.store()
        assert await s.settled(stored) is Fate.STORED

    play(test)


@pytest.mark.parametrize(
    "error",
    [
        KafkaConnectionError(),
        NodeNotReadyError(),
        NotEnoughReplicasAfterAppendError(),
        NotLeaderForPartitionError(),
        RequestTimedOutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_batch_is_sent_again_as_it_was(play: PlayScene, error: KafkaError) -> None:
    async def test(s: Scene) -> None:
        s.publisher.queue_deadline_s = 5
        ours = s.publish("ours")
        first = await s.under_way("ours")
        first.fail(error)
        second = await s.under_way("ours")
        assert second.raw == first.raw
        second.store()
        assert await s.settled(ours) is Fate.STORED

    play(test)


def test_an_answer_that_cannot_be_read_makes_its_batch_unknown(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        ours = s.publish("ours")
        (await s.under_way("ours")).answered.set_exception(ValueError("not an answer"))
        assert await s.settled(ours) is Fate.UNKNOWN
        again = s.publish("ours")
        (await s.under_way("ours")).store()
        assert await s.settled(again) is Fate.STORED

    play(test)


async def gather_behind_one(s: Scene, first: str, others: list[str]) -> None:
    """Publish to other topics while their broker still has a request; then store all events."""
    published = [s.publish(first)]
    under_way = await s.under_way(first)
    published += [s.publish(topic) for topic in others]
    await asyncio.sleep(0.02)
    assert s.client.requests == [{first}]
    under_way.store()
    for topic in others:
        (await s.under_way(topic)).store()
    assert {await s.settled(each) for each in published} == {Fate.STORED}


def test_what_goes_to_one_broker_travels_together_one_request_at_a_time(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        s.cluster.leaders |= {"theirs": [0], "others": [0]}
        for topic in ("ours", "theirs", "others"):
            warm = s.publish(topic)
            (await s.under_way(topic)).store()
            assert await s.settled(warm) is Fate.STORED
        s.client.requests.clear()
        await gather_behind_one(s, "ours", ["theirs", "others"])
        assert s.client.requests == [{"ours"}, {"theirs", "others"}]

    play(test)


def test_what_gathers_for_a_broker_is_cut_into_requests_that_it_takes(
    play: PlayScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_producer, "_REQUEST_BYTES_MAX", 150)

    async def test(s: Scene) -> None:
        topics = [f"others-{n}" for n in range(4)]
        s.cluster.leaders = {topic: [0] for topic in ("ours", *topics)}
        await gather_behind_one(s, "ours", topics)
        assert [len(request) for request in s.client.requests] == [1, 2, 2]

    play(test)


def test_a_topic_that_is_gone_is_forgotten_when_nobody_waits_for_it(
    play: PlayScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "_PROBE_S", 0.01)

    async def test(s: Scene) -> None:
        publishing = s.publish("theirs")
        (await s.under_way("theirs")).store()
        await s.settled(publishing)
        assert "theirs" in s.publisher._topics
        del s.cluster.leaders["theirs"]
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED
        await s.until(lambda: "theirs" not in s.publisher._topics)

    play(test)


def test_numbers_go_on_at_0_where_kafkas_do(play: PlayScene) -> None:
    async def test(s: Scene) -> None:
        for first in (0, 2**31 - 2, 1):
            publishing = s.publish("ours", count=3)
            batch = await s.under_way("ours")
            assert batch.numbered == (7, 0, first)
            batch.store()
            assert await s.settled(publishing) is Fate.STORED
            assert s.publisher._producer is not None
            numbering = s.publisher._producer._numberings[KafkaPartition("ours", 0)]
            if not first:
                numbering.next_number = 2**31 - 2

    play(test)


def test_what_can_wait_is_done_while_kafka_has_a_batch_or_in_a_moment(
    play: PlayScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(s: Scene) -> None:
        done: list[str] = []
        s.publisher.meanwhile(lambda: done.append("idle"))
        await s.until(lambda: done)
        monkeypatch.setattr(batch_producer, "_MEANWHILE_S", 60)
        # A fault in one of them must not stop the others.
        s.publisher.meanwhile(lambda: done.remove("not there"))
        s.publisher.meanwhile(lambda: done.append("busy"))
        publishing = s.publish("ours")
        under_way = await s.under_way("ours")
        await s.until(lambda: len(done) > 1)
        under_way.store()
        assert await s.settled(publishing) is Fate.STORED
        assert done == ["idle", "busy"]

    play(test)
