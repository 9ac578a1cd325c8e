"""The due gate's questions to a real broker: no event is due early, and none is forgotten."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.cluster import Cluster
from retrier.broker import Broker, due_ends
from shared.event.record import KafkaPartition, Position
from shared.event.topics import TopicSpec, fixed_specs
from shared.runtime.kafka.clients import running
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import PATIENCE_S

pytestmark = pytest.mark.integration

# The settings of a tier's topic, under a name of this test's own.
SETTINGS = fixed_specs(["30s"])[0].settings


def write(cluster: Cluster, topic: str, partitions: Sequence[int]) -> list[int]:
    """Write a record to each of these Kafka partitions in turn; return the broker's timestamps."""

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


T = TypeVar("T")


def ask(cluster: Cluster, question: Callable[[Broker, LogClient], Awaitable[T]]) -> T:
    """Ask as the retrier does, with its own clients."""
    make_topics(cluster)

    async def run() -> T:
        broker = Broker(cluster.bootstrap_servers)
        async with LogClient(cluster.bootstrap_servers) as log:
            try:
                return await question(broker, log)
            finally:
                await broker.close()

    return asyncio.run(run())


async def due(log: LogClient, topic: str, *, delay_s: float, now_ms: int) -> Position:
    await log.follow([topic])
    delays_s = dict.fromkeys(log.partitions(topic), delay_s)
    return (await due_ends(log, delays_s, now_ms=now_ms))[1]


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


def test_what_is_old_enough_is_due_to_the_millisecond(kafka: Cluster) -> None:
    topic = "due.exact"
    make_clock(kafka, topic)
    stamps = write(kafka, topic, [0, 0, 0])

    async def ends(_: Broker, log: LogClient) -> list[int]:
        times_ms = [stamps[0] - 1, *stamps]
        found = [await due(log, topic, delay_s=7.0, now_ms=at_ms + 7_000) for at_ms in times_ms]
        return [each[KafkaPartition(topic, 0)] for each in found]

    assert ask(kafka, ends) == [0, 1, 2, 3]


def test_an_empty_kafka_partition_has_nothing_due(kafka: Cluster) -> None:
    topic = "due.empty"
    make_clock(kafka, topic)
    (stamp,) = write(kafka, topic, [1])
    found = ask(kafka, lambda _, log: due(log, topic, delay_s=0, now_ms=stamp + 1_000))
    assert found == {(topic, 0): 0, (topic, 1): 1}


@pytest.fixture
def move_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, str], None]]:
    """Return a function that sets the process's clock to another time and zone for a test."""
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
    kafka: Cluster, move_clock: Callable[[int, str], None], step_s: int, zone: str
) -> None:
    """An hour forward or back, as with a wrong daylight saving rule, in two zones."""
    # Long enough for a busy test to ask before it is over, too.
    delay_s = 1.5
    topic = f"due.step.{step_s}.{zone.replace('/', '.')}"
    make_clock(kafka, topic)
    # The broker and its clients experience the step like any machine: without warning.
    true_ns = time.time_ns
    move_clock(step_s, zone)
    (stamp_ms,) = write(kafka, topic, [0])

    async def wait(broker: Broker, log: LogClient) -> int:
        until_s, asked = time.monotonic() + PATIENCE_S, 0
        nothing = {(topic, 0): 0, (topic, 1): 0}
        while await due(log, topic, delay_s=delay_s, now_ms=await broker.now_ms()) == nothing:
            asked += 1
            assert time.monotonic() < until_s, "the event never became due"
        assert asked > 0
        due_at_ms = true_ns() // 1_000_000
        assert abs((await broker.clock())() - due_at_ms) < 5_000
        return due_at_ms

    # The broker runs on this machine: its time is ours without the step.
    late_ms = ask(kafka, wait) - (stamp_ms + round(delay_s * 1_000))
    assert 0 <= late_ms < PATIENCE_S * 1_000 / 2


def test_the_time_lies_between_two_records_of_that_time(kafka: Cluster) -> None:
    topic = "due.time"
    make_clock(kafka, topic)
    before = write(kafka, topic, [0])[0]
    now = ask(kafka, lambda broker, _: broker.now_ms())
    after = write(kafka, topic, [0])[0]
    assert before <= now <= after
