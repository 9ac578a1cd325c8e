"""Lets few requests search Kafka at a time, and none of their tenants hold all the turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from gateway.problems import Problem

# Each takes a connection of its own to Kafka, and reads as fast as it can. One for a tenant, so
# that nobody holds them all.
_AT_ONCE = 2
# Longer than one takes, so that a third caller has a chance.
_TURN_S_MAX = 10.0


class SearchTurns:
    """Few search at a time, and no tenant holds all the turns."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(_AT_ONCE)
        # Of the tenants who search or wait to; forgotten with the last of their requests.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        own_turn = self._turns.setdefault(tenant, asyncio.Lock())
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_TURN_S_MAX):
                    await held.enter_async_context(own_turn)
                    await held.enter_async_context(self._turn)
            except TimeoutError as error:
                soon = ((b"retry-after", b"1"),)
                detail = "Others are searching; ask again."
                raise Problem("overloaded", detail, headers=soon) from error
            yield
