"""Decides when a task that may not send hands over what it parks, and when it ends.

Nobody waits for that: what parks is due in half a minute at the soonest. The lanes that can send
need the processor meanwhile, so it comes spread out, and seldom.
"""

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from delivery.turns import book_turn

# A micro-batch that may not send is as long as one that sends and gets no answer in its time box,
# or a fifth shorter. It would otherwise be over at once, and planning one after the other takes
# half a core from the lanes that can send (ADR 0030).
_REFUSED_BOXES = (0.8, 1.0)
# Lanes that began together wait for the same timeouts and end together, for ever; what all of their
# tasks park then holds up the lanes that can send (ADR 0035). So each one comes by chance, within a
# part of the time box.
_SPREAD_BOXES = 0.4
# So long the end of one micro-batch and the plan of the next keep a small machine busy, with other
# lanes: two at once are what the lanes that can send feel most (ADR 0036).
_TURN_S = 0.4
# Three others; with more lanes in trouble than that, some ends do come together.
_TURN_LONGEST_S = 1.5
# So soon a lane that is to change hears of it.
_LOOK_S = 0.1
# Not a generator with a state, which the workers, copies of one process, would all have the same.
_DICE = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Pace:
    """How one task makes room for others when it may not send; this one does not."""

    # So much later it hands over what it could not send.
    spread_s: float = 0.0
    # So long it lasts at least, from its begin, if it could send nothing.
    lasts_s: float = 0.0
    # Where those that could not send book the moments of their ends.
    turns: Path | None = None
    # There when the lane is to end: then nothing is waited for.
    end_mark: Path | None = None

    @classmethod
    def of_task(
        cls, *, is_first: bool, time_box_s: float, turns: Path | None, end_mark: Path | None
    ) -> Self:
        """The first task makes its micro-batch last; the others leave their slots free."""
        spread_s = time_box_s * _SPREAD_BOXES
        if not is_first:
            return cls(spread_s=_DICE.uniform(0.0, spread_s), end_mark=end_mark)
        lasts_s = time_box_s * _DICE.uniform(*_REFUSED_BOXES)
        # Not before the others, so that it is the one whose end is that of the micro-batch.
        return cls(spread_s, lasts_s, turns, end_mark)

    def before_handing_over(self) -> None:
        """Wait, as the task may not send; called once."""
        self._rest(time.monotonic() + self.spread_s)

    def before_end(self, *, begun_s: float, was_refused: bool) -> None:
        """Wait, as the task may not send, and `was_refused` from its begin at `begun_s`."""
        if was_refused:
            self._rest(begun_s + self.lasts_s)
        if self.turns is not None:
            self._rest(book_turn(self.turns, apart_s=_TURN_S, longest_s=_TURN_LONGEST_S))

    def _rest(self, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0 and not self._is_to_end():
            time.sleep(min(left_s, _LOOK_S))

    def _is_to_end(self) -> bool:
        return self.end_mark is not None and self.end_mark.exists()


# Of tasks that have nobody to make room for.
AT_ONCE = Pace()
