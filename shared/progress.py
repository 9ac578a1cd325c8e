"""Decides what receipts prove of one destination as they come: how far, how late, what waits why.

What is final below the first open event is kept as counts only, so that what is held in memory
follows what is open, not what has ever been.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from shared.attempt import Failed, Failure, Outcome, classify
from shared.audit import Balance
from shared.intervals import Offsets
from shared.receipt import Receipt, ReceiptOutcome
from shared.rolling import Rolling

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
    """One Kafka partition of the stream. Everything in [first, base) is final."""

    first: int
    base: int
    delivered_below: int = 0
    dead_below: int = 0
    delivered: Offsets = field(default_factory=Offsets)
    dead: Offsets = field(default_factory=Offsets)
    waiting: dict[str, Offsets] = field(default_factory=dict)
    # One past the highest offset with any outcome.
    end: int = 0

    def take(self, outcome: ReceiptOutcome, reason: str, first: int, end: int) -> None:
        """Enter what became of offsets; entering it twice changes nothing."""
        first = max(first, self.base)
        self.end = max(self.end, end)
        match outcome:
            case ReceiptOutcome.DELIVERED:
                self.delivered.add(first, end)
            case ReceiptOutcome.DEAD:
                self.dead.add(first, end)
            case ReceiptOutcome.WAITING:
                here = Offsets.of([(first, end)])
                cause = cause_of(reason)
                # The newest reason counts.
                for other in self.waiting:
                    if other != cause:
                        self.waiting[other] = self.waiting[other].minus(here)
                self.waiting.setdefault(cause, Offsets()).add(first, end)
            case _:
                assert_never(outcome)
        if outcome is not ReceiptOutcome.WAITING:
            self._settle()

    def final(self) -> Offsets:
        return self.delivered.union(self.dead)

    def _settle(self) -> None:
        """Turn what is final from the base on into counts."""
        reached = max(self.delivered.reach(self.base), self.dead.reach(self.base))
        while reached > self.base:
            dead = Offsets.of(self.dead.within(self.base, reached))
            delivered = Offsets.of(self.delivered.within(self.base, reached))
            self.delivered_below += len(delivered)
            self.dead_below += len(dead.minus(delivered))
            self.base = reached
            self.delivered = self.delivered.from_offset(reached)
            self.dead = self.dead.from_offset(reached)
            self.waiting = {
                cause: left
                for cause, offsets in self.waiting.items()
                if len(left := offsets.from_offset(reached))
            }
            reached = max(self.delivered.reach(self.base), self.dead.reach(self.base))


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

    partitions: dict[Where, PartitionProgress] = field(default_factory=dict)
    delivery: Lags = field(default_factory=Lags)
    retrier: Lags = field(default_factory=Lags)
    # When the last receipt came, by our clock; 0 while none has.
    heard_at_ms: int = 0

    def take(self, receipt: Receipt, *, now_ms: int) -> None:
        self.heard_at_ms = now_ms
        for covered in receipt.covered:
            self.partition(covered.topic, covered.partition).take(
                receipt.outcome, receipt.reason, covered.first, covered.end
            )
        lags = self.retrier if receipt.is_retry else self.delivery
        took_ms = receipt.ended_at_ms - receipt.started_at_ms
        lags.process.add(took_ms, receipt.event_count, now_ms=receipt.ended_at_ms)
        lags.in_from_accepted.merge(receipt.in_from_accepted, now_ms=receipt.ended_at_ms)
        if receipt.outcome is ReceiptOutcome.DELIVERED:
            lags.out_from_accepted.merge(receipt.out_from_accepted, now_ms=receipt.ended_at_ms)
            lags.out_from_event.merge(receipt.out_from_event, now_ms=receipt.ended_at_ms)

    def partition(self, topic: str, number: int, *, first: int = 0) -> PartitionProgress:
        where = (topic, number)
        if where not in self.partitions:
            self.partitions[where] = PartitionProgress(first=first, base=first)
        return self.partitions[where]

    def balance(
        self, log: Mapping[Where, tuple[int, int]], position: Mapping[Where, int]
    ) -> Balance:
        """The books over the log's [first, end); `position` is how far the lane says it is.

        What has no outcome is pending from there on, and unaccounted before; a lane that never
        said anything is believed to be where its last outcome is.
        """
        sums: Counter[str] = Counter()
        for where, (first, end) in log.items():
            one = self.partition(*where, first=first)
            open_before = min(end, max(position.get(where, one.end), one.base))
            final = one.final()
            dead = one.dead.minus(one.delivered)
            waiting = Offsets()
            for offsets in one.waiting.values():
                waiting = waiting.union(offsets.minus(final))
            missing = Offsets.of([(one.base, end)]).minus(final).minus(waiting)
            unaccounted = len(Offsets.of(missing.within(one.base, open_before)))
            sums["acked"] += max(end, one.base) - one.first
            sums["delivered"] += one.delivered_below + len(one.delivered)
            sums["dead"] += one.dead_below + len(dead)
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
            final = one.final()
            for cause, offsets in one.waiting.items():
                found[cause] += len(offsets.minus(final))
        return {cause: count for cause, count in sorted(found.items()) if count}

    def oldest_open(self, log: Mapping[Where, tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
        """The first event of each Kafka partition that is neither delivered nor dead."""
        for (topic, number), (first, end) in log.items():
            # A base is where the first event is that is not final.
            at = max(self.partition(topic, number, first=first).base, first)
            if at < end:
                yield topic, number, at
