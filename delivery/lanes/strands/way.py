"""Keeps how far a strand is, and its span under way."""

from dataclasses import dataclass
from typing import NamedTuple

from delivery.lanes.turns import Turn
from delivery.lanes.units import Span, Strand
from shared.event.envelope import History


class Laggard(NamedTuple):
    """The strand of a lane that has had something to send for longest without going on."""

    strand: Strand
    since_s: float
    is_sending: bool


@dataclass(slots=True)
class Way:
    """How far a strand is."""

    at: int
    # Offsets below may have been sent by a unit with an unknown outcome; if that unit followed its
    # log, OPEN until it is over and the end of the log has been seen once more.
    maybe_sent: int
    # A report on another span is out of date: a mark had already freed its strand.
    under_way: Span | None = None
    # The job of that span.
    turn: Turn | None = None
    # Its last worker has ended without a word: its events may end the next one, too.
    is_suspect: bool = False
    # Since when there is something to send.
    behind_since_s: float | None = None
    not_before_s: float = 0.0
    # The history of the event there, if all behind it wait for that one.
    held: History | None = None
    # Kafka's id of the topic that it is in.
    life: str = ""

    def hear(self, held: History | None) -> None:
        """Take in its worker's history of the event for which all others wait."""
        if held and (self.held is None or held.not_before_ms > self.held.not_before_ms):
            self.held = held
