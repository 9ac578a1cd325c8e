"""Decides what receipts prove of one destination as they come: how far, how late, what waits why.

What is delivered below the first open event is kept as a count only, so that what is held in memory
follows what is open or dead, not what has ever been.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from observe.lag.rolling import Rolling
from shared.proof.balance import Balance
from shared.proof.intervals import Offsets
from shared.proof.outcome_sets import OutcomeSets
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.proof.unconfirmed import UnconfirmedReceipts
from shared.retry.attempt import Failed, Failure, Outcome, classify

Where = tuple[str, int]
# Not tried, or not to be tried now, by no fault of the destination's.
_PARKED = frozenset(
    failure.value for failure in Failure if classify(Failed(failure)).outcome is Outcome.PARK
)


def cause_of(reason: str) -> str:
    """Why an event waits, as one of four words."""
    if reason == "status_429" or "thrott" in reason or "rate" in reason:
        return "throttled"
    if "breaker" in reason:
        return "breaker"
    if reason in _PARKED:
        return "parked"
    return "retry"


@dataclass(slots=True)
class PartitionProgress:
    """One Kafka partition of the stream."""

    # Where the log began when it was first looked at.
    first: int
    told: OutcomeSets
    # Of those that `told` has forgotten.
    delivered_below: int = 0

    def take(self, receipt: Receipt, first: int, end: int) -> None:
        is_waiting = receipt.outcome is ReceiptOutcome.WAITING
        self.told.take(
            receipt.outcome,
            max(first, self.first),
            end,
            redrive_count=receipt.redrive_count,
            cause=cause_of(receipt.reason) if is_waiting else "",
        )
        if not is_waiting:
            self.delivered_below += self.told.settle()


@dataclass(slots=True)
class Lags:
    """How late events went through one node, of the last minutes."""

    in_from_accepted: Rolling = field(default_factory=Rolling)
    out_from_accepted: Rolling = field(default_factory=Rolling)
    out_from_event: Rolling = field(default_factory=Rolling)
    process: Rolling = field(default_factory=Rolling)


@dataclass(slots=True)
class Progress:
    """One destination."""

    destination_id: str
    partitions: dict[Where, PartitionProgress] = field(default_factory=dict)
    delivery: Lags = field(default_factory=Lags)
    retrier: Lags = field(default_factory=Lags)
    # When the last receipt came, by our clock; 0 while none has.
    heard_at_ms: int = 0
    _unsure: UnconfirmedReceipts = field(default_factory=UnconfirmedReceipts)

    def take(self, receipt: Receipt, *, now_ms: int) -> None:
        assert receipt.destination_id == self.destination_id, "another destination's receipt"
        self.heard_at_ms = now_ms
        if self._unsure.admit(receipt):
            self._count(receipt)
        lags = self.retrier if receipt.is_retry else self.delivery
        took_ms = receipt.ended_at_ms - receipt.started_at_ms
        lags.process.add(took_ms, receipt.event_count, now_ms=receipt.ended_at_ms)
        lags.in_from_accepted.merge(receipt.in_from_accepted, now_ms=receipt.ended_at_ms)
        if receipt.outcome is ReceiptOutcome.DELIVERED:
            lags.out_from_accepted.merge(receipt.out_from_accepted, now_ms=receipt.ended_at_ms)
            lags.out_from_event.merge(receipt.out_from_event, now_ms=receipt.ended_at_ms)

    def reached(self, position: Mapping[Where, int]) -> None:
        """Enter how far the lane and the retrier say they are."""
        for receipt in self._unsure.reached(position):
            self._count(receipt)

    @property
    def is_sure(self) -> bool:
        """Whether all that has been said counts by now."""
        return next(self._unsure.offsets(), None) is None

    def _count(self, receipt: Receipt) -> None:
        for covered in receipt.covered:
            where = self.partition(covered.topic, covered.partition)
            where.take(receipt, covered.first, covered.end)

    def partition(self, topic: str, number: int, *, first: int = 0) -> PartitionProgress:
        where = (topic, number)
        if where not in self.partitions:
            self.partitions[where] = PartitionProgress(first, OutcomeSets(base=first))
        return self.partitions[where]

    def balance(
        self, log: Mapping[Where, tuple[int, int]], position: Mapping[Where, int]
    ) -> Balance:
        """The books over the log's [first, end); `position` is how far the lane says it is.

        What has no outcome is pending from there on, and unaccounted before; a lane that never
        said anything is believed to be where its last outcome is.
        """
        sums: Counter[str] = Counter()
        unsure = dict(self._unsure.offsets())
        for where, (first, end) in log.items():
            one = self.partition(*where, first=first)
            told = one.told
            open_before = min(end, max(position.get(where, told.end), told.base))
            dead, waiting = told.dead, told.waiting
            known = told.delivered.union(dead).union(waiting)
            missing = Offsets.of([(told.base, end)]).minus(known)
            passed = Offsets.of(missing.within(told.base, open_before))
            unaccounted = len(passed.minus(unsure.get(where, Offsets())))
            sums["acked"] += max(end, told.base) - one.first
            sums["delivered"] += one.delivered_below + len(told.delivered)
            sums["dead"] += len(dead)
            sums["waiting"] += len(waiting)
            sums["unaccounted"] += unaccounted
            sums["pending"] += len(missing) - unaccounted
        return Balance(
            acked=sums["acked"],
            delivered=sums["delivered"],
            waiting=sums["waiting"],
            dead=sums["dead"],
            pending=sums["pending"],
            unaccounted=sums["unaccounted"],
        )

    def waiting_by_cause(self) -> dict[str, int]:
        """How many wait for which reason."""
        found: Counter[str] = Counter()
        for one in self.partitions.values():
            for cause, count in one.told.waiting_by_cause():
                found[cause] += count
        return {cause: count for cause, count in sorted(found.items()) if count}

    def oldest_open(self, log: Mapping[Where, tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
        """The first event of each Kafka partition that was never delivered nor dead.

        What a person has sent again out of dead letters is under way, yet not old: it began anew.
        """
        for (topic, number), (first, end) in log.items():
            # A base is where the first such event is.
            at = max(self.partition(topic, number, first=first).told.base, first)
            if at < end:
                yield topic, number, at
