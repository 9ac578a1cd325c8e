"""Gives the strands of a crowded task places to begin in, in turns by tenant."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager

from delivery.lanes.units import PATIENCE_S

# Strands that begin at the same time: each may open connections, and a thousand at once would all
# be late. A strand that hangs begins nothing, so that a crowd of them does not fill a task.
SIDE_BY_SIDE = 128


class BeginningTurns:
    """The places of one task; a tenant has half of them at most, unless it is the only one."""

    def __init__(self, tenants: Collection[str]) -> None:
        self._free = SIDE_BY_SIDE
        self._of_tenant_max = SIDE_BY_SIDE // min(2, len(set(tenants)))
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def beginning(self, tenant: str) -> AsyncIterator[None]:
        """A place for as long as the block takes, or until it has taken too long."""
        await self._take(tenant)
        with ExitStack() as place:
            place.callback(self._give_back, tenant)
            loop = asyncio.get_running_loop()
            place.callback(loop.call_later(PATIENCE_S, place.close).cancel)
            yield

    async def _take(self, tenant: str) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(place)
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._give_back(tenant)
            raise

    def _give_back(self, tenant: str) -> None:
        self._free += 1
        self._held[tenant] -= 1
        self._admit()

    def _admit(self) -> None:
        """The tenant that holds fewest places is next."""
        while self._free:
            may = [each for each in self._waiting if self._held[each] < self._of_tenant_max]
            if not may:
                return
            tenant = min(may, key=self._held.__getitem__)
            waiting = self._waiting[tenant]
            place = waiting.popleft()
            if not waiting:
                del self._waiting[tenant]
            if not place.cancelled():
                self._free -= 1
                self._held[tenant] += 1
                place.set_result(None)
