"""Control stores for one suite of tests: the fake, and the one on a real Kafka."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.authors import Author
from gateway.callers import ConfigSource
from gateway.control.changes.log import ChangeLog, KafkaChanges
from gateway.control.stores.changes import ControlStore, KafkaControlStore
from gateway.intake.events import Event
from shared.config.configuration import Configuration, Stream
from shared.config.pipeline_state import PipelineState
from shared.event.record import RecordOut
from shared.event.topic_safety import Copies
from shared.event.topics import PIPELINES, fixed_specs, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.fake_store import FakeStore
from tests.support.gateway.gateway_fixtures import FixedConfig
from tests.support.kafka.kafka_log import write_rows

# The clusters of tests have one broker.
ONE_COPY = Copies(1, 1)
SOMEBODY = Author("default")


@dataclass(frozen=True)
class Ground:
    """A store, and the configuration in a gateway that follows it."""

    store: ControlStore
    config: ConfigSource
    # Writes the state of a pipeline, like the process that runs it; None removes it.
    tell: Callable[[str, PipelineState | None], Awaitable[None]]
    # Puts an event into a stream.
    add_event: Callable[[str], Awaitable[object]]
    # The changes, and their authors.
    changes: ChangeLog


Opened = Callable[[], AbstractAsyncContextManager[Ground]]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    if request.param == "fake":
        config = FixedConfig()

        @asynccontextmanager
        async def fake_ground() -> Any:
            fake = FakeStore(config, FakePublisher([]))

            async def tell(name: str, state: PipelineState | None) -> None:
                fake.states = {name: state} if state else {}

            async def add_event(stream: str) -> None:
                event = Event.of(id="e", key=None, value=b"{}", headers=())
                await fake.publisher.publish(stream_topic(stream), [event])

            yield Ground(fake, config, tell, add_event, fake)

        yield fake_ground
        return
    servers = request.getfixturevalue("kafka").bootstrap_servers

    @asynccontextmanager
    async def real_ground() -> Any:
        async with topic_admin(servers) as admin:
            tiers = [tier.name for tier in RetrySchedule().tiers]
            await admin.create_missing(fixed_specs(tiers))
        feed = ConfigFeed(servers)
        await feed.start()
        real = KafkaControlStore(servers, feed, ONE_COPY)

        async def tell(name: str, state: PipelineState | None) -> None:
            value = state.to_json() if state else b""
            await write_rows(servers, [RecordOut(PIPELINES, name.encode(), value)])

        async def add_event(stream: str) -> None:
            await write_rows(servers, [RecordOut(stream_topic(stream), None, b"{}")])

        try:
            changes = KafkaChanges(servers)
            yield Ground(real, feed, tell, add_event, changes)
        finally:
            await real.stop()
            await feed.stop()

    yield real_ground


def on(opened: Opened, test: Callable[[Ground], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened() as ground:
            await test(ground)

    asyncio.run(run())


async def store(ground: Ground, key: bytes, value: bytes | None, *, by: Author = SOMEBODY) -> None:
    async def judge(_: Configuration) -> bytes | None:
        return value

    await ground.store.change(key, judge, by=by)


def a_stream(**settings: Any) -> Stream:
    return Stream(f"control-{uuid.uuid4().hex}", **settings)
