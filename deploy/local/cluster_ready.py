"""Waits until a Kafka cluster is ready, asking its brokers in Kafka's own protocol."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from shared.runtime.defaults import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

# A broker that is up answers in a few ms; one that is starting holds the request until it is up.
_REQUEST_TIMEOUT_MS = 2_000
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class View:
    """What one broker knows of its cluster."""

    brokers: frozenset[int]
    under_replicated: int


def wait_for_brokers(
    ports: Mapping[int, int], *, timeout_s: float, check: Callable[[], None]
) -> bool:
    """Wait until each broker lists all of them as registered, alive and unfenced.

    That takes an elected controller, which alone can register a broker. `check` runs at every
    turn and may raise, for instance when a process has died.
    """
    wanted = frozenset(ports)

    def all_seen(views: list[View | None]) -> bool:
        return all(view is not None and view.brokers >= wanted for view in views)

    every = list(ports.values())
    return _run(lambda end: _wait(every, all_seen, end, timeout_s=timeout_s, check=check))


def wait_for_replicas(ports: Mapping[int, int], *, timeout_s: float) -> bool:
    """Wait until every Kafka partition has a leader and all its replicas in sync."""

    def all_in_sync(views: list[View | None]) -> bool:
        return all(view is not None and view.under_replicated == 0 for view in views)

    every = list(ports.values())
    return _run(lambda end: _wait(every, all_in_sync, end, timeout_s=timeout_s, check=_nothing))


async def view_of(port: int) -> View | None:
    """What the broker on this port knows, or None while it does not answer."""
    with contextlib.suppress(OSError):
        # Asked first because the client below logs an error for each refused connection.
        _, writer = await asyncio.open_connection(HOST, port)
        writer.close()
        client = AIOKafkaClient(
            bootstrap_servers=f"{HOST}:{port}", request_timeout_ms=_REQUEST_TIMEOUT_MS
        )
        try:
            await client.bootstrap()
            node = client.get_random_node()
            # Any broker may be drawn from the list; only the one on this port is asked.
            for broker in client.cluster.brokers():
                if broker.port == port:
                    node = broker.nodeId
            answer = (await client.send(node, MetadataRequest(None))).to_object()
        except (KafkaError, TimeoutError):
            return None
        finally:
            await client.close()
        return View(
            brokers=frozenset(broker["node_id"] for broker in answer["brokers"]),
            under_replicated=sum(
                len(partition["isr"]) < len(partition["replicas"]) or partition["leader"] < 0
                for topic in answer["topics"]
                for partition in topic["partitions"]
            ),
        )
    return None


async def _wait(
    ports: list[int],
    good: Callable[[list[View | None]], bool],
    given_up: Event,
    *,
    timeout_s: float,
    check: Callable[[], None],
) -> bool:
    deadline = time.monotonic() + timeout_s
    while not given_up.is_set():
        check()
        if good([await view_of(port) for port in ports]):
            return True
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(_POLL_S)
    return False


def _run(work: Callable[[Event], Coroutine[None, None, bool]]) -> bool:
    # On a thread of its own, so that a caller inside an event loop may call it too.
    given_up = Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: asyncio.run(work(given_up)))
        try:
            return future.result()
        finally:
            # Ctrl-C reaches only the caller's thread; the pool waits for the other one.
            given_up.set()


def _nothing() -> None:
    """No check besides the wait itself."""
