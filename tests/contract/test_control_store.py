"""The contract of control stores: one suite, on the fake and on a real Kafka."""

import asyncio
import uuid
from collections.abc import Iterable
from typing import Any

import pytest

from gateway.control.stores.changes import KafkaControlStore
from gateway.problems import Problem
from shared.config.configuration import (
    REMOVED_KEPT_MS,
    Configuration,
    RemovedDestination,
    RemovedStream,
    Stream,
)
from shared.config.destination import Destination
from shared.config.pipeline_state import PipelineState
from shared.config.table import Table
from shared.event.times import DAY_MS
from shared.event.topic_safety import Copies
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.reader import KafkaReader
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.control_fixtures import SOMEBODY, Ground, Opened, a_stream, on, store

# A change is promised to take effect within 2 s; the rest is for a busy machine.
LIVE_S = 20.0


async def seen(ground: Ground, name: str, stream: Stream | None) -> None:
    """Wait until a gateway knows this version of the stream, or no longer knows it."""
    async with asyncio.timeout(LIVE_S):
        while ground.config.configuration.streams.get(name) != stream:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


def test_what_is_written_is_followed_and_the_last_word_counts(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream(partition_count=2)
        await store(ground, stream.config_key, stream.to_json())
        await seen(ground, stream.name, stream)
        changed = Stream(stream.name, partition_count=3)
        await store(ground, changed.config_key, changed.to_json())
        await seen(ground, stream.name, changed)
        assert ground.config.problem is None

    on(opened, test)


def test_whoever_wrote_sees_it_at_once(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream()
        for count in range(1, 31):
            written = Stream(stream.name, partition_count=count)
            await store(ground, stream.config_key, written.to_json())
            assert ground.config.configuration.streams.get(stream.name) == written

    on(opened, test)


def test_another_gateway_sees_it_once_it_has_caught_up(opened: Opened) -> None:
    async def test(ground: Ground, other: Ground) -> None:
        stream = a_stream()
        for count in range(1, 11):
            written = Stream(stream.name, partition_count=count)
            await store(ground, stream.config_key, written.to_json())
            await other.store.catch_up()
            assert other.config.configuration.streams.get(stream.name) == written

    async def run() -> None:
        async with opened() as ground, opened() as other:
            await test(ground, other)

    asyncio.run(run())


def test_many_who_catch_up_at_once_share_few_questions(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers, signed in or not, must not make others wait in line."""
    asked = 0
    ends = KafkaReader.ends

    async def counted(reader: KafkaReader, topics: Iterable[str]) -> Any:
        nonlocal asked
        asked += 1
        return await ends(reader, topics)

    async def test(ground: Ground) -> None:
        stream = a_stream()
        await store(ground, stream.config_key, stream.to_json())
        monkeypatch.setattr(KafkaReader, "ends", counted)
        await asyncio.gather(*(ground.store.catch_up() for _ in range(500)))
        assert ground.config.configuration.streams.get(stream.name) == stream
        assert asked <= 2

    on(opened, test)


def test_what_is_taken_away_is_gone(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream()
        key, value = stream.config_key, stream.to_json()
        await store(ground, key, value)
        await seen(ground, stream.name, stream)
        await store(ground, key, None)
        await seen(ground, stream.name, None)

    on(opened, test)


def test_a_change_is_judged_on_all_that_was_stored_before(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream()

        async def grow(configuration: Configuration) -> bytes:
            newest = configuration.streams.get(stream.name, stream)
            return Stream(stream.name, partition_count=newest.partition_count + 1).to_json()

        await asyncio.gather(
            *(ground.store.change(stream.config_key, grow, by=SOMEBODY) for _ in range(5))
        )
        known = ground.config.configuration.streams[stream.name]
        assert known.partition_count == stream.partition_count + 5

    on(opened, test)


def test_of_two_gateways_that_are_asked_for_a_free_name_at_once_one_gives_it(
    opened: Opened,
) -> None:
    """The second gateway reads the first one's write before it stores anything of its own."""

    async def put(ground: Ground, wanted: Stream) -> bool:
        async def judge(configuration: Configuration) -> bytes:
            owned = configuration.streams.get(wanted.name, wanted)
            if owned.tenant != wanted.tenant:
                raise Problem("stream_in_use", "No.")
            return wanted.to_json()

        try:
            await ground.store.change(wanted.config_key, judge, by=SOMEBODY)
        except Problem:
            return False
        return True

    async def run() -> None:
        async with opened() as one, opened() as other:
            for _ in range(3):
                name = a_stream().name
                asks = [(one, Stream(name, tenant="acme")), (other, Stream(name, tenant="bravo"))]
                won = await asyncio.gather(*(put(ground, wanted) for ground, wanted in asks))
                assert sorted(won) == [False, True]
                (owner,) = (wanted for is_won, (_, wanted) in zip(won, asks, strict=True) if is_won)
                await seen(one, name, owner)
                await seen(other, name, owner)

    asyncio.run(run())


def test_a_removed_stream_is_held_as_long_as_kafka_may_keep_its_events(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream(partition_count=1)
        await ground.store.make_topic(stream)
        gone = RemovedStream(stream.name, stream.tenant, 1, 17)
        await store(ground, gone.config_key, gone.to_json())
        await seen(ground, stream.name, None)
        # Kafka's segments cover a week by default.
        reserved_ms = await ground.store.reserved_ms(stream.name)
        assert reserved_ms is not None
        assert reserved_ms > (4 + 30) * DAY_MS
        assert ground.config.configuration.removed_streams[stream.name] == gone

    on(opened, test)


def test_what_was_removed_long_ago_is_forgotten_with_the_next_change(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream()
        at_ms = now_ms() - REMOVED_KEPT_MS
        old = RemovedDestination(stream.name, "old", stream.tenant, at_ms - 1)
        new = RemovedDestination(stream.name, "new", stream.tenant, at_ms + 3_600_000)
        again = Destination(stream.name, "old", "https://1.1.1.1/")
        for gone in (old, new):
            await store(ground, gone.config_key, gone.to_json())
            assert gone.id in ground.config.configuration.removed_destinations
        # The earlier removal does not affect a recreated destination.
        await store(ground, again.config_key, again.to_json())
        assert ground.config.configuration.destinations[again.id] == again
        await store(ground, old.config_key, old.to_json())
        await store(ground, stream.config_key, stream.to_json())
        removed = ground.config.configuration.removed_destinations
        assert (old.id in removed, new.id in removed) == (False, True)
        assert ground.config.configuration.streams[stream.name] == stream

    on(opened, test)


def test_what_is_refused_is_not_stored(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream()

        async def refuse(_: Configuration) -> bytes:
            raise Problem("changed_meanwhile", "No.")

        with pytest.raises(Problem):
            await ground.store.change(stream.config_key, refuse, by=SOMEBODY)
        assert stream.name not in ground.config.configuration.streams

    on(opened, test)


def test_what_is_judged_of_pipelines_is_heard(opened: Opened) -> None:
    name, running = f"control-{uuid.uuid4().hex}", PipelineState("f1", "running")
    refused = PipelineState("f2", "refused", "no such column", "/steps/0/where", 5)

    async def test(ground: Ground) -> None:
        await ground.tell(name, running)
        # An existing state is returned without a wait.
        assert (await ground.store.pipeline_states())[name] == running
        for state in (refused, None):
            await ground.tell(name, state)
            async with asyncio.timeout(LIVE_S):
                while (await ground.store.pipeline_states()).get(name) != state:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)

    on(opened, test)


def test_a_topic_is_made_and_grows_but_loses_no_partition(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream(partition_count=2)
        await ground.store.make_topic(stream)
        await ground.store.make_topic(Stream(stream.name, partition_count=3))
        with pytest.raises(Problem) as caught:
            await ground.store.make_topic(stream)
        assert caught.value.code == "bad_object"

    on(opened, test)


def test_a_stream_is_empty_until_it_has_an_event(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream(partition_count=2)
        assert await ground.store.is_empty(stream.name)
        await ground.store.make_topic(stream)
        assert await ground.store.is_empty(stream.name)
        await ground.add_event(stream.name)
        assert not await ground.store.is_empty(stream.name)

    on(opened, test)


def test_of_a_stream_that_is_all_there_nothing_begins_late(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        stream = a_stream()
        await ground.store.make_topic(stream)
        await ground.add_event(stream.name)
        assert await ground.store.begins_ms(stream.name) == []

    on(opened, test)


@pytest.mark.integration
def test_no_topic_is_made_with_fewer_copies_than_there_are_to_be(kafka: Any) -> None:
    """With one broker of three, the request is refused, and nothing is left behind."""

    async def run() -> None:
        servers, stream = kafka.bootstrap_servers, a_stream()
        store = KafkaControlStore(servers, ConfigFeed(servers), Copies())
        with pytest.raises(Problem, match="start those that are down") as caught:
            await store.make_topic(stream)
        assert (caught.value.status, caught.value.code) == (503, "too_few_brokers")
        async with topic_admin(servers) as admin:
            assert stream_topic(stream.name) not in await admin.names()

    asyncio.run(run())


def test_a_topic_of_our_own_is_made_once_and_deleted(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        table = Table(f"control-{uuid.uuid4().hex}")
        for _ in range(2):
            await ground.store.make_own(table.spec)
        for _ in range(2):
            await ground.store.drop_own(table.topic)

    on(opened, test)
