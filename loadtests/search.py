"""Finds the highest rate that is met: doubles until a step fails, halves the gap, then confirms.

It names one step at a time, so that the caller can wait, cool down, print or give up. An invalid
step stops the doubling, as a broken one does, but the result then says that the generator was the
limit.
"""

import math
from dataclasses import dataclass, field

from loadtests.slo import Word

# A gap of 3 % counts as closed. As Poisson arrivals also need a margin below a server's capacity,
# a rating is then accurate to 5 %.
CLOSE = 1.03
# From a first guess that is up to 8 times too low, a search takes 9 steps: 4 to find a gap of a
# factor of 2, and 5 to close it to 2.2 %.
_FACTOR = 2.0
STEPS_MAX = 24
# A rating must be met twice. A rate that fails when repeated is lowered, each time by twice as
# much: a rate met once by luck may be far above one that can be met again.
_CONFIRMATIONS_MAX = 4


@dataclass(slots=True)
class Search:
    """`start` is a guess, `low` the highest rate that was met, `high` the lowest that was not."""

    start: float
    low: float = 0.0
    high: float = math.inf
    is_limited_by_generator: bool = False
    is_confirmed: bool = False
    steps: list[tuple[float, Word]] = field(default_factory=list)
    # The number of steps that closed the gap.
    closed_after: int | None = None
    _confirmations: int = 0

    def next_rate(self) -> float | None:
        """The next rate to try; None when the search is over."""
        if self.is_confirmed or len(self.steps) >= STEPS_MAX:
            return None
        if not self.is_closed:
            if not self.steps:
                return self.start
            if self.high == math.inf:
                return self.low * _FACTOR
            # If even a thousandth of the guess fails, there is no rating.
            if self.low == 0.0:
                return self.high / _FACTOR if self.high > self.start / 1_000 else None
            return math.sqrt(self.low * self.high)
        return self.low if self._confirmations < _CONFIRMATIONS_MAX else None

    @property
    def is_closed(self) -> bool:
        return self.closed_after is not None

    def note(self, rate: float, word: Word) -> None:
        """Take the result of a requested rate."""
        self.steps.append((rate, word))
        if self.is_closed:
            self._confirmations += 1
            if word == "met":
                self.is_confirmed = True
            else:
                self.low, self.high = rate / CLOSE ** (2 ** (self._confirmations - 1)), rate
            return
        if word == "met":
            self.low = rate
        else:
            self.high = rate
            self.is_limited_by_generator = word == "invalid"
        if 0.0 < self.high <= self.low * CLOSE:
            self.closed_after = len(self.steps)
