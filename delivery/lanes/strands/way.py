"""Keeps how far a strand is, and what is under way of it."""

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
    # Offsets below may have been sent by a unit of which nobody knows what became; if that unit
    # followed its log, OPEN until it is over and the end of the log has been seen once more.
    maybe_sent: int
    # Who reports of another span reports of what was over before: its strand was free by its mark.
    under_way: Span | None = None
    # The job that was.
    turn: Turn | None = None
    # Its last worker has ended without a word: what is in it may end the next one, too.
    is_suspect: bool = False
    # Since when there is something to send.
    behind_since_s: float | None = None
    not_before_s: float = 0.0
    # What has become of the event there, if all behind it wait for that one.
    held: History | None = None
    # In which topic it is, by Kafka's id.
    life: str = ""

    def hear(self, held: History | None) -> None:
        """What its worker says of the event for which all others wait."""
        if held and (self.held is None or held.not_before_ms > self.held.not_before_ms):
            self.held = held
