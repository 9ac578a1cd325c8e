"""Stored rows are in the log, whole and in order: the fake, and a real Kafka."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from delivery.lanes import outlet as outlet_module
from delivery.lanes.outlet import Outlet
from shared.event.record import RecordOut
from shared.event.topics import OUTCOME_BYTES_MAX, TopicSpec
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.delivery.memory_outlet import MemoryOutlet
from tests.support.kafka.kafka_log import read_all

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Ground:
    """An outlet, a topic of one Kafka partition, and a way to read the topic."""

    outlet: Outlet
    topic: str
    read: Callable[[], Awaitable[Sequence[RecordOut]]]

    def rows(self, *values: bytes) -> Sequence[RecordOut]:
        return [RecordOut(self.topic, b"k", value, (("h", b"v"),)) for value in values]


Opened = Callable[[], AbstractAsyncContextManager[Ground]]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def opened(request: pytest.FixtureRequest) -> Opened:
    if request.param == "fake":
        return fake_ground
    servers = request.getfixturevalue("kafka").bootstrap_servers
    return lambda: kafka_ground(servers)


@asynccontextmanager
async def fake_ground() -> AsyncIterator[Ground]:
    outlet = MemoryOutlet()

    async def read() -> Sequence[RecordOut]:
        return outlet.rows

    yield Ground(outlet, "kept", read)


@asynccontextmanager
async def kafka_ground(servers: str) -> AsyncIterator[Ground]:
    topic, outlet = f"outlet-{uuid.uuid4().hex}", Outlet(servers)
    async with topic_admin(servers) as admin:
        await admin.create_missing([TopicSpec(topic, 1, {})])

    async def read() -> Sequence[RecordOut]:
        return [
            RecordOut(topic, each.key, each.value, each.headers)
            for each in await read_all(servers, topic)
        ]

    try:
        yield Ground(outlet, topic, read)
    finally:
        await outlet.close()


def test_what_is_taken_away_is_said_to_have_no_value(opened: Opened) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), opened() as ground:
            await ground.outlet.store(ground.rows(b"mark"))
            await ground.outlet.take_away(ground.topic, [b"k", b"l"])
            rows = [(row.key, row.value) for row in await ground.read()]
            assert rows == [(b"k", b"mark"), (b"k", None), (b"l", None)]

    asyncio.run(scenario())


def test_what_is_stored_is_there_whole_and_in_order(opened: Opened) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), opened() as ground:
            await ground.outlet.store(ground.rows(b"outcome", b"another"))
            assert await ground.read() == ground.rows(b"outcome", b"another")
            await ground.outlet.store([])
            await ground.outlet.store(ground.rows(b"mark"))
            assert await ground.read() == ground.rows(b"outcome", b"another", b"mark")

    asyncio.run(scenario())


def test_a_producer_whose_numbers_come_to_their_end_is_replaced_and_no_row_is_lost(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet_module, "_RECORDS_MAX", 3)

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), opened() as ground:
            producers = set()
            for number in range(10):
                await ground.outlet.store(ground.rows(b"%d" % number))
                producers.add(id(getattr(ground.outlet, "_producer", None)))
            assert await ground.read() == ground.rows(*(b"%d" % number for number in range(10)))
            assert len(producers) > 1 or isinstance(ground.outlet, MemoryOutlet)

    asyncio.run(scenario())


def test_a_row_that_is_too_large_is_refused_and_the_next_ones_are_not(opened: Opened) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), opened() as ground:
            with pytest.raises(MessageSizeTooLargeError):
                await ground.outlet.store(ground.rows(bytes(OUTCOME_BYTES_MAX + 1)))
            await ground.outlet.store(ground.rows(b"mark"))
            assert await ground.read() == ground.rows(b"mark")

    asyncio.run(scenario())
