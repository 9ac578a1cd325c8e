"""Waits until a Kafka cluster is ready, asking its brokers in Kafka's own protocol."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

from shared.runtime.defaults import HOST
from shared.runtime.kafka.broker_view import BrokerView, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

_POLL_S = 0.05


def wait_for_brokers(
    ports: Mapping[int, int], *, timeout_s: float, check: Callable[[], None]
) -> bool:
    """Wait until each broker lists all of them as registered, alive and unfenced.

    That takes an elected controller, which alone can register a broker. `check` runs at every
    turn and may raise, for instance when a process has died.
    """
    wanted = frozenset(ports)

    def all_seen(views: list[BrokerView | None]) -> bool:
        return all(view is not None and view.brokers >= wanted for view in views)

    every = list(ports.values())
    return _run(lambda end: _wait(every, all_seen, end, timeout_s=timeout_s, check=check))


def wait_for_replicas(ports: Mapping[int, int], *, timeout_s: float) -> bool:
    """Wait until every Kafka partition has a leader and all its replicas in sync."""

    def all_in_sync(views: list[BrokerView | None]) -> bool:
        return all(view is not None and view.under_replicated == 0 for view in views)

    every = list(ports.values())
    return _run(lambda end: _wait(every, all_in_sync, end, timeout_s=timeout_s, check=_nothing))


async def _view(port: int) -> BrokerView | None:
    with contextlib.suppress(OSError):
        # Asked first because the Kafka client logs an error for each refused connection.
        _, writer = await asyncio.open_connection(HOST, port)
        writer.close()
        return await view_of(HOST, port)
    return None


async def _wait(
    ports: list[int],
    good: Callable[[list[BrokerView | None]], bool],
    given_up: Event,
    *,
    timeout_s: float,
    check: Callable[[], None],
) -> bool:
    deadline = time.monotonic() + timeout_s
    while not given_up.is_set():
        check()
        if good([await _view(port) for port in ports]):
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
