"""Starts a Kafka client for as long as a block lasts, and stops it however the start went."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar


class _Client(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


C = TypeVar("C", bound=_Client)


@asynccontextmanager
async def started(client: C) -> AsyncIterator[C]:
    """A consumer or producer of aiokafka's; one whose start fails has connections to close, too."""
    try:
        await client.start()
        # A client that is stopped before its own tasks have begun ends in a cancellation.
        await asyncio.sleep(0)
        yield client
    finally:
        await client.stop()
