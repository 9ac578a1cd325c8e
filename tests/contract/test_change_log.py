"""Every control store keeps each change: one suite, on the fake and on a real Kafka."""

import asyncio
import uuid
from typing import Any

import pytest

from gateway.authors import Author
from gateway.control.changes.log import AskedChanges
from gateway.control.changes.record import Deed
from gateway.control.stores.changes import KafkaControlStore
from shared.config.configuration import Configuration, Stream
from shared.event.topics import fixed_specs
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.control_fixtures import ONE_COPY, Ground, Opened, a_stream, on, store


def test_each_change_is_told_with_who_has_made_it_and_numbered_by_tenant(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        tenant, other = f"t-{uuid.uuid4().hex}", f"t-{uuid.uuid4().hex}"
        by = Author(tenant, "key", "ops")
        stream, theirs = a_stream(tenant=tenant), a_stream(tenant=other)
        grown = Stream(stream.name, tenant=tenant, partition_count=9)
        await store(ground, stream.config_key, stream.to_json(), by=by)
        await store(ground, theirs.config_key, theirs.to_json(), by=Author(other))
        await store(ground, grown.config_key, grown.to_json(), by=by)
        # This store changes nothing.
        await store(ground, grown.config_key, grown.to_json(), by=by)
        await store(ground, grown.config_key, None, by=by)
        await ground.store.tell(Deed(tenant, "stream", stream.name, "redriven", {"n": 3}), by=by)
        page = await ground.changes.page(AskedChanges(count=10, tenant=tenant))
        told = [each.change for each in page.changes]
        assert [(each.number, each.did) for each in told] == [
            *((4, "redriven"), (3, "deleted"), (2, "changed"), (1, "created")),
        ]
        assert {(each.kind, each.name, each.by) for each in told} == {("stream", stream.name, by)}
        made, changed, deleted = told[3], told[2], told[1]
        assert (made.before, changed.before) == (None, made.after)
        assert (deleted.before, deleted.after) == (changed.after, None)
        assert abs(page.changes[0].at_ms - now_ms()) < 60_000
        both = await ground.changes.page(
            AskedChanges(count=1, object=("stream", theirs.name), until_ms=now_ms() + 60_000)
        )
        assert [each.change.tenant for each in both.changes] == [other]

    on(opened, test)


def test_changes_are_paged_and_of_a_time_and_an_object(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        tenant = f"t-{uuid.uuid4().hex}"
        streams = [a_stream(tenant=tenant) for _ in range(2)]
        for count in range(1, 6):
            for stream in streams:
                written = Stream(stream.name, tenant=tenant, partition_count=count)
                await store(ground, written.config_key, written.to_json(), by=Author(tenant))
        before: int | None = None
        numbers: list[int] = []
        for _ in range(4):
            asked = AskedChanges(count=3, tenant=tenant, before=before)
            page = await ground.changes.page(asked)
            numbers += [each.change.number for each in page.changes]
            before = page.older
        assert (numbers, before) == (list(range(10, 0, -1)), None)
        of_one = AskedChanges(count=20, tenant=tenant, object=("stream", streams[0].name))
        found = (await ground.changes.page(of_one)).changes
        assert [each.change.number for each in found] == [9, 7, 5, 3, 1]
        since = AskedChanges(count=20, tenant=tenant, since_ms=found[1].at_ms)
        later = (await ground.changes.page(since)).changes
        assert {10, 9, 8, 7} <= {each.change.number for each in later}
        assert all(each.at_ms >= found[1].at_ms for each in later)
        none = AskedChanges(count=20, tenant=tenant, until_ms=found[-1].at_ms)
        assert (await ground.changes.page(none)).changes == ()

    on(opened, test)


@pytest.mark.integration
def test_one_who_changes_a_lot_lets_others_in_between(kafka: Any) -> None:
    """A tenant with few changes does not wait for another tenant's many changes."""

    async def run() -> None:
        servers = kafka.bootstrap_servers
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs([tier.name for tier in RetrySchedule().tiers]))
        feed = ConfigFeed(servers)
        await feed.start()
        known = KafkaControlStore(servers, feed, ONE_COPY)
        ended: list[str] = []

        async def change(tenant: str) -> None:
            stream = a_stream(tenant=tenant)

            async def judge(_: Configuration) -> bytes:
                return stream.to_json()

            await known.change(stream.config_key, judge, by=Author(tenant))
            ended.append(tenant)

        try:
            crowd = [asyncio.create_task(change("loud")) for _ in range(20)]
            await asyncio.sleep(0)
            await change("quiet")
            assert ended.index("quiet") <= 2
            await asyncio.gather(*crowd)
        finally:
            await known.stop()
            await feed.stop()

    asyncio.run(run())
