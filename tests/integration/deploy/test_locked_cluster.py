"""Three brokers with a lock know each other: copies are kept, and a killed one catches up."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from shared.event.topic_safety import Copies, TopicState
from shared.event.topics import stream_spec, stream_topic
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.stack_fixtures import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_brokers_with_a_lock_keep_each_others_copies(tmp_path: Path, jars_cache: Path) -> None:
    async def state_of(cluster: Cluster) -> TopicState:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing([stream_spec("copied")], Copies())
            return (await admin.states([stream_topic("copied")]))[stream_topic("copied")]

    def in_sync(cluster: Cluster) -> int:
        # One of the brokers that may be asked is the one that is away.
        with suppress(KafkaUnavailableError):
            return asyncio.run(state_of(cluster)).in_sync_min
        return 0

    folder = tmp_path / "kafka"
    with Cluster(folder=folder, cache=jars_cache, brokers=3, is_secure=True) as cluster:
        state = asyncio.run(state_of(cluster))
        assert (state.replicas_min, state.needed) == (3, 2)
        cluster.child(2).kill()
        wait_until(lambda: in_sync(cluster) == 2, what="one is missed")
        cluster.restart(2)
        wait_until(lambda: in_sync(cluster) == 3, what="it is back")
