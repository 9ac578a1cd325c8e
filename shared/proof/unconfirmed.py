"""Keeps receipts of undelivered events back until their lane has moved on.

The receipts of a task and the records that they are about are written at the same time. If Kafka
refuses a dead letter, its receipt may still be stored; then the lane does not move, and the same
events are read again.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, Position
from shared.proof.intervals import Offsets
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome

# The facts that a repeat of the same task reports again.
_Said = tuple[ReceiptOutcome, str, int, tuple[CoveredOffsets, ...]]


@dataclass(slots=True)
class UnconfirmedReceipts:
    """Receipts of waiting and dead events whose lane is not known to have moved on."""

    # The reported positions of lanes, by the topics they read; None until they are fetched.
    _position: dict[KafkaPartition, int] | None = None
    _topics: set[str] = field(default_factory=set)
    _receipts: dict[_Said, Receipt] = field(default_factory=dict)

    def admit(self, receipt: Receipt) -> bool:
        """Whether a receipt counts now; if it does not, keep it until it does."""
        if self._counts(receipt):
            return True
        key = (receipt.outcome, receipt.reason, receipt.redrive_count, receipt.covered)
        self._receipts[key] = receipt
        return False

    def reached(self, position: Position) -> list[Receipt]:
        """Record the lanes' positions; return the kept receipts that count now."""
        self._position = {**(self._position or {}), **position}
        self._topics.update(topic for topic, _ in position)
        receipts, self._receipts = self._receipts, {}
        return [receipt for receipt in receipts.values() if self.admit(receipt)]

    def position(self, topic: str, partition: int) -> int | None:
        """The lane's position; None if it never reported one, or if Kafka has forgotten it."""
        if self._position is None or topic not in self._topics:
            return None
        # The lane reports on the topic: if a Kafka partition is missing, it has not begun there.
        return self._position.get(KafkaPartition(topic, partition), 0)

    def offsets(self) -> Mapping[KafkaPartition, Offsets]:
        """The events that the kept receipts are about."""
        offsets: defaultdict[KafkaPartition, Offsets] = defaultdict(Offsets)
        for receipt in self._receipts.values():
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
        # If a lane never reported a position, its receipts are all that is known.
        return position is None or at.offset < position
