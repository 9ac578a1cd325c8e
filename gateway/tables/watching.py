"""Sends a table's changes to its watchers as server-sent events, until they disconnect.

Each watch reads this machine's copy, so watchers cost Kafka nothing. A watcher that reconnects
continues at its position (`Last-Event-ID`), and gets one event for each row changed since then.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import Receive, Send

from gateway.problems import Problem
from gateway.tables.row_answers import AsOf, told, told_row
from gateway.tables.row_queries import RowQuery
from gateway.watchers import Watchers, client_left
from shared.config.table import Table
from shared.runtime.clock import now_ms
from shared.runtime.tables.copy import ClosedError, DamagedError
from shared.runtime.tables.folders import OpenCopy, TableCopies

# Watchers get a change at most this long after the copy has it.
_LOOK_S = 0.2
# Proxies close a connection that is silent for 30 s, so send something this often. The watcher's
# permission is checked at the same time.
_QUIET_S = 5.0


@dataclass(slots=True)
class Watch:
    """The watch of one client."""

    table: Table
    query: RowQuery
    copies: TableCopies
    watchers: Watchers
    # Returns the current table; raises Problem if the watcher may not read it (any more).
    check: Callable[[], Table]
    _since: int = 0
    _quiet_s: float = 0.0
    # True if the watcher began at the start, so it has missed no deletion.
    _is_told_all: bool = False

    async def run(self, receive: Receive, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        """Run until the watcher disconnects, may not read the table, or this process stops."""
        with self.watchers.place(self.table.tenant):
            await self._run(receive, send, headers)

    async def _run(self, receive: Receive, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        leaving = asyncio.ensure_future(client_left(receive))
        try:
            start = {"type": "http.response.start", "status": 200}
            kind = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({**start, "headers": [*headers, *kind]})
            await self._begin(send)
            while not (leaving.done() or self.watchers.are_leaving):
                if not await self._tell(send):
                    break
                await asyncio.wait([leaving], timeout=_LOOK_S)
            await send({"type": "http.response.body", "body": b""})
        except OSError:
            # The client disconnected during a write.
            pass
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    async def _begin(self, send: Send) -> None:
        copy = self.copies.of(self.table)
        extent = None if copy is None else copy.copy.extent()
        at = 0 if extent is None else extent.offset
        self._since = at if self.query.since is None else min(self.query.since, at)
        self._is_told_all = not self._since
        await self._say(send, told(b"as_of", self._since, self._as_of(copy)))

    async def _tell(self, send: Send) -> bool:
        """Send new changes; return False if the watcher may not read the table any more."""
        self._quiet_s += _LOOK_S
        if self._quiet_s >= _QUIET_S:
            try:
                table = self.check()
            except Problem:
                return False
            if table.generation != self.table.generation:
                return False
            self.table = table
            copy = self.copies.of(table)
            await self._say(send, told(b"as_of", self._since, self._as_of(copy)))
        copy = self.copies.of(self.table)
        if copy is None:
            return True
        try:
            while copy.copy.extent().offset > self._since:
                news = await asyncio.to_thread(copy.copy.news, self._since)
                if news.misses_some and not self._is_told_all:
                    # The copy does not know some deleted rows any more.
                    self._since, self._is_told_all = 0, True
                    await self._say(send, told(b"restart", 0, self._as_of(copy)))
                    continue
                for row in filter(self.query.wants, news.rows):
                    await self._say(send, told_row(row))
                self._since = news.until
            self._is_told_all = False
        except ClosedError:
            return True
        except DamagedError:
            self.copies.damaged(self.table)
        return True

    async def _say(self, send: Send, words: bytes) -> None:
        self._quiet_s = 0.0
        # A client that does not read holds up only its own watch: the server waits here.
        await send({"type": "http.response.body", "body": words, "more_body": True})

    @staticmethod
    def _as_of(copy: OpenCopy | None) -> AsOf:
        at_ms = now_ms()
        if copy is None:
            return AsOf(0, 0, at_ms)
        return AsOf.of(copy.copy.extent(), heard_ms=copy.heard.at_ms, now_ms=at_ms)
