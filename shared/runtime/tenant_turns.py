"""Shares a scarce resource among tenants, so that a demanding one leaves room for the others."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class TenantTurns:
    """A limited number of turns, also limited for each tenant; the tenant with fewest is next."""

    def __init__(
        self,
        at_once: float,
        *,
        of_a_tenant: int = 1,
        within_s: float | None = None,
        refusal: Callable[[], Exception] = TimeoutError,
    ) -> None:
        """Raise `refusal` for a tenant that gets no turn `within_s`."""
        self._free = at_once
        self._of_a_tenant = of_a_tenant
        self._within_s = within_s
        self._refusal = refusal
        self._held: Counter[str | None] = Counter()
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def of(self, tenant: str | None) -> AsyncIterator[None]:
        """Hold a turn during the block."""
        await self.take(tenant)
        try:
            yield
        finally:
            self.give_back(tenant)

    async def take(self, tenant: str | None) -> None:
        """Wait for a turn; the caller must give it back."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._admit()
        try:
            async with asyncio.timeout(self._within_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(tenant)
            if isinstance(error, TimeoutError):
                raise self._refusal() from error
            raise

    def give_back(self, tenant: str | None) -> None:
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        self._admit()

    def _admit(self) -> None:
        while self._free > 0:
            may = [each for each in self._waiting if self._held[each] < self._of_a_tenant]
            if not may:
                return
            tenant = min(may, key=self._held.__getitem__)
            waiting = self._waiting.pop(tenant)
            turn = waiting.popleft()
            if waiting:
                # Behind other tenants with equally few turns.
                self._waiting[tenant] = waiting
            if not turn.cancelled():
                self._free -= 1
                self._held[tenant] += 1
                turn.set_result(None)
