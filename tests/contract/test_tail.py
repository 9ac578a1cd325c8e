"""Messages between gateways reach all of them in one order: the fake, and a real Kafka."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from deploy.local.cluster import Cluster
from gateway.intake.events import Event
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import TopicSpec
from shared.runtime.clock import now_ms
from shared.runtime.kafka.tail import Tail
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.kafka_log import write_rows
from tests.support.kafka.memory_topic import ToldTopics

HOUR_MS = 3_600_000


@dataclass
class FollowerView:
    """The records that one follower was shown."""

    records: list[RecordIn] = field(default_factory=list)

    def take(self, records: Sequence[RecordIn]) -> None:
        self.records += records

    async def has(self, count: int) -> list[bytes]:
        async with asyncio.timeout(30):
            while len(self.records) < count:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0.005)
        return [record.value for record in self.records]


@dataclass(frozen=True)
class Ground:
    """A topic, with ways to write and to follow it."""

    write: Callable[[Sequence[bytes]], Awaitable[None]]
    follow: Callable[[FollowerView], AbstractAsyncContextManager[None]]


Opened = Callable[[], Awaitable[Ground]]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    if request.param == "fake":
        yield fake_ground
        return
    servers = request.getfixturevalue("kafka").bootstrap_servers

    async def real_ground() -> Ground:
        return await kafka_ground(servers)

    yield real_ground


async def fake_ground() -> Ground:
    told = ToldTopics()

    async def write(values: Sequence[bytes]) -> None:
        told.publish("t", [Event.of(id="", key=b"k", value=each, headers=()) for each in values])

    @asynccontextmanager
    async def follow(shown: FollowerView) -> AsyncIterator[None]:
        with told.followed({"t": shown.take}):
            yield

    return Ground(write, follow)


async def kafka_ground(servers: str, *, records_max: int = 1_000) -> Ground:
    topic = f"tail-{uuid.uuid4().hex}"
    settings = {"message.timestamp.type": "LogAppendTime"}
    async with topic_admin(servers) as admin:
        await admin.create_missing([TopicSpec(topic, 1, settings)])

    async def write(values: Sequence[bytes]) -> None:
        await write_rows(servers, [RecordOut(topic, b"k", value) for value in values])

    @asynccontextmanager
    async def follow(shown: FollowerView) -> AsyncIterator[None]:
        tail = Tail(servers, topic, back_ms=HOUR_MS, records_max=records_max)
        async with running(tail, shown):
            yield

    return Ground(write, follow)


@asynccontextmanager
async def running(tail: Tail, shown: FollowerView) -> AsyncIterator[None]:
    task = asyncio.create_task(tail.run(shown.take))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_all_are_shown_what_was_there_and_what_comes_in_one_order(opened: Opened) -> None:
    async def scenario() -> None:
        ground, early, late = await opened(), FollowerView(), FollowerView()
        begun_ms = now_ms()
        async with ground.follow(early):
            await ground.write([b"1", b"2"])
            await early.has(2)
            async with ground.follow(late):
                assert await late.has(2) == [b"1", b"2"]
                await asyncio.gather(*(ground.write([b"%d" % n]) for n in range(3, 9)))
                assert await early.has(8) == await late.has(8)
        times_ms = [record.timestamp_ms for record in early.records]
        assert times_ms == sorted(times_ms)
        assert times_ms[0] >= begun_ms - 1_000, "the broker's clock is ours here"
        assert {record.key for record in early.records} == {b"k"}
        assert [record.origin.offset for record in early.records] == [*range(8)]

    asyncio.run(scenario())


@pytest.mark.integration
def test_who_comes_late_reads_no_more_than_it_can_remember(kafka: Cluster) -> None:
    async def scenario() -> None:
        ground = await kafka_ground(kafka.bootstrap_servers, records_max=3)
        await ground.write([b"%d" % n for n in range(10)])
        shown = FollowerView()
        async with ground.follow(shown):
            assert await shown.has(3) == [b"7", b"8", b"9"]

    asyncio.run(scenario())


@pytest.mark.integration
def test_a_topic_that_is_made_later_is_followed_then(kafka: Cluster) -> None:
    async def scenario() -> None:
        servers = kafka.bootstrap_servers
        topic, shown = f"tail-{uuid.uuid4().hex}", FollowerView()
        async with running(Tail(servers, topic, back_ms=HOUR_MS, records_max=10), shown):
            await asyncio.sleep(0)
            async with topic_admin(servers) as admin:
                await admin.create_missing([TopicSpec(topic, 2, {})])
            await write_rows(servers, [RecordOut(topic, b"k", b"1")])
            assert await shown.has(1) == [b"1"]

    asyncio.run(scenario())
