"""Finds complete minutes, and the stage of each loss: each minute is a set of offsets.

The gateway's ledger says which offsets a minute has, and receipts give their outcomes. A lane's
position separates events that it has not reached from those that it passed and lost. The records
of tiers and dead letters show whether the events that should be there are. All of it is set
arithmetic over offsets, so duplicates, retries and restarts change nothing.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce

from msgspec import Struct, field

from observe.audit.evidence import Evidence, Layers
from shared.event.record import KafkaPartition
from shared.proof.balance import Balance, gaps_of
from shared.proof.intervals import Offsets
from shared.proof.overview import Stage

# The kinds of records in `Evidence.records`.
WRITTEN, PASSED, DEAD = "written", "passed", "dead"
# The time that the gateway has to write its ledger, before the audit looks in the log.
_LEDGER_GRACE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """The times that the audit waits."""

    # The time from a minute's last event to its judgement, and from a suspicion to a loss.
    check_after_ms: int
    # The further time after which an unchecked minute is overdue.
    overdue_ms: int

    @property
    def ledger_grace_ms(self) -> int:
        """The time after which the audit looks in the log for events that no ledger names."""
        return min(_LEDGER_GRACE_MS, self.check_after_ms)


class Outcomes(Struct, forbid_unknown_fields=True):
    """The known outcomes of one destination in one Kafka partition."""

    delivered: Offsets = field(default_factory=Offsets)
    dead: Offsets = field(default_factory=Offsets)
    waiting: Offsets = field(default_factory=Offsets)
    # Outcomes of events after a redrive, by `life`.
    lives: dict[str, Offsets] = {}
    # Events in a tier now, events ever in a tier, and events in dead letters.
    in_tier: Layers = field(default_factory=Layers)
    was_in_tier: Offsets = field(default_factory=Offsets)
    in_dead: Offsets = field(default_factory=Offsets)
    # Suspects at each time: (epoch ms, stage, offsets), oldest first.
    suspects: list[tuple[int, Stage, Offsets]] = []
    # Offsets of minutes that are checked for this destination, but open for another.
    done: Offsets = field(default_factory=Offsets)

    def of(self, outcome: str) -> Offsets:
        """Return the set of offsets with this outcome, to add to."""
        by_name = {"delivered": self.delivered, "dead": self.dead, "waiting": self.waiting}
        known = by_name.get(outcome)
        return self.lives.setdefault(outcome, Offsets()) if known is None else known

    def forget(self, gone: Offsets) -> None:
        """Drop everything about these offsets."""
        self.delivered = self.delivered.minus(gone)
        self.dead = self.dead.minus(gone)
        self.waiting = self.waiting.minus(gone)
        self.lives = {name: offsets.minus(gone) for name, offsets in self.lives.items()}
        self.in_tier.forget(gone)
        self.was_in_tier = self.was_in_tier.minus(gone)
        self.in_dead = self.in_dead.minus(gone)

    @property
    def end(self) -> int:
        """One past the highest offset with any known fact."""
        sets = (self.delivered, self.dead, self.waiting, self.was_in_tier, self.in_dead, self.done)
        return max(known.end for known in sets)

    @property
    def redriven(self) -> Offsets:
        """The offsets that were redriven at least once."""
        return Offsets.of(span for offsets in self.lives.values() for span in offsets)

    @property
    def unended(self) -> Offsets:
        """The offsets that were redriven and not given up since: their dead letters are older."""
        unended = Offsets()
        for count, offsets in self._after("waiting"):
            left = offsets
            for later, ended in self._after("dead"):
                if later >= count:
                    left = left.minus(ended)
            unended = unended.union(left)
        return unended

    def _after(self, outcome: str) -> Iterator[tuple[int, Offsets]]:
        for name, offsets in self.lives.items():
            ended, _, count = name.partition("@")
            if ended == outcome:
                yield int(count), offsets


def enter_outcomes(
    outcomes: dict[tuple[str, KafkaPartition], Outcomes],
    evidence: Evidence,
    done: Mapping[KafkaPartition, Offsets],
    met: AbstractSet[str] | None,
) -> None:
    """Enter the outcomes in receipts, tiers and dead letters, except those of `done` offsets.

    If `met` is given, destinations that are not in it get the outcomes of `done` offsets as well.
    """
    for (destination, outcome, topic, partition), offsets in evidence.outcomes.items():
        where = KafkaPartition(topic, partition)
        known = outcomes.setdefault((destination, where), Outcomes())
        closed = done.get(where, Offsets()) if met is None or destination in met else Offsets()
        for first, end in offsets.minus(closed).minus(known.done):
            known.of(outcome).add(first, end)
    for (kind, destination, topic, partition), layers in evidence.records.items():
        where = KafkaPartition(topic, partition)
        known = outcomes.setdefault((destination, where), Outcomes())
        closed = done.get(where, Offsets()) if met is None or destination in met else Offsets()
        closed = closed.union(known.done)
        for span in layers:
            for first, end in Offsets.of([span]).minus(closed):
                _enter_record(known, kind, first, end)


def _enter_record(known: Outcomes, kind: str, first: int, end: int) -> None:
    if kind == DEAD:
        known.in_dead.add(first, end)
    elif kind == WRITTEN:
        known.in_tier.add(first, end)
        known.was_in_tier.add(first, end)
    else:
        known.in_tier.remove(first, end)


@dataclass(frozen=True, slots=True)
class Account:
    """The outcomes of some offsets at a destination, and suspects by the stage that lacks them."""

    balance: Balance
    suspects: Mapping[Stage, Offsets]


def account_for(
    acked: Offsets, known: Outcomes, *, position: int | None, log: tuple[int, int]
) -> Account:
    """Compare the known outcomes with offsets; a lane without a position has passed nothing yet.

    Offsets outside the log without an outcome are lost by Kafka. Receipts of waiting and dead
    events may be stored before their records are: until the lane has moved past such an event, the
    receipt does not count.
    """
    rest = acked.minus(known.delivered)
    in_tier = known.in_tier.present
    dead = rest.both(known.dead)
    # Such events still wait: either the retrier has given them up but not passed them yet, or they
    # were redriven after their dead letter, whether or not a tier still has them.
    still_waiting = dead.both(in_tier).minus(known.in_dead.minus(known.redriven))
    still_waiting = still_waiting.union(dead.both(known.unended))
    dead = _believed(dead.minus(still_waiting), known.in_dead, position)
    rest = rest.minus(dead)
    waiting = _believed(rest.both(known.waiting).union(still_waiting), in_tier, position)
    gaps = gaps_of(
        rest.minus(waiting),
        # Events with a record need no confirmation.
        unconfirmed=Offsets(),
        position=0 if position is None else position,
        log=log,
    )
    not_in_tier = waiting.minus(in_tier)
    suspects = {
        Stage.QUEUE: gaps.not_in_log,
        Stage.DELIVERY: gaps.passed,
        Stage.RETRY_TIER: not_in_tier.minus(known.was_in_tier),
        Stage.RETRIER: not_in_tier.both(known.was_in_tier),
        Stage.DEAD_LETTERS: dead.minus(known.in_dead),
    }
    balance = gaps.balance(len(acked), waiting=len(waiting), dead=len(dead))
    return Account(balance, {stage: offsets for stage, offsets in suspects.items() if offsets})


def _believed(said: Offsets, records: Offsets, position: int | None) -> Offsets:
    """Return the offsets that have a record, or must have one because the lane passed them."""
    without = said.minus(records)
    return said.minus(without if position is None else without.from_offset(position))


def confirmed(
    known: Outcomes, suspects: Mapping[Stage, Offsets], rules: Rules, *, now_ms: int
) -> dict[Stage, Offsets]:
    """Return the offsets that have been suspects at the same stage for the checking time."""
    if rules.check_after_ms == 0:
        return dict(suspects)
    since_ms = now_ms - rules.check_after_ms
    by_stage: dict[Stage, Offsets] = {}
    for stage, offsets in suspects.items():
        old = [o for at, n, o in known.suspects if n is stage and at <= since_ms]
        later = [o for at, n, o in known.suspects if n is stage and at > since_ms]
        if old and (sure := reduce(Offsets.both, [old[-1], *later], offsets)):
            by_stage[stage] = sure
    return by_stage


def remember_suspects(
    known: Outcomes, suspects: Mapping[Stage, Offsets], rules: Rules, *, now_ms: int
) -> None:
    """Remember the suspects now, and earlier ones as far back as the rules need."""
    since_ms = now_ms - rules.check_after_ms
    recent = [seen for seen in known.suspects if seen[0] > since_ms]
    newest_old = {seen[1]: seen for seen in known.suspects if seen[0] <= since_ms}
    known.suspects = [
        *newest_old.values(),
        *recent,
        *((now_ms, stage, offsets) for stage, offsets in suspects.items()),
    ]
