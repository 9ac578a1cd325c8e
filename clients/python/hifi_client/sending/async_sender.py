"""Sends events from asyncio: wraps Sender, and never blocks the loop."""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from hifi_client.errors import FullError
from hifi_client.sending.events import Given
from hifi_client.sending.fates import Sent, SentMany, Stretch
from hifi_client.sending.sender import Sender

# How often to check for room while memory is full.
_LOOK_S = 0.01


class AsyncSender:
    """A Sender for asyncio, with the same options: `outcome = await (await sender.send(event))`."""

    def __init__(self, url: str, stream: str, **options: Any) -> None:
        self._sender = Sender(url, stream, **options)

    @property
    def problem(self) -> str:
        """The current problem in a sentence; empty if there is none."""
        return self._sender.problem

    async def send(
        self, event: Given, *, event_id: str | None = None, key: str | None = None
    ) -> Sent:
        """Take an event; wait for room, or raise FullError, according to `when_full`."""
        while True:
            try:
                return self._sender.send_within(0.0, event, event_id=event_id, key=key)
            except FullError:
                if self._sender.options.when_full == "raise":
                    raise
            await asyncio.sleep(_LOOK_S)

    async def send_many(self, events: Iterable[Given], *, key: str | None = None) -> SentMany:
        """Take events in order, at less cost than `send` for each of them.

        If one is not an event, none is taken. FullError has the taken events in `sent`.
        """
        ids, lines = self._sender.lines_of(events, key=key)
        stretches: list[Stretch] = []
        sent = SentMany(ids, stretches)
        while True:
            try:
                self._sender.put_lines(0.0, lines, stretches)
            except FullError as error:
                if self._sender.options.when_full == "raise":
                    error.sent = sent
                    raise
            else:
                return sent
            await asyncio.sleep(_LOOK_S)

    async def check(self) -> None:
        """Ask the gateway whether it would accept an event; raise GatewayError if not."""
        await asyncio.to_thread(self._sender.check)

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Send all waiting events; return whether each got its final fate in time."""
        return await asyncio.to_thread(self._sender.flush, timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        """Send events for up to `timeout_s` (default `exit_s`); settle or spool the rest."""
        await asyncio.to_thread(self._sender.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
