"""Where receipts are, and whose turn it is to search for them."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from gateway.problems import Problem
from shared.event.record import Origin
from shared.proof.acked import AckedRequest
from shared.proof.restored import Restores
from shared.proof.trail import Trail
from shared.runtime.kafka.lookup.event_search import (
    SEARCH_S_MAX,
    MadeEvents,
    find_made,
    find_request,
    find_trail,
)
from shared.runtime.kafka.lookup.restores import find_restores

# Each takes a connection of its own to Kafka, and reads as fast as it can. One for a tenant, so
# that nobody holds them all.
_AT_ONCE = 2
# Longer than one takes, so that a third caller has a chance.
_TURN_S_MAX = 10.0


class ReceiptStore(Protocol):
    """Where the ledger is, and all that is said of events."""

    async def request(self, request_id: str, *, since_ms: int, wait_s: float) -> AckedRequest:
        """What the ledger has of a request, waiting for it a little."""

    async def trail(
        self,
        origins: Collection[Origin],
        *,
        since_ms: int,
        destination_ids: Collection[str],
        search_s: float = SEARCH_S_MAX,
    ) -> Trail:
        """What is said of events since a time."""

    async def made(
        self,
        origins: Collection[Origin],
        pipeline: str,
        stream: str,
        between_ms: tuple[int, int],
        *,
        count_max: int,
        search_s: float = SEARCH_S_MAX,
    ) -> MadeEvents:
        """What a pipeline has made of events, in a stream that it writes to."""

    async def restores(self, *, search_s: float = SEARCH_S_MAX) -> Restores | None:
        """What restores have told of themselves; None if time did not allow to read that."""


class KafkaReceipts:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.request = partial(find_request, bootstrap_servers)
        self.trail = partial(find_trail, bootstrap_servers)
        self.made = partial(find_made, bootstrap_servers)
        self.restores = partial(find_restores, bootstrap_servers, search_s=SEARCH_S_MAX)


class SearchTurns:
    """Few work at a time, and no tenant holds more than one of the turns."""

    def __init__(self, at_once: int = _AT_ONCE, *, wait_s: float = _TURN_S_MAX) -> None:
        self._turn = asyncio.Semaphore(at_once)
        self._wait_s = wait_s
        # Of the tenants who work or wait to; forgotten with the last of their requests.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        own_turn = self._turns.setdefault(tenant, asyncio.Lock())
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._wait_s):
                    await held.enter_async_context(own_turn)
                    await held.enter_async_context(self._turn)
            except TimeoutError as error:
                soon = ((b"retry-after", b"1"),)
                detail = "Others are searching; ask again."
                raise Problem("overloaded", detail, headers=soon) from error
            yield
