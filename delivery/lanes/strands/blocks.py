"""Chooses when to retry an event that blocks all behind it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from delivery.lanes.units import Strand
from shared.config.configuration import Configuration
from shared.config.destination import Destination


@dataclass(slots=True)
class Blocks:
    """The strands of one process that an event holds up."""

    # Returns the blocked strands; `try_now` tries one at once.
    blocked: Callable[[], list[Strand]]
    try_now: Callable[[Strand], None]
    # Returns a destination if it may be sent to now.
    destination: Callable[[str], Destination | None]
    # Says whether a person has resumed it since it was last sent to.
    is_resumed: Callable[[Destination], bool]
    _seen: Configuration = field(default_factory=Configuration)

    def look(self, configuration: Configuration) -> None:
        """Retry at once the strands that a person has resumed, or that need no order any more."""
        if configuration is self._seen:
            return
        self._seen = configuration
        for strand in self.blocked():
            to = self.destination(strand.destination)
            if to and (to.order != "stream" or self.is_resumed(to)):
                self.try_now(strand)
