"""Remembers how lag was made up lately, so that a page can show it over time at once."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from observe.lag.time_shares import time_shares
from shared.proof.overview import Overview

# Half an hour in columns of ten seconds: as many as a phone can show a pixel or two of.
STEP_MS = 10_000
STEPS = 180

Nodes = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """The mean time at each node, in ms: of one destination, or of the slowest of several."""

    at_ms: int
    nodes: Nodes
    destination_id: str = ""

    @property
    def total_ms(self) -> float:
        return sum(mean_ms for _, mean_ms in self.nodes)


class LagHistory:
    """The last overviews' lag, one for each step."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, dict[str, Nodes]]] = deque(maxlen=STEPS)

    def take(self, overview: Overview) -> None:
        step_ms = overview.at_ms - overview.at_ms % STEP_MS
        is_new = not self._steps or self._steps[-1][0] < step_ms
        if not is_new or not overview.streams:
            return
        lags = {view.destination_id: time_shares(view) for view in overview.takers}
        self._steps.append((step_ms, lags))

    def of(self, destination_ids: Sequence[str]) -> list[Moment]:
        """At each step the slowest of these, and what its lag was made of."""
        moments = []
        for at_ms, lags in self._steps:
            shown = [Moment(at_ms, lags[name], name) for name in destination_ids if name in lags]
            slowest = max(shown, key=lambda moment: moment.total_ms, default=Moment(at_ms, ()))
            moments.append(slowest)
        return moments
