"""Waits until a Kafka cluster is ready, asking each of its brokers."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from shared.runtime.defaults import HOST
from shared.runtime.kafka.clients import new_client, running
from shared.runtime.setup_error import KafkaUnavailableError

_POLL_S = 0.05
# A broker that is up answers in a few ms; one that is starting holds the request until it is up.
_REQUEST_TIMEOUT_MS = 2_000


async def wait_for_brokers(
    ports: Mapping[int, int], *, timeout_s: float, check: Callable[[], None]
) -> bool:
    """Wait until each broker lists all of them as registered, alive and unfenced.

    This needs an elected controller, because only a controller registers brokers. `check` runs in
    every round and may raise, for instance when a process has died.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        check()
        if all([await _brokers_known_to(port) >= ports.keys() for port in ports.values()]):
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)


async def _brokers_known_to(port: int) -> set[int]:
    """Return the ids that the broker on this port lists to clients; none while it is down."""
    address = f"{HOST}:{port}"
    with contextlib.suppress(OSError, KafkaUnavailableError):
        # Tried first, because the Kafka client logs an error for each refused connection.
        _, writer = await asyncio.open_connection(HOST, port)
        writer.close()
        client = new_client(address, request_timeout_ms=_REQUEST_TIMEOUT_MS)
        async with running(client, address):
            return {broker.nodeId for broker in client.cluster.brokers()}
    return set()
