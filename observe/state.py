"""Keeps the newest overview for whoever shows it: the console, the metrics, `hifi top`.

One writer (the sampler's loop) puts a new one in; readers of any thread take the whole of it.
"""

import asyncio
from collections.abc import AsyncIterator

from shared.proof.overview import AuditHealth, Overview


class Observed:
    """The newest overview; never changed in place."""

    def __init__(self) -> None:
        self._newest = Overview(
            at_ms=0,
            streams=(),
            audit=AuditHealth(),
            problem="nothing has been read yet",
        )
        self._changed = asyncio.Event()

    def snapshot(self) -> Overview:
        """What is known now."""
        return self._newest

    def put(self, overview: Overview) -> None:
        """Called in the event loop's thread."""
        self._newest = overview
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self) -> AsyncIterator[Overview]:
        """The newest overview, and then each later one; one that is slow skips some."""
        while True:
            changed = self._changed
            yield self._newest
            await changed.wait()
