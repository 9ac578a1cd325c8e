"""Decides whether the books balance: acked = delivered + waiting + dead + pending + unaccounted.

Receipts say what became of which offsets; the stream topic says which offsets there are. The
difference is set arithmetic over offsets, so a duplicate can never hide a loss.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.proof.intervals import Offsets
from shared.proof.outcome_sets import OutcomeSets
from shared.proof.receipt import Receipt
from shared.proof.unconfirmed import UnconfirmedReceipts


@dataclass(frozen=True, slots=True)
class Balance:
    """The books of one stream and destination. `unaccounted` above 0 is a loss until explained."""

    acked: int
    delivered: int
    waiting: int
    dead: int
    # Past the last event with any outcome: the lane has not come to it yet. Or it has, and what
    # became of it is not known to be stored.
    pending: int
    unaccounted: int

    @property
    def is_settled(self) -> bool:
        """Nothing is on its way: what is not delivered or dead now is lost."""
        return self.pending == 0 and self.waiting == 0


@dataclass(slots=True)
class Coverage:
    """What the receipts of one destination prove, by Kafka partition of the stream topic."""

    destination_id: str
    _told: dict[tuple[str, int], OutcomeSets] = field(default_factory=dict)
    _unsure: UnconfirmedReceipts = field(default_factory=UnconfirmedReceipts)

    def take(self, receipt: Receipt) -> None:
        """Enter one receipt; entering it twice changes nothing."""
        assert receipt.destination_id == self.destination_id, "another destination's receipt"
        if self._unsure.admit(receipt):
            self._count(receipt)

    def reached(self, position: Mapping[tuple[str, int], int]) -> None:
        """Enter how far the lane and the retrier say they are."""
        for receipt in self._unsure.reached(position):
            self._count(receipt)

    def _count(self, receipt: Receipt) -> None:
        for covered in receipt.covered:
            self._told.setdefault((covered.topic, covered.partition), OutcomeSets()).take(
                receipt.outcome, covered.first, covered.end, redrive_count=receipt.redrive_count
            )

    def balance(self, acked: Mapping[tuple[str, int], tuple[int, int]]) -> Balance:
        """Lay the receipts over the log; `acked` gives each Kafka partition's [first, end).

        An event with several outcomes (a retry that was later delivered, a re-drive, a crash
        between outcome and checkpoint) counts once, as `OutcomeSets` decides.
        """
        sums: Counter[str] = Counter()
        unsure = dict(self._unsure.offsets())
        for where, (first, end) in acked.items():
            told = self._told.get(where, OutcomeSets())
            log = Offsets.of([(first, end)])
            covered = Offsets()
            for name, offsets in (
                ("delivered", told.delivered),
                ("waiting", told.waiting),
                ("dead", told.dead),
            ):
                in_log = Offsets.of(offsets.within(first, end))
                sums[name] += len(in_log)
                covered = covered.union(in_log)
            missing = log.minus(covered)
            pending = Offsets.of(missing.within(max(first, covered.end), end)).union(
                missing.both(unsure.get(where, Offsets()))
            )
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
