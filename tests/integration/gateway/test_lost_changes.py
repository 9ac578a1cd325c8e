"""When Kafka has lost track of a change of the configuration, the store finds out its fate."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from gateway.authors import Author
from gateway.control.stores import changes as store
from gateway.control.stores.changes import KafkaControlStore
from gateway.problems import Problem
from shared.config.configuration import Configuration, Stream
from shared.event.record import Position
from shared.event.topic_safety import Copies
from shared.event.topics import CONFIG, fixed_specs
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka import only_writer as only_writers
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.only_writer import (
    NOTHING_TOLD,
    KeptWriter,
    Row,
    Told,
    Write,
    only_writer,
)
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import KafkaUnavailableError

pytestmark = pytest.mark.integration


class Losing:
    """A writer whose first transaction has an unknown end."""

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
                # Like another gateway: later changes wait until all of the transaction can be read.
                async with only_writer(servers, name) as write_else:
                    await write_else([row])
            raise KafkaUnavailableError("Kafka has lost track of the change:")

        return lose


def changed(
    kafka: Cluster, losing: Losing, monkeypatch: pytest.MonkeyPatch, wanted: Stream
) -> Stream | None:
    """Return the stream as the gateway knows it after a change."""

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
            try:
                await known.change(wanted.config_key, judge, by=Author("default"))
            finally:
                await known.stop()
            return feed.configuration.streams.get(wanted.name)
        finally:
            await feed.stop()

    return asyncio.run(run())


@pytest.mark.parametrize(("stores", "begun"), [(True, 2), (False, 2)])
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


class Counting:
    """A counter of opened writers."""

    def __init__(self) -> None:
        self.begun = 0

    @asynccontextmanager
    async def writer(self, servers: str, name: str) -> AsyncIterator[Write]:
        self.begun += 1
        async with only_writer(servers, name) as write:
            yield write


def test_a_gateway_keeps_its_writer_until_another_one_writes(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, servers = Counting(), kafka.bootstrap_servers
    monkeypatch.setattr(store, "only_writer", counting.writer)
    wanted = [Stream(f"turns-{number}-{uuid.uuid4().hex}") for number in range(8)]
    # The number of the gateway that writes, and of the writers opened so far.
    turns = [(0, 1), (0, 1), (0, 1), (1, 2), (1, 2), (0, 3), (1, 4), (1, 4)]

    async def run() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs([tier.name for tier in RetrySchedule().tiers]))
        async with AsyncExitStack() as ends:
            gateways = []
            for _ in range(2):
                feed = ConfigFeed(servers)
                await feed.start()
                ends.push_async_callback(feed.stop)
                known = KafkaControlStore(servers, feed, Copies(1, 1))
                ends.push_async_callback(known.stop)
                gateways.append((known, feed))
            for stream, (number, begun) in zip(wanted, turns, strict=True):

                async def judge(newest: Configuration, new: Stream = stream) -> bytes:
                    # Every earlier change is known.
                    before = wanted[: wanted.index(new)]
                    assert [each.name for each in before if each.name not in newest.streams] == []
                    return new.to_json()

                await gateways[number][0].change(stream.config_key, judge, by=Author("default"))
                assert counting.begun == begun
            for _, feed in gateways:
                newest = await feed.newest()
                assert {each.name for each in wanted} <= newest.streams.keys()

    asyncio.run(run())


def test_an_idle_writer_is_not_kept(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    counting, servers = Counting(), kafka.bootstrap_servers

    async def run() -> None:
        kept = KeptWriter(lambda: counting.writer(servers, f"idle-{uuid.uuid4().hex}"))
        for begun in (1, 1):
            async with kept.use():
                assert counting.begun == begun
        monkeypatch.setattr(only_writers, "_IDLE_S_MAX", 0.0)
        async with kept.use():
            assert counting.begun == 2
        with pytest.raises(ZeroDivisionError):
            async with kept.use():
                raise ZeroDivisionError
        assert kept.kept is None

    asyncio.run(run())


def test_a_change_that_could_not_be_read_back_leaves_no_writer(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change would be judged without the unread one, which Kafka shows only later."""
    servers, begun, written = kafka.bootstrap_servers, list[str](), asyncio.Event()
    first, second = (Stream(f"unread-{number}-{uuid.uuid4().hex}") for number in range(2))

    @asynccontextmanager
    async def writer(servers: str, name: str) -> AsyncIterator[Write]:
        begun.append(name)

        async def write_and_say(rows: Iterable[Row], told: Told = NOTHING_TOLD) -> list[Any]:
            reports = await write(rows, told)
            written.set()
            return reports

        async with only_writer(servers, name) as write:
            yield write_and_say

    async def run() -> None:
        feed = ConfigFeed(servers)
        await feed.start()
        known, at = KafkaControlStore(servers, feed, Copies(1, 1)), feed.at

        async def put(stream: Stream) -> None:
            async def judge(_: Configuration) -> bytes:
                return stream.to_json()

            await known.change(stream.config_key, judge, by=Author("default"))

        async def hang_once_written(position: Position) -> Configuration:
            if written.is_set():
                await asyncio.Event().wait()
            return await at(position)

        try:
            monkeypatch.setattr(feed, "at", hang_once_written)
            changing = asyncio.create_task(put(first))
            await written.wait()
            await asyncio.sleep(0)
            changing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await changing
            monkeypatch.setattr(feed, "at", at)
            await put(second)
            assert len(begun) == 2
        finally:
            await known.stop()
            await feed.stop()

    monkeypatch.setattr(store, "only_writer", writer)
    asyncio.run(run())
