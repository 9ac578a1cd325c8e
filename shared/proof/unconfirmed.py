"""Keeps receipts of undelivered events back until their lane has gone on.

The receipts of a task and the records that they tell of are written side by side. If Kafka refuses
a dead letter, its receipt may be stored all the same; then the lane does not move, and the same
events are read again.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, Position
from shared.proof.intervals import Offsets
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome

# The facts that a repeat of the same task tells once more.
_Said = tuple[ReceiptOutcome, str, int, tuple[CoveredOffsets, ...]]


@dataclass(slots=True)
class UnconfirmedReceipts:
    """Receipts of waiting and dead events whose lane is not known to have gone on."""

    # How far lanes have said they are, by the topics they read; None until somebody asks them.
    _position: dict[KafkaPartition, int] | None = None
    _topics: set[str] = field(default_factory=set)
    _held: dict[_Said, Receipt] = field(default_factory=dict)

    def admit(self, receipt: Receipt) -> bool:
        """Whether a receipt counts now; one that does not is kept until it does."""
        if self._counts(receipt):
            return True
        key = (receipt.outcome, receipt.reason, receipt.redrive_count, receipt.covered)
        self._held[key] = receipt
        return False

    def reached(self, position: Position) -> list[Receipt]:
        """Enter how far all lanes are that may have written them; return those that count now."""
        self._position = {**(self._position or {}), **position}
        self._topics.update(topic for topic, _ in position)
        held, self._held = self._held, {}
        return [receipt for receipt in held.values() if self.admit(receipt)]

    def position(self, topic: str, partition: int) -> int | None:
        """How far the lane is; None if it never said so, or if Kafka has long forgotten it."""
        if self._position is None or topic not in self._topics:
            return None
        # A lane that speaks of the topic has not begun with a Kafka partition that it leaves out.
        return self._position.get(KafkaPartition(topic, partition), 0)

    def offsets(self) -> Mapping[KafkaPartition, Offsets]:
        """The events that the kept receipts tell of."""
        offsets: defaultdict[KafkaPartition, Offsets] = defaultdict(Offsets)
        for receipt in self._held.values():
            for topic, partition, first, end in receipt.covered:
                offsets[KafkaPartition(topic, partition)].add(first, end)
        return offsets

    def _counts(self, receipt: Receipt) -> bool:
        if receipt.read_at is None:
            return True
        if self._position is None:
            return False
        at = receipt.read_at
        position = self.position(at.topic, at.partition)
        # If a lane never said anything, nothing better is known than what its receipts say.
        return position is None or at.offset < position
