"""Decides whether the books balance: acked = delivered + waiting + dead + pending + unaccounted.

Receipts say what became of which offsets; the stream topic says which offsets there are. The
difference is set arithmetic over offsets, so a duplicate can never hide a loss.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.intervals import Offsets
from shared.receipt import Receipt, ReceiptOutcome


@dataclass(frozen=True, slots=True)
class Balance:
    """The books of one stream and destination. `unaccounted` above 0 is a loss until explained."""

    acked: int
    delivered: int
    waiting: int
    dead: int
    # Past the last event with any outcome: the lane has not come to it yet.
    pending: int
    unaccounted: int

    @property
    def is_settled(self) -> bool:
        """Nothing is on its way: what is not delivered or dead now is lost."""
        return self.pending == 0 and self.waiting == 0

    @property
    def is_balanced(self) -> bool:
        return self.unaccounted == 0


@dataclass(slots=True)
class Coverage:
    """What the receipts of one destination prove, by Kafka partition of the stream topic."""

    # By outcome and by how often the events had been sent again out of dead letters.
    _offsets: dict[tuple[ReceiptOutcome, int], dict[tuple[str, int], Offsets]] = field(
        default_factory=dict,
    )

    def take(self, receipt: Receipt) -> None:
        """Enter one receipt; entering it twice changes nothing."""
        by_partition = self._offsets.setdefault((receipt.outcome, receipt.redrive_count), {})
        for covered in receipt.covered:
            where = (covered.topic, covered.partition)
            by_partition.setdefault(where, Offsets()).add(covered.first, covered.end)

    def offsets(self, outcome: ReceiptOutcome, topic: str, partition: int) -> Offsets:
        """The events with that outcome, less those whose outcome has been overtaken.

        An event that was sent again is no longer dead, whatever the receipt of its death says;
        what the later receipts say counts. What was delivered once is delivered.
        """
        found = Offsets()
        for (kind, redrive_count), by_partition in self._offsets.items():
            if kind is outcome and (topic, partition) in by_partition:
                ours = by_partition[topic, partition]
                if outcome is not ReceiptOutcome.DELIVERED:
                    ours = ours.minus(self._after(redrive_count, topic, partition))
                found = ours if not found else found.union(ours)
        return found

    def _after(self, redrive_count: int, topic: str, partition: int) -> Offsets:
        """Events of which something is known from after a later re-drive."""
        found = Offsets()
        for (_, later), by_partition in self._offsets.items():
            if later > redrive_count and (topic, partition) in by_partition:
                found = found.union(by_partition[topic, partition])
        return found

    def balance(self, acked: Mapping[tuple[str, int], tuple[int, int]]) -> Balance:
        """Lay the receipts over the log; `acked` gives each Kafka partition's [first, end).

        An event with two outcomes (a retry that was later delivered, a crash between outcome and
        checkpoint) counts once: delivered before dead, dead before waiting.
        """
        sums: Counter[str] = Counter()
        for (topic, partition), (first, end) in acked.items():
            log = Offsets.of([(first, end)])
            covered = Offsets()
            for outcome in (ReceiptOutcome.DELIVERED, ReceiptOutcome.DEAD, ReceiptOutcome.WAITING):
                found = self.offsets(outcome, topic, partition)
                in_log = Offsets.of(found.within(first, end))
                sums[outcome.value] += len(in_log.minus(covered))
                covered = covered.union(in_log)
            missing = log.minus(covered)
            pending = Offsets.of(missing.within(max(first, covered.end), end))
            sums["acked"] += len(log)
            sums["pending"] += len(pending)
            sums["unaccounted"] += len(missing) - len(pending)
        return Balance(
            acked=sums["acked"],
            delivered=sums["delivered"],
            waiting=sums["waiting"],
            dead=sums["dead"],
            pending=sums["pending"],
            unaccounted=sums["unaccounted"],
        )


def events_per_minute(receipts: Iterable[Receipt]) -> Counter[int]:
    """Events per minute of their own time, over all receipts given."""
    minutes: Counter[int] = Counter()
    for receipt in receipts:
        minutes.update(receipt.minutes)
    return minutes
