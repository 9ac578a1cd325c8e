"""Freezes, stops and restarts brokers of an embedded cluster, as a test wants them to fail."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest

from deploy.local.cluster import READY_TIMEOUT_S, STOP_TIMEOUT_S, Cluster
from deploy.local.cluster_ready import wait_for_brokers

_LOOK_S, _MOMENT_S = 0.05, 0.002


@contextmanager
def frozen(cluster: Cluster, broker_id: int) -> Iterator[None]:
    """Freeze a broker for the block: it keeps its connections and answers nothing."""
    child = cluster.child(broker_id)
    child.send(signal.SIGSTOP)
    try:
        # On a busy machine its threads run on for a moment, and accept requests.
        while not _stands_still(child.pid):
            time.sleep(_MOMENT_S)
        yield
    finally:
        cluster.child(broker_id).send(signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    states = (each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


@contextmanager
def killed(cluster: Cluster, broker_id: int) -> Iterator[None]:
    """Kill a broker with -9, without a goodbye; it restarts at the end of the block."""
    cluster.child(broker_id).kill()
    try:
        yield
    finally:
        restart(cluster, broker_id)


def stop_broker(cluster: Cluster, broker_id: int) -> None:
    """Stop a broker in order: it hands over its leaderships first."""
    cluster.child(broker_id).stop(STOP_TIMEOUT_S)


def restart(cluster: Cluster, *broker_ids: int) -> None:
    """Start brokers that were stopped or killed, and wait until all that run know each other."""
    for broker_id in broker_ids:
        cluster.restart(broker_id)
    ports = {broker_id: cluster._brokers[broker_id].port for broker_id in cluster.running}
    ready = wait_for_brokers(ports, timeout_s=READY_TIMEOUT_S, check=lambda: None)
    assert asyncio.run(ready), f"brokers {sorted(ports)} are not ready"


def wait_in_sync(cluster: Cluster) -> None:
    """Wait until every Kafka partition has a leader and all its replicas in sync."""
    until_s = time.monotonic() + READY_TIMEOUT_S
    while under := asyncio.run(_under_replicated(cluster.bootstrap_servers)):
        assert time.monotonic() < until_s, f"not in sync: {under}"
        time.sleep(_LOOK_S)


async def _under_replicated(servers: str) -> list[str]:
    """Ask each broker: one that was away may not know yet what it missed."""
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    try:
        answers = [
            (await client.send(broker.nodeId, MetadataRequest(None))).to_object()
            for broker in client.cluster.brokers()
        ]
    finally:
        await client.close()
    return [
        f"{topic['topic']}:{partition['partition']}"
        for answer in answers
        for topic in answer["topics"]
        for partition in topic["partitions"]
        if len(partition["isr"]) < len(partition["replicas"]) or partition["leader"] < 0
    ]
