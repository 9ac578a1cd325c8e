"""Picks the outcome that counts when receipts disagree about an event.

Every balance follows one rule: an event that was delivered once is delivered. Otherwise an outcome
after a later redrive outranks an earlier outcome, and dead outranks waiting.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shared.proof.intervals import Offsets
from shared.proof.receipt import ReceiptOutcome


def weight(outcome: ReceiptOutcome, redrive_count: int) -> tuple[bool, int, bool]:
    """Return an outcome's weight: the greater one counts; if they are equal, either may."""
    if outcome is ReceiptOutcome.DELIVERED:
        return True, 0, False
    return False, redrive_count, outcome is ReceiptOutcome.DEAD


@dataclass(slots=True)
class OutcomeSets:
    """The outcomes of the events of one Kafka partition, whatever the order of receipts."""

    # All events below have an outcome: those that are neither dead nor waiting are delivered. At
    # first it is the first offset that counts.
    base: int = 0
    delivered: Offsets = field(default_factory=Offsets)
    # The dead and the waiting events, by how often they had been sent again out of dead letters,
    # and by the cause of their waiting or death. No event is in two sets.
    _undelivered: dict[tuple[ReceiptOutcome, int, str], Offsets] = field(default_factory=dict)
    # One past the highest offset with any outcome.
    end: int = 0

    def take(
        self, outcome: ReceiptOutcome, first: int, end: int, *, redrive_count: int, cause: str = ""
    ) -> None:
        """Record the outcome of offsets; recording it twice changes nothing."""
        if first >= end:
            return
        self.end = max(self.end, end)
        is_delivered = outcome is ReceiptOutcome.DELIVERED
        if is_delivered and not any(self._undelivered.values()):
            # This is the usual case: it occurs a million times when a long history is read.
            self.delivered.add(max(first, self.base), end)
            return
        changed = self._changeable(first, end)
        own = weight(outcome, redrive_count)
        for (known, count, _), offsets in self._undelivered.items():
            if weight(known, count) > own:
                changed = changed.minus(offsets)
        for offsets in self._undelivered.values():
            for span in changed:
                offsets.discard(*span)
        key = (outcome, redrive_count, cause)
        kept = self.delivered if is_delivered else self._undelivered.setdefault(key, Offsets())
        for span in changed:
            kept.add(*span)

    def settle(self) -> None:
        """Forget delivered events up to the first gap."""
        while True:
            ended = (self.delivered, *self._of(ReceiptOutcome.DEAD))
            reached = max(offsets.reach(self.base) for offsets in ended)
            if reached == self.base:
                break
            self.base = reached
        self.delivered.discard(0, self.base)

    def no_outcome(self, end: int) -> Offsets:
        """The events before `end` without a known outcome."""
        sets = (self.delivered, *self._undelivered.values())
        if sum(len(known.cut(self.base, self.end)) for known in sets) == self.end - self.base:
            # The usual case: there is no gap among the outcomes, however scattered they are.
            return Offsets.of([(self.end, end)])
        known = self.delivered.union(*self._undelivered.values())
        return Offsets.of([(self.base, end)]).minus(known)

    def count(self, outcome: ReceiptOutcome, first: int, end: int) -> int:
        """How many events from `first` up to, but not including, `end` wait or are dead."""
        return sum(len(offsets.cut(first, end)) for offsets in self._of(outcome))

    @property
    def dead(self) -> Offsets:
        return Offsets().union(*self._of(ReceiptOutcome.DEAD))

    @property
    def waiting(self) -> Offsets:
        return Offsets().union(*self._of(ReceiptOutcome.WAITING))

    def by_cause(self, wanted: ReceiptOutcome) -> Iterator[tuple[str, int]]:
        """How many events wait or died, by cause; a cause may occur several times."""
        for (outcome, _, cause), offsets in self._undelivered.items():
            if outcome is wanted:
                yield cause, len(offsets)

    def _changeable(self, first: int, end: int) -> Offsets:
        """The offsets of this range that are not known to be delivered."""
        changeable = Offsets.of([(max(first, self.base), end)]).minus(self.delivered)
        for offsets in self._undelivered.values():
            for span in offsets.within(first, min(end, self.base)):
                changeable.add(*span)
        return changeable

    def _of(self, outcome: ReceiptOutcome) -> Iterator[Offsets]:
        return (offsets for key, offsets in self._undelivered.items() if key[0] is outcome)
