"""Exchanges the demand of each tenant with a quota with the other gateway processes.

A process publishes two small records a second, and one at once when a tenant starts to send or is
refused. While no tenant has a quota, it publishes nothing.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

import structlog

from gateway.fleet.quota import Quotas
from gateway.fleet.shares import TELL_S, Members, ShareNews
from gateway.intake.events import Event
from gateway.publish.publisher import Publisher
from shared.event.record import RecordIn
from shared.event.topics import SHARES

log = structlog.get_logger()

# The shortest pause between two records, however much news there is.
_PAUSE_S = 0.1
# Our own record comes back within milliseconds. If it does not, we start as if we were alone.
_JOIN_S = 2.0


class QuotaNews:
    """Keeps `quotas` shared. `take` needs all records of the topic."""

    def __init__(self, publisher: Publisher, *, has_quotas: Callable[[], bool]) -> None:
        self._publisher = publisher
        self._has_quotas = has_quotas
        self._members = Members(os.urandom(8))
        self._is_urgent = asyncio.Event()
        self._has_joined = asyncio.Event()
        self.quotas = Quotas(self._members, self._is_urgent.set)

    async def join(self) -> None:
        """Learn of all other processes before the first request."""
        await self._tell(ShareNews())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_joined.wait(), _JOIN_S)

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_urgent.wait(), TELL_S - _PAUSE_S)
            self._is_urgent.clear()
            if self._has_quotas():
                await self._tell(self.quotas.news(now_s=monotonic()))
            await asyncio.sleep(_PAUSE_S)

    async def leave(self) -> None:
        """Leave this process's shares to the others."""
        await self._tell(ShareNews(is_leaving=True))

    def take(self, records: Sequence[RecordIn]) -> None:
        """Process the next records of the topic."""
        for record in records:
            who = record.key or b""
            try:
                self._members.take(who, record.value, record.timestamp_ms)
            except ValueError as error:
                log.warning("shares.record_refused", origin=record.origin, error=str(error))
            if who == self._members.me:
                self._has_joined.set()

    async def _tell(self, news: ShareNews) -> None:
        """Publish the news; if a record is lost, the next one follows soon."""
        event = Event.of(id="", key=self._members.me, value=news.to_bytes(), headers=())
        await self._publisher.publish(SHARES, [event])
