"""When a batch is stored, not stored or unknown, and which events are never sent again."""

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)

from gateway.publish.report import Fate
from shared.event.record import KafkaPartition
from tests.support.kafka.scripted_brokers import PlayScene, Scene, play

__all__ = ["play"]


@pytest.mark.parametrize(
    ("first", "fate"),
    [
        # The leader counts its replicas before it appends.
        (NotEnoughReplicasError(), Fate.NOT_STORED),
        # The leader resigned during the request: it may have appended before that.
        (NotLeaderForPartitionError(), Fate.UNKNOWN),
        (UnknownTopicOrPartitionError(), Fate.UNKNOWN),
        (LeaderNotAvailableError(), Fate.UNKNOWN),
        (RequestTimedOutError(), Fate.UNKNOWN),
        (KafkaConnectionError(), Fate.UNKNOWN),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_refusal_is_certain_only_if_no_attempt_before_it_may_have_stored_the_batch(
    play: PlayScene, first: KafkaError, fate: Fate
) -> None:
    async def test(s: Scene) -> None:
        s.publisher.queue_deadline_s = 5
        ours = s.publish("ours")
        (await s.under_way("ours")).fail(first)
        (await s.under_way("ours")).fail(MessageSizeTooLargeError())
        assert await s.settled(ours) is fate
        again = s.publish("ours")
        batch = await s.under_way("ours")
        assert batch.numbered == (7, 1, 0)
        batch.store()
        assert await s.settled(again) is Fate.STORED

    play(test)


def test_a_leader_that_resigned_may_have_stored_a_batch_and_the_next_one_has_other_numbers(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        s.publisher.ack_deadline_s = 0.2
        first = s.publish("ours")
        written = await s.under_way("ours")
        written.fail(NotLeaderForPartitionError())
        s.cluster.leaders["ours"] = [-1]
        assert await s.settled(first) is Fate.UNKNOWN
        s.cluster.leaders["ours"] = [1]
        second = s.publish("ours")
        batch = await s.under_way("ours")
        # The new leader may have the first batch: if the second one had the same numbers, it would
        # be taken for a repeat.
        assert (written.numbered, batch.numbered) == ((7, 0, 0), (7, 1, 0))
        batch.store()
        assert await s.settled(second) is Fate.STORED

    play(test)


def test_nothing_is_written_again_of_what_somebody_was_told_is_unknown(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        s.publisher.ack_deadline_s = 0.2
        ours = s.publish("ours")
        (await s.under_way("ours")).fail(RequestTimedOutError())
        again = await s.under_way("ours")
        assert await s.settled(ours) is Fate.UNKNOWN
        s.publisher.ack_deadline_s = 5
        again.fail(RequestTimedOutError())
        after = s.publish("ours")
        batch = await s.under_way("ours")
        # This request carries the next event; it is not a third attempt.
        assert batch.numbered == (7, 1, 0)
        batch.store()
        assert await s.settled(after) is Fate.STORED
        assert s.client.requests == [{"ours"}] * 3

    play(test)


def test_what_waits_behind_a_busy_broker_is_certainly_not_stored_when_its_time_is_over(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        s.cluster.leaders["others"] = [0]
        warm = [s.publish(topic) for topic in ("ours", "others")]
        for topic in ("ours", "others"):
            (await s.under_way(topic)).store()
        for each in warm:
            assert await s.settled(each) is Fate.STORED
        s.publisher.ack_deadline_s = 0.2
        ours = s.publish("ours")
        under_way = await s.under_way("ours")
        others = s.publish("others")
        assert await s.settled(others) is Fate.NOT_STORED
        assert await s.settled(ours) is Fate.UNKNOWN
        s.publisher.ack_deadline_s = 5
        under_way.store()
        # The queued parcel is dropped, and its Kafka partition continues.
        after = s.publish("others")
        batch = await s.under_way("others")
        batch.store()
        assert await s.settled(after) is Fate.STORED
        assert [sorted(each) for each in s.client.requests[-3:]] == [["ours"], [], ["others"]]

    play(test)


def test_a_partition_that_has_used_up_its_epochs_has_a_new_id_and_others_need_not_wait(
    play: PlayScene,
) -> None:
    async def test(s: Scene) -> None:
        theirs = s.publish("theirs")
        (await s.under_way("theirs")).store()
        assert await s.settled(theirs) is Fate.STORED
        assert s.publisher._producer is not None
        s.publisher._producer._numberings[KafkaPartition("theirs", 0)].epoch = 2**15 - 1
        theirs = s.publish("theirs")
        batch = await s.under_way("theirs")
        assert batch.numbered == (7, 2**15 - 1, 1)
        batch.fail(OutOfOrderSequenceNumber())
        assert await s.settled(theirs) is Fate.UNKNOWN
        s.client.may_number.clear()
        assert await s.settled(s.publish("theirs")) is Fate.NOT_STORED, "it had no id in time"
        ours = s.publish("ours")
        (await s.under_way("ours")).store()
        assert await s.settled(ours) is Fate.STORED
        s.client.may_number.set()
        again = s.publish("theirs")
        batch = await s.under_way("theirs")
        assert batch.numbered == (8, 0, 0)
        batch.store()
        assert await s.settled(again) is Fate.STORED

    play(test)
