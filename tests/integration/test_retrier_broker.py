"""The due gate's questions to a real broker: nothing is due early, nothing is forgotten."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.cluster import Cluster
from retrier.broker import Broker
from shared.runtime.topic_admin import topic_admin
from shared.topics import TopicSpec, fixed_specs

pytestmark = pytest.mark.integration

# As a tier's topic is made, under a name of this test's own.
SETTINGS = fixed_specs(["30s"])[0].settings


def write(cluster: Cluster, topic: str, partitions: Sequence[int]) -> list[int]:
    """One record in each of the Kafka partitions given, in turn; the broker's times of them."""

    async def run() -> list[int]:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing([TopicSpec(topic, 2, SETTINGS)])
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        await producer.start()
        try:
            stamps = []
            for number, partition in enumerate(partitions):
                sent = await producer.send_and_wait(
                    topic, str(number).encode(), partition=partition
                )
                stamps.append(sent.timestamp)
                # The broker's clock counts milliseconds; the next record must get a later one.
                while (await _probe(producer, topic)) <= sent.timestamp:
                    pass
            return stamps
        finally:
            await producer.stop()

    return asyncio.run(run())


async def _probe(producer: AIOKafkaProducer, topic: str) -> int:
    sent = await producer.send_and_wait(f"{topic}-clock", b"", partition=0)
    stamp: int = sent.timestamp
    return stamp


@pytest.fixture
def broker(kafka: Cluster) -> Iterator[Broker]:
    with contextlib.closing(Broker(kafka.bootstrap_servers)) as opened:
        yield opened


def make_clock(cluster: Cluster, topic: str) -> None:
    async def run() -> None:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing([TopicSpec(f"{topic}-clock", 1, SETTINGS)])

    asyncio.run(run())


def test_what_is_old_enough_is_due_to_the_millisecond(kafka: Cluster, broker: Broker) -> None:
    topic = "due.exact"
    make_clock(kafka, topic)
    first, second, third = write(kafka, topic, [0, 0, 0])
    ends = [broker.due_ends({topic: by})[topic, 0] for by in (first - 1, first, second, third)]
    assert ends == [0, 1, 2, 3]


def test_an_empty_kafka_partition_has_nothing_due(kafka: Cluster, broker: Broker) -> None:
    topic = "due.empty"
    make_clock(kafka, topic)
    (stamp,) = write(kafka, topic, [1])
    assert broker.due_ends({topic: stamp + 1_000}) == {(topic, 0): 0, (topic, 1): 1}
    assert broker.starts([topic]) == {(topic, 0): 0, (topic, 1): 0}


def test_it_reads_exactly_the_range_it_was_given(kafka: Cluster, broker: Broker) -> None:
    topic = "due.range"
    make_clock(kafka, topic)
    write(kafka, topic, [0] * 9)
    read = [record for records in broker.read(topic, 0, 2, 7) for record in records]
    assert [record.origin.offset for record in read] == [2, 3, 4, 5, 6]
    assert [record.value for record in read] == [b"2", b"3", b"4", b"5", b"6"]
    again = [record for records in broker.read(topic, 0, 0, 1) for record in records]
    assert [record.value for record in again] == [b"0"]
