"""Tells from a lane's pace that events will be late, before any of them is."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from shared.proof.balance import Balance

# A micro-batch lasts for a time box of 5 s and an answer: over twice that, its pace is even.
PACE_S = 10


@dataclass(slots=True)
class Pace:
    """The events that a lane had ahead of it, and behind it, at each sample of the last seconds."""

    _samples: deque[tuple[int, Balance]] = field(default_factory=deque)

    def drain_s(self, balance: Balance, at_ms: int) -> float:
        """How long the backlog will take; 0 unless some of it was there PACE_S ago.

        Without that condition a burst of a second would be judged by the quiet before it.
        """
        samples = self._samples
        samples.append((at_ms, balance))
        # One that is old enough is the first.
        while len(samples) > 1 and at_ms - samples[1][0] >= 1000 * PACE_S:
            samples.popleft()
        since_ms, before = samples[0]
        gone = (balance.acked - balance.queued) - (before.acked - before.queued)
        if at_ms - since_ms < 1000 * PACE_S or before.queued <= max(0, gone):
            return 0.0
        return balance.queued * (at_ms - since_ms) / 1000 / gone if gone > 0 else inf
