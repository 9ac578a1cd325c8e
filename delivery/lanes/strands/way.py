"""Holds a strand's position, and its span under way."""

from dataclasses import dataclass
from typing import NamedTuple

from delivery.lanes.marks import Mark
from delivery.lanes.turns import Turn
from delivery.lanes.units import Span, Strand
from delivery.settling import Block
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
    # How long it waits from its last try, and until when by this process' clock.
    wait_ms: int = 0
    again_s: float = 0.0
    # Kafka's id of the topic.
    life: str = ""

    @classmethod
    def of(cls, mark: Mark, *, end: int, again_s: float) -> "Way":
        """Resume at a mark; following has no end, so everything in the log may have been sent."""
        way = cls(mark.at, min(mark.until, end), waiting=mark.waiting, life=mark.life)
        way.wait_ms = mark.wait_ms
        way.wait_until(again_s)
        return way

    def mark(self, *, until: int) -> Mark:
        """Return its mark. A wait that has begun is written as a whole: never too short."""
        return Mark(self.at, until, waiting=self.waiting, wait_ms=self.wait_ms, life=self.life)

    def hear(self, mark: Mark, again_s: float) -> None:
        """Record what a worker has written of the event for which all others wait."""
        if mark.waiting is not None and not mark.late:
            # Its unit may have ended by this mark, so no report will say how long it waits.
            self.waiting, self.wait_ms = mark.waiting, mark.wait_ms
            self.wait_until(again_s)

    def wait(self, block: Block, again_s: float) -> None:
        self.maybe_sent = max(self.maybe_sent, block.sent_until)
        self.waiting, self.wait_ms = block.history or self.waiting, block.wait_ms
        self.wait_until(again_s)

    def wait_until(self, again_s: float) -> None:
        self.not_before_s = self.again_s = again_s

    def go_on(self, at: int) -> None:
        self.at, self.behind_since_s, self.is_suspect = at, None, False
        self.waiting, self.wait_ms, self.again_s = None, 0, 0.0
