"""Picks the outcome that counts when receipts disagree about an event.

The one rule of every balance: what was delivered once is delivered; else what is said after a later
re-drive counts before what was said earlier, and dead before waiting.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from shared.proof.intervals import Offsets
from shared.proof.receipt import ReceiptOutcome


def weight(outcome: ReceiptOutcome, redrive_count: int) -> tuple[bool, int, bool]:
    """The greater of two counts. Of two that weigh the same, either may."""
    if outcome is ReceiptOutcome.DELIVERED:
        return True, 0, False
    return False, redrive_count, outcome is ReceiptOutcome.DEAD


@dataclass(slots=True)
class OutcomeSets:
    """What is known of the events of one Kafka partition, whatever the order receipts come in."""

    # Everything below has an outcome: what is neither dead nor waiting there is delivered. The
    # first offset that counts, to begin with.
    base: int = 0
    delivered: Offsets = field(default_factory=Offsets)
    # By how often the events had been sent again out of dead letters. No event is in two sets.
    _dead: dict[int, Offsets] = field(default_factory=dict)
    # By that, and by what they wait for.
    _waiting: dict[tuple[int, str], Offsets] = field(default_factory=dict)
    # One past the highest offset with any outcome.
    end: int = 0

    def take(
        self, outcome: ReceiptOutcome, first: int, end: int, *, redrive_count: int, cause: str = ""
    ) -> None:
        """Enter what became of offsets; entering it twice changes nothing."""
        if first >= end:
            return
        self.end = max(self.end, end)
        if outcome is ReceiptOutcome.DELIVERED and not any(self._undelivered()):
            # Almost always; a million times when a long history is read.
            self.delivered.add(max(first, self.base), end)
            return
        changed = self._changeable(first, end)
        for offsets in self._above(outcome, redrive_count):
            changed = changed.minus(offsets)
        spans = list(changed)
        for offsets in self._undelivered():
            for start, stop in spans:
                offsets.discard(start, stop)
        match outcome:
            case ReceiptOutcome.DELIVERED:
                kept = self.delivered
            case ReceiptOutcome.DEAD:
                kept = self._dead.setdefault(redrive_count, Offsets())
            case ReceiptOutcome.WAITING:
                kept = self._waiting.setdefault((redrive_count, cause), Offsets())
            case _:
                assert_never(outcome)
        for start, stop in spans:
            kept.add(start, stop)

    def settle(self) -> None:
        """Forget which events were delivered where no gap is left."""
        while True:
            reached = max(o.reach(self.base) for o in (self.delivered, *self._dead.values()))
            if reached == self.base:
                break
            self.base = reached
        self.delivered.discard(0, self.base)

    def no_outcome(self, end: int) -> Offsets:
        """The events before `end` that nothing is known of."""
        known = [self.delivered, *self._undelivered()]
        return Offsets.of([(self.base, end)]).minus(_union(known))

    @property
    def dead(self) -> Offsets:
        return _union(self._dead.values())

    @property
    def waiting(self) -> Offsets:
        return _union(self._waiting.values())

    def waiting_by_cause(self) -> Iterator[tuple[str, int]]:
        """How many wait for what; a cause may come several times."""
        for (_, cause), offsets in self._waiting.items():
            yield cause, len(offsets)

    def _changeable(self, first: int, end: int) -> Offsets:
        """Those of the offsets that are not known to be delivered."""
        changeable = Offsets.of([(max(first, self.base), end)]).minus(self.delivered)
        for offsets in self._undelivered():
            for start, stop in offsets.within(first, min(end, self.base)):
                changeable.add(start, stop)
        return changeable

    def _undelivered(self) -> Iterator[Offsets]:
        yield from self._dead.values()
        yield from self._waiting.values()

    def _above(self, outcome: ReceiptOutcome, redrive_count: int) -> Iterator[Offsets]:
        """What counts before an outcome after so many re-drives; before delivered, nothing."""
        own = weight(outcome, redrive_count)
        for count, offsets in self._dead.items():
            if weight(ReceiptOutcome.DEAD, count) > own:
                yield offsets
        for (count, _), offsets in self._waiting.items():
            if weight(ReceiptOutcome.WAITING, count) > own:
                yield offsets


def _union(sets: Iterable[Offsets]) -> Offsets:
    return Offsets.of(span for offsets in sets for span in offsets)
