"""Has the searches of a tenant wait for one another, so that others' come soon.

One search reads Kafka at a time, for some seconds: whoever asks for many would have the next turns.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from shared.runtime.setup_error import NoAnswerError

# As long as three searches may take.
_WAIT_S = 20.0


class ViewersTurns:
    """The turns of one console, one for each tenant."""

    def __init__(self) -> None:
        # Forgotten with the last who waits.
        self._turns: WeakValueDictionary[str | None, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, tenant: str | None) -> AsyncIterator[None]:
        """A tenant's turn for as long as the block lasts; NoAnswerError if it does not come."""
        turn = self._turns.setdefault(tenant, asyncio.Lock())
        try:
            async with asyncio.timeout(_WAIT_S):
                await turn.acquire()
        except TimeoutError as error:
            raise NoAnswerError(
                "Other searches of yours are under way: search again when they are done."
            ) from error
        try:
            yield
        finally:
            turn.release()
