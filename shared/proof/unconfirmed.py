"""Decides which receipts count: those of undelivered events only once their lane has gone on.

The receipts of a task and the records that they tell of are written side by side. If Kafka refuses
a dead letter, its receipt may be stored all the same; then the lane does not move, and the same
events are read again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shared.proof.intervals import Offsets
from shared.proof.receipt import Covered, Receipt, ReceiptOutcome

Where = tuple[str, int]
# What a repeat of the same task says once more.
_Said = tuple[ReceiptOutcome, str, int, tuple[Covered, ...]]


@dataclass(slots=True)
class UnconfirmedReceipts:
    """Receipts of waiting and dead events whose lane is not known to have gone on."""

    # How far lanes have said they are, by what they read; None: nobody has asked them yet.
    _position: dict[Where, int] | None = None
    _spoken_of: set[str] = field(default_factory=set)
    _held: dict[_Said, Receipt] = field(default_factory=dict)

    def admit(self, receipt: Receipt) -> bool:
        """Whether a receipt counts now; one that does not is kept until it does."""
        if self._is_sure(receipt):
            return True
        said = (receipt.outcome, receipt.reason, receipt.redrive_count, receipt.covered)
        self._held[said] = receipt
        return False

    def reached(self, position: Mapping[Where, int]) -> list[Receipt]:
        """Enter how far all lanes are that may have written them; those that count from now on."""
        self._position = {**(self._position or {}), **position}
        self._spoken_of.update(topic for topic, _ in position)
        sure = {said: one for said, one in self._held.items() if self._is_sure(one)}
        for said in sure:
            del self._held[said]
        return list(sure.values())

    def offsets(self) -> Iterator[tuple[Where, Offsets]]:
        """The events that the kept receipts tell of, by Kafka partition."""
        found: dict[Where, Offsets] = {}
        for receipt in self._held.values():
            for part in receipt.covered:
                at = found.setdefault((part.topic, part.partition), Offsets())
                at.add(part.first, part.end)
        yield from found.items()

    def _is_sure(self, receipt: Receipt) -> bool:
        at = receipt.read_at
        if at is None:
            return True
        if self._position is None:
            return False
        # Of a lane that never said how far it is, or so long ago that Kafka forgot it, nothing
        # better is known than what its receipts say.
        if at.topic not in self._spoken_of:
            return True
        return at.offset < self._position.get((at.topic, at.partition), 0)
