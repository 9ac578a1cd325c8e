"""Runs the work that only one observer may do, in the observer that holds the lease.

The others show their own figures, and stand by (ADR 0058). Kafka refuses the writes of an observer
that has lost the lease without knowing it yet (`observe/audit/kafka.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from shared.event.topics import lease_group
from shared.runtime.kafka.leases.member import LeaseMember


class ActiveObserver:
    """Runs each `work` while the lease is ours, and then cancels it."""

    def __init__(
        self, bootstrap_servers: str, *work: Callable[[], Awaitable[object]], lease_s: float
    ) -> None:
        self._work = work
        self._member = LeaseMember(
            bootstrap_servers, lease_group("observe"), self, slot_count=1, session_s=lease_s
        )
        self._working: asyncio.Task[None] | None = None
        # Cancelled work may still be ending when the lease returns.
        self._one_at_a_time = asyncio.Lock()
        self._tasks = asyncio.TaskGroup()

    @property
    def stands_by(self) -> bool:
        return self._member.is_told and not self._member.owned

    async def run(self, stop: asyncio.Event) -> None:
        """Take part until `stop` is set, then hand over; raise the error of any failed work."""
        try:
            async with self._tasks:
                await self._member.run(stop)
        except ExceptionGroup as died:
            raise died.exceptions[0] from None

    def begin(self, _: frozenset[int]) -> None:
        self._working = self._tasks.create_task(self._do())

    async def finish(self, slots: frozenset[int]) -> None:
        self.drop(slots)
        if self._working is not None:
            await asyncio.wait([self._working])

    def drop(self, _: frozenset[int]) -> None:
        if self._working is not None:
            self._working.cancel()

    async def _do(self) -> None:
        async with self._one_at_a_time:
            try:
                async with asyncio.TaskGroup() as parts:
                    for work in self._work:
                        parts.create_task(_until_over(work))
            except ExceptionGroup as died:
                raise died.exceptions[0] from None


async def _until_over(work: Callable[[], Awaitable[object]]) -> None:
    await work()
