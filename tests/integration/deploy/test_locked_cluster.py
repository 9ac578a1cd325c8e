"""Three brokers with access control trust each other, keep copies, and catch up after a kill."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from shared.event.rights import OPERATOR, RIGHTS
from shared.event.topic_safety import Copies, TopicState
from shared.event.topics import LANES, stream_spec, stream_topic
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.deploy.cli_runs import Run
from tests.support.deploy.stack_fixtures import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]

ONE_COPY = {"HIFI_KAFKA_REPLICAS": "1", "HIFI_KAFKA_IN_SYNC_MIN": "1"}
# Print the topics that Kafka shows to a user.
SEE = """
import asyncio, sys
from shared.runtime.kafka.topic_admin import topic_admin
async def see():
    async with topic_admin(sys.argv[1]) as admin:
        print(*await admin.names())
asyncio.run(see())
"""


def test_brokers_with_a_lock_keep_each_others_copies(tmp_path: Path, jars_cache: Path) -> None:
    async def state_of(cluster: Cluster) -> TopicState:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing([stream_spec("copied")], Copies())
            return (await admin.states([stream_topic("copied")]))[stream_topic("copied")]

    def in_sync(cluster: Cluster) -> int:
        # The broker that is asked may be the one that is away.
        with suppress(KafkaUnavailableError):
            return asyncio.run(state_of(cluster)).in_sync_min
        return 0

    folder = tmp_path / "kafka"
    with Cluster(folder=folder, cache=jars_cache, brokers=3, is_secure=True) as cluster:
        state = asyncio.run(state_of(cluster))
        assert (state.replicas_min, state.needed) == (3, 2)
        cluster.child(2).kill()
        wait_until(lambda: in_sync(cluster) == 2, what="one broker is missing")
        cluster.restart(2)
        wait_until(lambda: in_sync(cluster) == 3, what="the broker is back")


def test_the_operator_gives_each_user_its_rights(
    tmp_path: Path, jars_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def grants_nothing(_: Cluster) -> None:
        pass

    # As in a Kafka of one's own, in which only the operator has permissions so far.
    monkeypatch.setattr(Cluster, "_grant", grants_nothing)
    with Cluster(folder=tmp_path / "kafka", cache=jars_cache, is_secure=True) as cluster:
        lock = cluster.lock
        assert lock is not None
        operator = {**lock.variables(OPERATOR), **ONE_COPY}

        def seen_by(user: str) -> set[str]:
            shown = subprocess.run(
                [sys.executable, "-c", SEE, cluster.bootstrap_servers],
                env={**os.environ, **lock.variables(user)},
                capture_output=True,
                check=True,
                text=True,
            ).stdout
            return set(shown.split())

        made = Run("topics", "--kafka", cluster.bootstrap_servers, folder=tmp_path, env=operator)
        assert made.wait() == 0, made.err
        assert {seen for user in RIGHTS if user != OPERATOR for seen in seen_by(user)} == set()
        again = ("topics", "--grant", "--kafka", cluster.bootstrap_servers)
        granted = Run(*again, folder=tmp_path, env=operator)
        assert granted.wait() == 0, granted.err
        assert "gateway, delivery, retrier, pipelines, observe, operator may do" in granted.out
        for user, rights in RIGHTS.items():
            plain = {
                each.name for each in rights if each.resource == "topic" and not each.is_prefix
            }
            assert plain <= seen_by(user)
        assert LANES not in seen_by("retrier")
