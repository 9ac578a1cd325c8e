"""A change of the configuration that Kafka has lost track of: the store finds out."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from gateway.changes.record import Author
from gateway.control import store
from gateway.control.store import KafkaControlStore
from gateway.problems import Problem
from shared.config.configuration import Configuration, Stream
from shared.event.topic_safety import Copies
from shared.event.topics import CONFIG, fixed_specs
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.only_writer import NOTHING_TOLD, Row, Told, Write, only_writer
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import KafkaUnavailableError

pytestmark = pytest.mark.integration


class Losing:
    """A writer whose first transaction ends in nobody knows what."""

    def __init__(self, *, stores: bool, others: Iterable[Row] = ()) -> None:
        self.begun = 0
        self._stores = stores
        self._others = others

    @asynccontextmanager
    async def writer(self, servers: str, name: str) -> AsyncIterator[Write]:
        self.begun += 1
        async with only_writer(servers, name) as write:
            yield self._losing(write, servers, name) if self.begun == 1 else write

    def _losing(self, write: Write, servers: str, name: str) -> Write:
        async def lose(rows: Iterable[Row], told: Told = NOTHING_TOLD) -> list[Any]:
            if self._stores:
                await write(rows, told)
            for row in self._others:
                # As another gateway would: what comes after waits until all of it can be read.
                async with only_writer(servers, name) as write_else:
                    await write_else([row])
            raise KafkaUnavailableError("Kafka has lost track of it:")

        return lose


def changed(
    kafka: Cluster, losing: Losing, monkeypatch: pytest.MonkeyPatch, wanted: Stream
) -> Stream | None:
    """What is known of a stream after a change."""

    async def judge(_: Configuration) -> bytes:
        return wanted.to_json()

    async def run() -> Stream | None:
        servers = kafka.bootstrap_servers
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs([tier.name for tier in RetrySchedule().tiers]))
        feed = ConfigFeed(servers)
        await feed.start()
        try:
            monkeypatch.setattr(store, "only_writer", losing.writer)
            known = KafkaControlStore(servers, feed, Copies(1, 1))
            await known.change(wanted.config_key, judge, by=Author("default"))
            return feed.configuration.streams.get(wanted.name)
        finally:
            await feed.stop()

    return asyncio.run(run())


@pytest.mark.parametrize(("stores", "begun"), [(True, 2), (False, 3)])
def test_what_was_stored_is_not_stored_again_and_what_was_not_is_tried_again(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch, *, stores: bool, begun: int
) -> None:
    losing, wanted = Losing(stores=stores), Stream(f"lost-{uuid.uuid4().hex}")
    assert changed(kafka, losing, monkeypatch, wanted) == wanted
    assert losing.begun == begun


def test_when_others_have_changed_something_since_nobody_is_told_what_may_be_wrong(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Stream(f"other-{uuid.uuid4().hex}")
    losing = Losing(stores=False, others=[(CONFIG, other.config_key, other.to_json(), ())])
    with pytest.raises(Problem, match="It is not known whether the change was stored"):
        changed(kafka, losing, monkeypatch, Stream(f"lost-{uuid.uuid4().hex}"))
