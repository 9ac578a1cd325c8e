"""The due gate's questions to a real broker: nothing is due early, nothing is forgotten."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from aiokafka import AIOKafkaProducer

import retrier.broker
from deploy.local.cluster import Cluster
from retrier.broker import Broker
from retrier.due_gate import DueGate
from shared.event.record import KafkaPartition
from shared.event.topics import TopicSpec, fixed_specs
from shared.runtime.kafka.clients import running
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.stack_fixtures import PATIENCE_S

pytestmark = pytest.mark.integration

# As a tier's topic is made, under a name of this test's own.
SETTINGS = fixed_specs(["30s"])[0].settings


def write(cluster: Cluster, topic: str, partitions: Sequence[int]) -> list[int]:
    """One record in each of the Kafka partitions given, in turn; the broker's times of them."""

    async def run() -> list[int]:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing([TopicSpec(topic, 2, SETTINGS)])
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        async with running(producer, cluster.bootstrap_servers):
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

    return asyncio.run(run())


async def _probe(producer: AIOKafkaProducer, topic: str) -> int:
    sent = await producer.send_and_wait(f"{topic}-clock", b"", partition=0)
    stamp: int = sent.timestamp
    return stamp


@pytest.fixture
def broker(kafka: Cluster) -> Iterator[Broker]:
    """The process's own, so that also what a gate asks of Kafka ends with its test."""
    make_topics(kafka)
    opened = retrier.broker.broker(kafka.bootstrap_servers)
    yield opened
    retrier.broker.broker.cache_clear()
    if "_reader" in vars(opened):
        opened._runner.run(opened._reader.close())
    if opened._producer is not None:
        opened._runner.run(opened._producer.stop())
    opened._runner.close()


def make_topics(cluster: Cluster) -> None:
    async def run() -> None:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing(fixed_specs(["30s"]))

    asyncio.run(run())


def make_clock(cluster: Cluster, topic: str) -> None:
    async def run() -> None:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing([TopicSpec(f"{topic}-clock", 1, SETTINGS)])

    asyncio.run(run())


def test_what_is_old_enough_is_due_to_the_millisecond(kafka: Cluster, broker: Broker) -> None:
    topic = "due.exact"
    make_clock(kafka, topic)
    first, second, third = write(kafka, topic, [0, 0, 0])
    ends = [
        broker.due_ends({topic: by})[KafkaPartition(topic, 0)]
        for by in (first - 1, first, second, third)
    ]
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


@pytest.fixture
def move_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, str], None]]:
    """Set the clock of the process to another time and another zone for a test."""
    true_s, true_ns = time.time, time.time_ns

    def move(step_s: int, zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        monkeypatch.setattr(time, "time", lambda: true_s() + step_s)
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() + step_s * 1_000_000_000)

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia"])
@pytest.mark.parametrize("step_s", [-3_600, 0, 3_600])
def test_no_step_of_our_own_clock_makes_an_event_early_or_late(
    kafka: Cluster, broker: Broker, move_clock: Callable[[int, str], None], step_s: int, zone: str
) -> None:
    """An hour forth or back, as a wrong daylight saving rule would have it, in two zones."""
    delay_s = 0.5
    topic = f"due.step.{step_s}.{zone.replace('/', '.')}"
    make_clock(kafka, topic)
    gate = DueGate(
        bootstrap_servers=kafka.bootstrap_servers,
        delays_s={topic: delay_s},
        events_max=100,
        begin={},
    )
    # The broker and its clients live through the step as a machine does: without being asked.
    true_ns = time.time_ns
    move_clock(step_s, zone)
    (stamp_ms,) = write(kafka, topic, [0])
    start = {topic: {"0": 0, "1": 0}}
    until_s = time.monotonic() + PATIENCE_S
    asked = 0
    while gate.latestOffset(start, None) == start:
        asked += 1
        assert time.monotonic() < until_s, "it never became due"
    assert asked > 0
    # The broker is this machine: its time is ours without the step.
    late_ms = true_ns() // 1_000_000 - (stamp_ms + round(delay_s * 1_000))
    assert 0 <= late_ms < PATIENCE_S * 1_000 / 2
    clock = broker.clock()
    assert abs(clock() - true_ns() // 1_000_000) < 5_000


def test_the_time_lies_between_two_records_of_that_time(kafka: Cluster, broker: Broker) -> None:
    topic = "due.time"
    make_clock(kafka, topic)
    before = write(kafka, topic, [0])[0]
    now = broker.now_ms()
    after = write(kafka, topic, [0])[0]
    assert before <= now <= after
