"""Lets one job have the executor to itself: if an executor ends then, the job has ended it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# The maximum time for which others are held back until the jobs under way have ended.
_WAIT_S_MAX = 10.0


class NotAloneError(Exception):
    """Other jobs did not end in time; the caller may try again later."""


class ExecutorTurns:
    """The turns of one process's jobs; between two jobs that run alone, all others get a turn."""

    def __init__(self) -> None:
        self._at_work = 0
        self._none_is_at_work = asyncio.Event()
        self._none_is_at_work.set()
        self._is_one_alone = False
        self._one = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def among_others(self) -> AsyncIterator[None]:
        if self._is_one_alone:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._end()
                raise
        else:
            self._begin()
        try:
            yield
        finally:
            self._end()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Run a job alone; raise NotAloneError if other jobs do not end."""
        async with self._one:
            self._is_one_alone = True
            try:
                await self._until_none_is_at_work()
                yield
            finally:
                self._let_others_go_on()

    async def _until_none_is_at_work(self) -> None:
        try:
            async with asyncio.timeout(_WAIT_S_MAX):
                await self._none_is_at_work.wait()
        except TimeoutError:
            raise NotAloneError("other jobs did not end, and this one must run alone") from None

    def _let_others_go_on(self) -> None:
        self._is_one_alone = False
        for turn in self._waiting:
            if not turn.done():
                self._begin()
                turn.set_result(None)
        self._waiting.clear()

    def _begin(self) -> None:
        self._at_work += 1
        self._none_is_at_work.clear()

    def _end(self) -> None:
        self._at_work -= 1
        if not self._at_work:
            self._none_is_at_work.set()
