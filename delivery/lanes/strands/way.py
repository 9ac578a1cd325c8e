"""Holds a strand's position, and its span under way."""

from dataclasses import dataclass
from typing import NamedTuple

from delivery.lanes.turns import Turn
from delivery.lanes.units import Span, Strand
from shared.event.envelope import History


class Laggard(NamedTuple):
    """The strand of a lane that has had something to send for longest without progress."""

    strand: Strand
    since_s: float
    is_sending: bool


@dataclass(slots=True)
class Way:
    """The progress of a strand."""

    at: int
    # Events below this offset may have been sent by a unit with an unknown outcome. If that unit
    # followed its log, this is OPEN until the unit is over and the log's end is fetched again.
    maybe_sent: int
    # A report on any other span is out of date: a mark had already freed the strand.
    under_way: Span | None = None
    # The job of that span.
    turn: Turn | None = None
    # Whether its last worker ended without a report: its events may end the next one, too.
    is_suspect: bool = False
    # Since when there is something to send.
    behind_since_s: float | None = None
    not_before_s: float = 0.0
    # The history of the event at `at`, if all behind wait for that one.
    waiting: History | None = None
    # Kafka's id of the topic.
    life: str = ""

    def hear(self, waiting: History | None) -> None:
        """Record the worker's history of the event for which all others wait."""
        if waiting and (self.waiting is None or waiting.not_before_ms > self.waiting.not_before_ms):
            self.waiting = waiting
