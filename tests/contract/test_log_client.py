"""Ends, starts and ranges of many Kafka partitions in one request: the fake, and a real Kafka."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError

from deploy.local.cluster import Cluster
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import TopicSpec
from shared.runtime.kafka.log_client import FetchAnswer, LogClient
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.delivery.memory_log import MemoryLog
from tests.support.kafka.kafka_log import write_rows

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Ground:
    """A topic of two Kafka partitions, and a way to fill and to shorten its first one."""

    log: LogClient
    topic: str
    write: Callable[[Sequence[bytes]], Awaitable[None]]
    forget: Callable[[int], Awaitable[None]]
    # Adds a third Kafka partition.
    grow: Callable[[], Awaitable[None]]

    @property
    def first(self) -> KafkaPartition:
        return KafkaPartition(self.topic, 0)

    @property
    def second(self) -> KafkaPartition:
        return KafkaPartition(self.topic, 1)

    async def fetch(self, where: KafkaPartition, at: int) -> FetchAnswer:
        """Fetch from the leader of the Kafka partition."""
        (node,) = self.log.leaders([self.first]).values()
        return (await self.log.fetch(node, {where: at}, wait_ms=100))[where]


Opened = Callable[[], AbstractAsyncContextManager[Ground]]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def opened(request: pytest.FixtureRequest) -> Opened:
    if request.param == "fake":
        return fake_ground
    servers = request.getfixturevalue("kafka").bootstrap_servers
    return lambda: kafka_ground(servers)


@asynccontextmanager
async def fake_ground() -> AsyncIterator[Ground]:
    log, topic = MemoryLog(), "hifi.stream.kept"
    log.make(topic, 2)
    where = KafkaPartition(topic, 0)

    async def write(values: Sequence[bytes]) -> None:
        first = len(log.logs[where]) + log.begins[where]
        log.write(
            RecordIn(Origin(*where, first + n), 1_000, b"k", value, (("h", b"v"),))
            for n, value in enumerate(values)
        )

    async def forget(upto: int) -> None:
        log.forget(where, upto)

    async def grow() -> None:
        log.logs[KafkaPartition(topic, 2)] = []

    yield Ground(log, topic, write, forget, grow)


@asynccontextmanager
async def kafka_ground(servers: str) -> AsyncIterator[Ground]:
    topic = f"log-{uuid.uuid4().hex}"
    async with topic_admin(servers) as admin:
        await admin.create_missing([TopicSpec(topic, 2, {"max.message.bytes": "8000000"})])

    async def write(values: Sequence[bytes]) -> None:
        rows = [RecordOut(topic, b"k", value, (("h", b"v"),)) for value in values]
        await write_rows(servers, rows, partition_of=lambda _, __: 0)

    async def forget(upto: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(upto)})
        finally:
            await admin.close()

    async def grow() -> None:
        async with topic_admin(servers) as admin:
            await admin.grow(topic, 3)

    async with LogClient(servers) as log:
        await log.follow([topic])
        ground = Ground(log, topic, write, forget, grow)
        async with asyncio.timeout(PATIENCE_S):
            # A topic has leaders a moment after its creation.
            while len(await log.ends([ground.first, ground.second])) < 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        yield ground


def test_ends_and_starts_are_said_of_those_that_are_known(opened: Opened) -> None:
    async def scenario() -> None:
        async with opened() as ground:
            unknown = KafkaPartition(f"{ground.topic}-never", 0)
            await ground.write([b"0", b"1", b"2"])
            places = [ground.first, unknown, ground.second]
            assert await ground.log.ends(places) == {ground.first: 3, ground.second: 0}
            assert await ground.log.starts(places) == {ground.first: 0, ground.second: 0}
            assert ground.log.partitions(ground.topic) == [ground.first, ground.second]
            assert ground.log.partitions(unknown.topic) == []
            assert ground.log.leaders(places).keys() == {ground.first, ground.second}
            await ground.forget(2)
            assert await ground.log.starts([ground.first]) == {ground.first: 2}
            assert await ground.log.ends([ground.first]) == {ground.first: 3}

    asyncio.run(scenario())


def test_what_is_asked_again_and_again_is_answered_anew(opened: Opened) -> None:
    async def scenario() -> None:
        async with opened() as ground:
            log, places = ground.log, (ground.first, ground.second)
            assert await log.ends(places) == {ground.first: 0, ground.second: 0}
            await ground.write([b"0", b"1"])
            assert await log.ends(places) == {ground.first: 2, ground.second: 0}
            before = log.told_count
            assert log.told_count == before, "nothing was reported"
            await ground.grow()
            async with asyncio.timeout(PATIENCE_S):
                while len(log.partitions(ground.topic)) < 3:
                    await log.ask_leaders([ground.topic])
                    await asyncio.sleep(0.05)
            assert log.told_count != before
            assert await log.ends(places) == {ground.first: 2, ground.second: 0}

    asyncio.run(scenario())


def test_a_time_is_the_first_offset_that_is_not_older_or_the_end(opened: Opened) -> None:
    async def scenario() -> None:
        async with opened() as ground:
            await ground.write([b"0", b"1"])
            places = [ground.first, ground.second]
            unknown = KafkaPartition(f"{ground.topic}-never", 0)
            first = await ground.log.first_at(dict.fromkeys([*places, unknown], 0))
            assert first == {ground.first: 0, ground.second: None}
            early = await ground.log.offsets_at(places, 0)
            assert early == {ground.first: 0, ground.second: 0}
            late = await ground.log.offsets_at(places, 2**42)
            assert late == {ground.first: 2, ground.second: 0}

    asyncio.run(scenario())


def test_a_fetch_gives_records_from_an_offset_on_and_where_to_go_on(opened: Opened) -> None:
    async def scenario() -> None:
        async with opened() as ground:
            await ground.write([b"0", b"1", b"2"])
            answer = await ground.fetch(ground.first, 1)
            assert [(each.offset, each.value) for each in answer.records] == [(1, b"1"), (2, b"2")]
            assert (answer.reached, answer.error) == (3, None)
            assert list(answer.records[0].headers) == [("h", b"v")]
            assert answer.records[0].key == b"k"
            at_end = await ground.fetch(ground.first, 3)
            assert (list(at_end.records), at_end.reached, at_end.error) == ([], 3, None)

    asyncio.run(scenario())


def test_what_is_wrong_with_one_is_said_of_that_one(opened: Opened) -> None:
    async def scenario() -> None:
        async with opened() as ground:
            await ground.write([b"0", b"1", b"2"])
            await ground.forget(2)
            unknown = KafkaPartition(f"{ground.topic}-never", 0)
            (node,) = ground.log.leaders([ground.first]).values()
            for at in (0, 9):
                position = {ground.first: at, unknown: 0, ground.second: 0}
                answers = await ground.log.fetch(node, position, wait_ms=100)
                assert isinstance(answers[ground.first].error, OffsetOutOfRangeError)
                assert isinstance(answers[unknown].error, UnknownTopicOrPartitionError)
                assert answers[ground.second].error is None

    asyncio.run(scenario())


def test_a_fetch_that_finds_nothing_waits_for_what_comes(opened: Opened) -> None:
    async def scenario() -> None:
        async with opened() as ground:
            (node,) = ground.log.leaders([ground.first]).values()
            position = {ground.first: 0, ground.second: 0}
            waiting = asyncio.create_task(ground.log.fetch(node, position, wait_ms=30_000))
            await asyncio.sleep(0)
            await ground.write([b"0"])
            async with asyncio.timeout(PATIENCE_S / 3):
                answers = await waiting
            assert [each.value for each in answers[ground.first].records] == [b"0"]

    asyncio.run(scenario())


def test_what_waits_on_another_connection_holds_up_no_fetch(opened: Opened) -> None:
    """A broker answers the requests of one connection one after the other."""

    async def scenario() -> None:
        async with opened() as ground:
            await ground.write([b"0"])
            (node,) = ground.log.leaders([ground.first]).values()
            for connection in (1, 0):
                first = {ground.first: 0}
                await ground.log.fetch(node, first, wait_ms=0, connection=connection)
            position = {ground.second: 0}
            waiting = asyncio.create_task(
                ground.log.fetch(node, position, wait_ms=20_000, connection=1)
            )
            # Let its request leave before the other one.
            await asyncio.sleep(0)
            answer = await ground.fetch(ground.first, 0)
            assert [each.value for each in answer.records] == [b"0"]
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(scenario())


@pytest.mark.integration
def test_a_record_that_is_larger_than_an_answer_comes_whole(kafka: Cluster) -> None:
    async def scenario() -> None:
        async with kafka_ground(kafka.bootstrap_servers) as ground:
            huge = bytes(1_900_000)
            await ground.write([huge, b"1"])
            answer = await ground.fetch(ground.first, 0)
            assert answer.records[0].value == huge
            (node,) = ground.log.leaders([ground.first]).values()
            one = await ground.log.fetch(node, {ground.first: 0}, wait_ms=100, bytes_max=1_000)
            assert (len(one[ground.first].records), one[ground.first].reached) == (1, 1)

    asyncio.run(scenario())


@pytest.mark.integration
def test_what_a_transaction_took_back_is_left_out_and_passed(kafka: Cluster) -> None:
    async def scenario() -> None:
        servers = kafka.bootstrap_servers
        async with kafka_ground(servers) as ground:
            producer = AIOKafkaProducer(
                bootstrap_servers=servers, transactional_id=f"log-{uuid.uuid4().hex}"
            )
            async with producer:
                await producer.begin_transaction()
                await producer.send_and_wait(ground.topic, b"taken back", partition=0)
                await producer.abort_transaction()
                await producer.begin_transaction()
                await producer.send_and_wait(ground.topic, b"kept", partition=0)
                await producer.commit_transaction()
            # Two records, and the marker of each transaction.
            async with asyncio.timeout(PATIENCE_S):
                while (await ground.log.ends([ground.first]))[ground.first] < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            seen, at = [], 0
            while at < 4:
                answer = await ground.fetch(ground.first, at)
                assert answer.error is None
                assert answer.reached > at, "otherwise it would repeat the same request forever"
                seen += [each.value for each in answer.records]
                at = answer.reached
            assert seen == [b"kept"]

    asyncio.run(scenario())
