"""Chooses when to retry an event that blocks all behind it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from delivery.lanes.units import Strand
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.event.envelope import History
from shared.runtime.clock import now_ms


def wait_until_s(at_ms: int) -> float:
    """Convert a time to time.monotonic; a past time becomes now."""
    return time.monotonic() + max(0, at_ms - now_ms()) / 1000


@dataclass(slots=True)
class Blocks:
    """The strands of one process that an event holds up."""

    # Returns the blocked strands, with their events' histories; `try_now` tries one at once.
    blocked: Callable[[], list[tuple[Strand, History]]]
    try_now: Callable[[Strand], None]
    # Returns a destination if it may be sent to now.
    destination: Callable[[str], Destination | None]
    _seen: Configuration = field(default_factory=Configuration)

    def look(self, configuration: Configuration) -> None:
        """Retry at once the strands that a person has resumed, or that need no order any more."""
        if configuration is self._seen:
            return
        self._seen = configuration
        for strand, history in self.blocked():
            to = self.destination(strand.destination)
            if to and (to.order != "stream" or to.resumed_at_ms > _tried_at_ms(history)):
                self.try_now(strand)


def _tried_at_ms(history: History) -> int:
    return history.last_attempt_at_ms or history.first_attempt_at_ms
