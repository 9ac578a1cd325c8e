"""Predicts from a lane's pace that events will be late."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from shared.proof.balance import Balance

# A micro-batch takes a time box of 5 s and the time of an answer; over two of
# them, the pace is even.
PACE_S = 10


@dataclass(slots=True)
class Pace:
    """The events that a lane had done and had yet to do, at each sample of the last seconds."""

    _samples: deque[tuple[int, Balance]] = field(default_factory=deque)

    def drain_s(self, balance: Balance, at_ms: int) -> float:
        """Return how long the backlog will take; 0 unless some of it is older than PACE_S.

        Without that condition, a burst would be judged by the quiet seconds before it.
        """
        samples = self._samples
        samples.append((at_ms, balance))
        # Drop the first sample while the second is old enough.
        while len(samples) > 1 and at_ms - samples[1][0] >= 1000 * PACE_S:
            samples.popleft()
        since_ms, before = samples[0]
        gone = (balance.acked - balance.queued) - (before.acked - before.queued)
        if at_ms - since_ms < 1000 * PACE_S or before.queued <= max(0, gone):
            return 0.0
        return balance.queued * (at_ms - since_ms) / 1000 / gone if gone > 0 else inf
