"""Runs viewers' work in threads of its own, so that no page holds up alerts, audit or series.

Pages wait for the gateway in these threads. Each tenant has a share of them, so a tenant's pages
wait for one another before they keep other tenants' pages waiting.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from shared.runtime.setup_error import NoAnswerError
from shared.runtime.tenant_turns import TenantTurns

T = TypeVar("T")

# Threads that wait cost little. This is enough for 16 tenants with all their threads in use.
_COUNT_MAX, _OF_A_TENANT = 128, 8
# A request that gets no thread within this time is refused.
_WAIT_S = 5.0


class InThread(Protocol):
    """Runs work for one viewer in a thread."""

    async def __call__(self, work: Callable[..., T], *args: object, **more: Any) -> T: ...


class PageThreads:
    """The threads of one console, and the tenants that use them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_COUNT_MAX, thread_name_prefix="page")
        self._turns = TenantTurns(
            _COUNT_MAX, of_a_tenant=_OF_A_TENANT, within_s=_WAIT_S, refusal=_waiting_already
        )

    def of(self, tenant: str | None) -> InThread:
        return partial(self.run, tenant)

    async def run(
        self, tenant: str | None, work: Callable[..., T], *args: object, **more: Any
    ) -> T:
        """Return the result of `work`; NoAnswerError if too much work of the tenant is running."""
        await self._turns.take(tenant)
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(self._pool, partial(work, *args, **more))
        working.add_done_callback(partial(self._is_over, tenant))
        # If the viewer leaves, the thread still finishes its work.
        return await asyncio.shield(working)

    def close(self) -> None:
        """Start no more work; running work ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _is_over(self, tenant: str | None, working: asyncio.Future[Any]) -> None:
        self._turns.give_back(tenant)
        if not working.cancelled():
            # Otherwise Python warns about an exception that was never retrieved.
            working.exception()


def _waiting_already() -> NoAnswerError:
    return NoAnswerError(
        f"{_OF_A_TENANT} of your pages are already waiting for the gateway. Reload this one when"
        " they have loaded."
    )
