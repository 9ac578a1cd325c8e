"""Sends what has changed on a page while somebody looks at it, as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from observe.console.parts.layout import Page

# People see a second's change; the sampler makes no more.
STEP_S = 1.0
# A comment in this many steps keeps proxies from closing a stream with no news.
_QUIET_STEPS = 15
# Each costs a page a second; more viewers than this look at Grafana.
STREAMS_MAX = 40


class Live:
    """The live streams of one process."""

    def __init__(self) -> None:
        self.count = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End them all, so that the server can stop."""
        self._stopping.set()

    async def follow(self, make: Callable[[], Page | None]) -> AsyncIterator[str]:
        """An event for each change; the first brings what changed while the page was on its way.

        `make` gives the page as it is now, or None when there is none any more for this viewer.
        """
        self.count += 1
        try:
            sent: dict[str, str] = {}
            quiet = 0
            while not self._stopping.is_set():
                page = make()
                if page is None:
                    yield "event: gone\ndata: {}\n\n"
                    return
                now = {region.id: str(region.content) for region in page.regions if region.is_live}
                changed = {name: text for name, text in now.items() if sent.get(name) != text}
                if changed:
                    news = {"regions": changed, "status": page.status}
                    yield f"event: news\ndata: {json.dumps(news)}\n\n"
                    quiet = 0
                elif quiet >= _QUIET_STEPS:
                    yield ": still here\n\n"
                    quiet = 0
                sent = now
                quiet += 1
                await self._step()
            yield "retry: 2000\n\n"
        finally:
            self.count -= 1

    async def _step(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), STEP_S)
