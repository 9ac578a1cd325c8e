"""A connection logs in again before its login ends: no request fails, and none has to wait long."""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Literal

import pytest
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from deploy.local.cluster import Cluster
from deploy.local.kafka_lock import KafkaLock
from shared.event.rights import OPERATOR
from shared.runtime.kafka.clients import KafkaClient, new_client, running
from shared.runtime.kafka.logins import broker_connection
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.kafka.broker_faults import restart, stop_broker

pytestmark = pytest.mark.integration

LOGIN_MS = 2_000
# As long as five logins.
FOR_S = 10.0
# A stopped broker is back within seconds; this is for a busy machine.
BACK_S = 60.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, jars_cache: Path) -> Iterator[str]:
    with quick_logins(tmp_path_factory.mktemp("kafka"), jars_cache) as cluster:
        yield cluster.bootstrap_servers


@contextmanager
def quick_logins(
    folder: Path, jars_cache: Path, *, brokers: Literal[1, 3] = 1
) -> Iterator[Cluster]:
    """Run brokers that end each login after two seconds."""
    cluster = Cluster(folder=folder, cache=jars_cache, brokers=brokers, is_secure=True)
    assert cluster.lock is not None
    own = KafkaLock.properties

    def properties(lock: KafkaLock) -> Mapping[str, object]:
        return {**own(lock), "connections.max.reauth.ms": LOGIN_MS}

    cluster.lock.properties = MethodType(properties, cluster.lock)  # type: ignore[method-assign]
    with cluster:
        yield cluster


def logins(caplog: pytest.LogCaptureFixture) -> int:
    said = f"Authenticated as {OPERATOR}"
    return sum(record.message.startswith(said) for record in caplog.records)


class SlowService:
    """A token service that answers only after more requests to the broker were answered."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def token(self) -> str:
        self.asked += 1
        self.may_answer.clear()
        await asyncio.wait_for(self.may_answer.wait(), LOGIN_MS / 1000)
        return "a token"


async def used_connection(kafka: str, service: SlowService | None = None) -> int:
    """Send requests all the time over one connection; return how many were answered."""
    client, answered = new_client(kafka, metadata_max_age_ms=3_600_000), 0
    async with running(client, kafka):
        node = client.get_random_node()
        connection = await client._get_conn(node)
        connection._sasl_oauth_token_provider = service
        until_s = asyncio.get_running_loop().time() + FOR_S
        while asyncio.get_running_loop().time() < until_s:
            requests = [client.send(node, MetadataRequest([])) for _ in range(20)]
            answered += len(await asyncio.gather(*requests))
            if service is not None:
                service.may_answer.set()
            await asyncio.sleep(0.01)
            assert await client._get_conn(node) is connection, "it had to connect again"
    return answered


def test_one_connection_outlives_its_logins(kafka: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka.conn")
    assert asyncio.run(used_connection(kafka)) > 1_000
    assert logins(caplog) >= FOR_S * 1000 / LOGIN_MS


def test_requests_continue_while_a_token_is_made(kafka: str) -> None:
    service = SlowService()
    assert asyncio.run(used_connection(kafka, service)) > 1_000
    assert service.asked >= FOR_S * 1000 / LOGIN_MS


def test_without_renewal_the_broker_ends_the_connection(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above would notice if logins were not renewed."""
    monkeypatch.setattr(broker_connection._BrokerConnection, "_renew", lambda _: None)
    with pytest.raises((KafkaUnavailableError, AssertionError)):
        asyncio.run(used_connection(kafka))


async def is_served(client: KafkaClient, node: int) -> bool:
    """Return whether a broker answers a request."""
    if client.cluster.broker_metadata(node) is None:
        await client.force_metadata_update()
        return False
    try:
        await client.send(node, MetadataRequest([]))
    except (KafkaError, OSError):
        return False
    return True


async def use_for(client: KafkaClient, nodes: Collection[int], duration_s: float) -> None:
    """Send requests to brokers for some seconds, each over one connection; none may fail."""
    connections = {node: await client._get_conn(node) for node in nodes}
    until_s = asyncio.get_running_loop().time() + duration_s
    while asyncio.get_running_loop().time() < until_s:
        for node in nodes:
            assert await is_served(client, node), f"broker {node} did not answer"
            assert await client._get_conn(node) is connections[node], "it had to connect again"
        await asyncio.sleep(0.01)


def test_a_stopped_broker_keeps_no_other_from_renewing_its_logins(
    tmp_path: Path, jars_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use_over_a_stop(cluster: Cluster) -> int:
        servers = cluster.bootstrap_servers
        client, logins_s = new_client(servers), 3 * LOGIN_MS / 1000
        stopped, *others = cluster.broker_ids
        async with running(client, servers):
            await use_for(client, [stopped, *others], logins_s)
            stop = asyncio.create_task(asyncio.to_thread(stop_broker, cluster, stopped))
            while not stop.done():
                await use_for(client, others, LOGIN_MS / 1000)
            known = logins(caplog)
            await use_for(client, others, logins_s)
            renewed = logins(caplog) - known
            assert not await is_served(client, stopped)
            await asyncio.to_thread(restart, cluster, stopped)
            async with asyncio.timeout(BACK_S):
                while not await is_served(client, stopped):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.1)
            await use_for(client, [stopped, *others], logins_s)
        return renewed

    caplog.set_level(logging.INFO, "aiokafka.conn")
    with quick_logins(tmp_path, jars_cache, brokers=3) as cluster:
        # Each of the two other connections has renewed its login at least twice.
        assert asyncio.run(use_over_a_stop(cluster)) >= 4
