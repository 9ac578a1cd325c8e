"""Sends the changes of an open page as server-sent events.

A region is sent piece by piece: for a known piece, only its earlier place is sent.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from console.parts.layout import Page

# The sampler has new figures once a second.
STEP_S = 1.0
# A comment after this many steps without changes keeps proxies from closing the stream.
_QUIET_STEPS = 15
# For each stream a page is built every second; more viewers than this should use Grafana. One
# tenant gets half of the streams at most, however many frames its customers have open.
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
        """End all streams, so that the server can stop."""
        self._stopping.set()

    def has_room(self, tenant: str) -> bool:
        is_full = self._counts.total() >= STREAMS_MAX
        return not is_full and self._counts[tenant] < STREAMS_OF_A_TENANT_MAX

    async def follow(
        self, make: Callable[[], Page | None], *, tenant: str = ""
    ) -> AsyncIterator[str]:
        """Yield an event for each change; the first has the changes since the page was sent.

        `make` returns the current page, or None when this viewer may no longer see it.
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
    """Describe the new pieces: as text, or as the place and number of earlier pieces."""
    places = {piece: place for place, piece in enumerate(before)}
    made: list[str | tuple[int, int]] = []
    for piece in now:
        place, last = places.get(piece), made[-1] if made else None
        if isinstance(last, tuple) and sum(last) < len(before) and before[sum(last)] == piece:
            # A piece may occur several times: prefer the place that continues the last run.
            made[-1] = last[0], last[1] + 1
        else:
            made.append(piece if place is None else (place, 1))
    return made
