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
        seen, self._seen = self._seen, configuration
        for strand in self.blocked():
            if (to := self.destination(strand.destination)) is None:
                continue
            before = seen.destinations.get(to.id)
            # Once for each word of a person, and not again while its flow is on its way here.
            is_news = before is None or before.resumed_at_ms < to.resumed_at_ms
            if to.order != "stream" or (is_news and self.is_resumed(to)):
                self.try_now(strand)
