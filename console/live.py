"""Sends the changes of a page while somebody looks at it, as server-sent events.

A region is sent piece by piece: a piece that was in it before is named by its place there.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from console.parts.layout import Page

# People see a second's change; the sampler makes no more.
STEP_S = 1.0
# A comment in this many steps keeps proxies from closing a stream with no news.
_QUIET_STEPS = 15
# Each costs a page a second; more viewers than this look at Grafana. Half of them are left to
# others, however many frames of a tenant's customers are open.
STREAMS_MAX = 40
STREAMS_OF_A_TENANT_MAX = STREAMS_MAX // 2
# The pieces that change as a whole: a cell, a fact, an entry of a list, a picture.
_PIECES = re.compile(r"(?=<(?:t[dhr]|d[dlt]|li|div|p|figure|section)\b)")


class Live:
    """The live streams of one process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End them all, so that the server can stop."""
        self._stopping.set()

    def has_room(self, tenant: str) -> bool:
        is_full = self._counts.total() >= STREAMS_MAX
        return not is_full and self._counts[tenant] < STREAMS_OF_A_TENANT_MAX

    async def follow(
        self, make: Callable[[], Page | None], *, tenant: str = ""
    ) -> AsyncIterator[str]:
        """An event for each change; the first has the changes since the page was sent.

        `make` returns the current page, or None when this viewer has none any more.
        """
        self._counts[tenant] += 1
        try:
            sent: dict[str, list[str]] = {}
            quiet = 0
            while not self._stopping.is_set():
                page = make()
                if page is None:
                    yield "event: gone\ndata: {}\n\n"
                    return
                now = {
                    region.id: _PIECES.split(region.content)
                    for region in page.regions
                    if region.is_live
                }
                changed = {
                    name: changes(sent.get(name, ()), pieces)
                    for name, pieces in now.items()
                    if sent.get(name) != pieces
                }
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
            self._counts[tenant] -= 1

    async def _step(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), STEP_S)


def changes(before: Sequence[str], now: Sequence[str]) -> list[str | tuple[int, int]]:
    """The pieces of the page now: new text, or the place and count of pieces from before."""
    places = {piece: place for place, piece in enumerate(before)}
    made: list[str | tuple[int, int]] = []
    for piece in now:
        place, last = places.get(piece), made[-1] if made else None
        if isinstance(last, tuple) and sum(last) < len(before) and before[sum(last)] == piece:
            # The same piece may be in several places.
            made[-1] = last[0], last[1] + 1
        else:
            made.append(piece if place is None else (place, 1))
    return made
