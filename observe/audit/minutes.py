"""Finds which minutes are complete, and who lost what: each minute is a set of offsets.

The gateway's ledger says which offsets a minute has; receipts say what became of them; a lane's
position tells what it has not come to yet from what it passed and lost; the records of tiers and
dead letters show whether what should rest there does. All of it is set arithmetic over offsets, so
duplicates, retries and restarts change nothing.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce

import msgspec
from msgspec import Struct, field

from observe.audit.evidence import Claim, Evidence
from observe.audit.layers import Layers
from shared.event.record import KafkaPartition
from shared.event.times import MINUTE_MS
from shared.proof.balance import Balance, balanced
from shared.proof.intervals import Offsets
from shared.proof.overview import Node

# What `Evidence.records` calls them.
WRITTEN, PASSED, DEAD = "written", "passed", "dead"
# What the gateway may take to write its ledger; the log is not asked before.
_LEDGER_GRACE_MS = 10_000
# What pipelines and restores write may be of long ago, and a minute of it come in parts: it stays
# known for a while after it was closed, but at most so many of all streams (1 KB each).
_LATE_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Rules:
    """How patient the audit is."""

    # A minute is judged so long after its last event, and a loss after it has been one so long.
    settle_ms: int
    # What is not settled so long after that cannot be told.
    blind_ms: int

    @property
    def ledger_grace_ms(self) -> int:
        """So long after an event was stored the log is asked for it, if no ledger names it."""
        return min(_LEDGER_GRACE_MS, self.settle_ms)


class LedgerMinute(Struct, forbid_unknown_fields=True):
    """The offsets that one event-time minute of a stream has, by Kafka partition."""

    acked: dict[int, Offsets] = {}
    # Offsets [first, end) of a Kafka partition that Kafka gave to two acknowledged events: the
    # first of the two is gone.
    overwritten: list[tuple[int, int, int]] = []
    # When the newest of its events was accepted.
    accepted_at_ms: int = 0
    # The records of the ledger that name its events, by Kafka partition of the ledger.
    ledger: dict[int, Offsets] = {}
    # When a loss was told first, by destination.
    told: dict[str, int] = {}
    # Of destinations that it is settled for: delivered and dead, unless all were delivered.
    ended: dict[str, tuple[int, int]] = {}
    # How many of them pipelines wrote, and no gateway acknowledged.
    derived: int = 0

    @property
    def count(self) -> int:
        overwritten = sum(end - first for _, first, end in self.overwritten)
        return sum(len(offsets) for offsets in self.acked.values()) + overwritten

    def quiet_since_ms(self, minute_ms: int) -> int:
        """When the minute was over and its last event had come."""
        over_ms = minute_ms + MINUTE_MS if minute_ms >= 0 else 0
        return max(over_ms, self.accepted_at_ms)


class Closed(Struct, forbid_unknown_fields=True):
    """What is left of a minute that was closed: counts, and where the ledger names its events."""

    acked: int = 0
    # By destination: delivered and dead.
    outcomes: dict[str, tuple[int, int]] = {}
    ledger: dict[int, Offsets] = {}
    derived: int = 0
    # Those of its events that only the log names.
    in_log: dict[int, Offsets] = {}
    # When that was.
    at_ms: int = 0


def late_ones(
    closed: Mapping[tuple[str, int], Closed],
    others: AbstractSet[tuple[str, int]],
    old_ms: int,
) -> set[tuple[str, int]]:
    """Of those that are not among the others: closed lately, with more that may come of the log."""
    late = [
        key
        for key, one in closed.items()
        if key not in others and one.in_log and one.at_ms >= old_ms
    ]
    return set(sorted(late, key=lambda key: -closed[key].at_ms)[:_LATE_MAX])


class Outcomes(Struct, forbid_unknown_fields=True):
    """What is known of one destination in one Kafka partition."""

    delivered: Offsets = field(default_factory=Offsets)
    dead: Offsets = field(default_factory=Offsets)
    waiting: Offsets = field(default_factory=Offsets)
    # What was said of events after they had been sent again out of dead letters, by `life`.
    lives: dict[str, Offsets] = {}
    # In a tier now, and ever; and in dead letters.
    in_tier: Layers = field(default_factory=Layers)
    was_in_tier: Offsets = field(default_factory=Offsets)
    in_dead: Offsets = field(default_factory=Offsets)
    # What has been a suspect since when: (epoch ms, node, offsets), oldest first.
    suspects: list[tuple[int, Node, Offsets]] = []
    # Offsets of minutes that are settled for this destination, and open for another.
    done: Offsets = field(default_factory=Offsets)

    def of(self, outcome: str) -> Offsets:
        """The set that an outcome's offsets go into."""
        by_name = {"delivered": self.delivered, "dead": self.dead, "waiting": self.waiting}
        known = by_name.get(outcome)
        return self.lives.setdefault(outcome, Offsets()) if known is None else known

    def forget(self, gone: Offsets) -> None:
        """Know nothing of these any more."""
        self.delivered = self.delivered.minus(gone)
        self.dead = self.dead.minus(gone)
        self.waiting = self.waiting.minus(gone)
        self.lives = {name: offsets.minus(gone) for name, offsets in self.lives.items()}
        self.in_tier.forget(gone)
        self.was_in_tier = self.was_in_tier.minus(gone)
        self.in_dead = self.in_dead.minus(gone)

    @property
    def end(self) -> int:
        """One past the highest offset that anything is known of."""
        sets = (self.delivered, self.dead, self.waiting, self.was_in_tier, self.in_dead, self.done)
        return max(known.end for known in sets)

    @property
    def redriven(self) -> Offsets:
        """Sent again out of dead letters, once or more."""
        return Offsets.of(span for offsets in self.lives.values() for span in offsets)

    @property
    def unended(self) -> Offsets:
        """Sent again, and not given up since: their dead letters tell of an earlier life."""
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
            said, _, count = name.partition("@")
            if said == outcome:
                yield int(count), offsets


_MINUTE = msgspec.msgpack.Decoder(LedgerMinute)


class Ledger(Struct, forbid_unknown_fields=True):
    """Every open minute of one stream, and of its Kafka partitions what has been claimed."""

    minutes: dict[int, LedgerMinute] = {}
    claimed: dict[int, Offsets] = {}
    # What was claimed by the log itself, as the gateway's ledger said nothing of it.
    from_log: dict[int, Offsets] = {}
    # By destination: the numbers of those minutes that are settled for it, and open for another.
    settled: dict[str, Offsets] = {}
    # Minutes too, old ones: as they are few, but for an outage, when they take a tenth of the room.
    packed: dict[int, bytes] = {}
    # By Kafka partition: no offset of a packed minute is lower.
    lowest: dict[int, int] = {}

    def __contains__(self, minute_ms: int) -> bool:
        return minute_ms in self.minutes or minute_ms in self.packed

    def times_ms(self) -> list[int]:
        """Of every open minute, in their order."""
        return sorted([*self.minutes, *self.packed])

    def look(self, minute_ms: int) -> LedgerMinute:
        """An open minute, to read in it only."""
        packed = self.packed.get(minute_ms)
        return self.minutes[minute_ms] if packed is None else _MINUTE.decode(packed)

    def unpack(self, minute_ms: int) -> LedgerMinute:
        """An open minute, to change it."""
        if minute_ms in self.packed:
            self.minutes[minute_ms] = _MINUTE.decode(self.packed.pop(minute_ms))
        return self.minutes[minute_ms]

    def pack(self, minute_ms: int) -> None:
        minute = self.minutes.pop(minute_ms)
        if not self.packed:
            self.lowest.clear()
        for partition, offsets in minute.acked.items():
            self.lowest[partition] = min(offsets.start, self.lowest.get(partition, offsets.start))
        self.packed[minute_ms] = msgspec.msgpack.encode(minute)

    def enter(self, claim: Claim, *, is_from_log: bool = False) -> Offsets:
        """Enter one claim. Offsets that were claimed before belong to another event now: these."""
        claimed = self.claimed.setdefault(claim.partition, Offsets())
        from_log = self.from_log.setdefault(claim.partition, Offsets())
        if claim.minute not in self:
            self.minutes[claim.minute] = LedgerMinute()
        minute = self.unpack(claim.minute)
        self._reopen(minute, number_of(claim.minute))
        fresh = Offsets.of([(claim.first, claim.end)])
        again = Offsets.of(claimed.within(claim.first, claim.end))
        taken = again.minus(from_log)
        if again:
            for first, end in taken:
                self._overwrite(claim.partition, first, end)
            # What the log said before is the same event, which now has its row.
            fresh = fresh.minus(Offsets.of(from_log.within(claim.first, claim.end)))
            self.from_log[claim.partition] = from_log.minus(again)
        claimed.add(claim.first, claim.end)
        offsets = minute.acked.setdefault(claim.partition, Offsets())
        for first, end in fresh:
            offsets.add(first, end)
            if is_from_log:
                self.from_log[claim.partition].add(first, end)
            if claim.is_derived:
                minute.derived += end - first
        minute.accepted_at_ms = max(minute.accepted_at_ms, claim.accepted_at_ms)
        number, low, high = claim.ledger
        if number >= 0:
            minute.ledger.setdefault(number, Offsets()).add(low, high + 1)
        return taken

    def first_claimed(self, partition: int, end: int) -> int:
        """The lowest offset that anybody claims; the end if nobody claims any."""
        claimed = self.claimed.get(partition)
        return claimed.start if claimed else end

    def only_in_log(self, minute: LedgerMinute) -> dict[int, Offsets]:
        """Those of its events that no row of the ledger names."""
        found = {
            partition: offsets.both(self.from_log.get(partition, Offsets()))
            for partition, offsets in minute.acked.items()
        }
        return {partition: offsets for partition, offsets in found.items() if offsets}

    def _reopen(self, minute: LedgerMinute, number: int) -> None:
        """Judge a minute again for those that it was settled for, as it may have more events."""
        for destination_id, settled in self.settled.items():
            if number in settled:
                minute.ended.setdefault(destination_id, (minute.count, 0))
                settled.discard(number, number + 1)

    def _overwrite(self, partition: int, first: int, end: int) -> None:
        """Note the events that had these offsets before, in the minutes they were of."""
        lost = Offsets.of([(first, end)])
        for minute_ms in self.times_ms():
            held = self.look(minute_ms).acked.get(partition, Offsets())
            here = held.both(lost)
            if here:
                minute = self.unpack(minute_ms)
                self._reopen(minute, number_of(minute_ms))
                minute.overwritten += [(partition, low, high) for low, high in here]
                minute.acked[partition] = held.minus(lost)


def number_of(minute_ms: int) -> int:
    """Minutes in a row have numbers in a row; -1 is that of wild times."""
    return minute_ms // MINUTE_MS


def enter_outcomes(
    outcomes: dict[tuple[str, KafkaPartition], Outcomes],
    evidence: Evidence,
    done: Mapping[KafkaPartition, Offsets],
) -> None:
    """Enter what receipts, tiers and dead letters say; `done` offsets are closed and stay so."""
    for (destination, outcome, topic, partition), offsets in evidence.outcomes.items():
        where = KafkaPartition(topic, partition)
        known = outcomes.setdefault((destination, where), Outcomes())
        for first, end in offsets.minus(done.get(where, Offsets())).minus(known.done):
            known.of(outcome).add(first, end)
    for (kind, destination, topic, partition), layers in evidence.records.items():
        where = KafkaPartition(topic, partition)
        known = outcomes.setdefault((destination, where), Outcomes())
        closed = done.get(where, Offsets()).union(known.done)
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
    """What became of some offsets at a destination, and at which node each suspect was last."""

    balance: Balance
    suspects: Mapping[Node, Offsets]


def account_for(
    acked: Offsets, known: Outcomes, *, position: int | None, log: tuple[int, int]
) -> Account:
    """Lay what is known over offsets; a lane without a position has passed nothing yet.

    What the log does not reach (any more) and has no outcome, Kafka has lost. Receipts of waiting
    and dead events may be stored and their records not, for as long as whoever wrote them has not
    gone on: then the event is where it was.
    """
    rest = acked.minus(known.delivered)
    in_tier = known.in_tier.present
    dead = rest.both(known.dead)
    # The retrier has given it up and has not passed it, or somebody has sent it again: then its
    # dead letter is of before, also when no tier has it any more.
    still_waiting = dead.both(in_tier).minus(known.in_dead.minus(known.redriven))
    still_waiting = still_waiting.union(dead.both(known.unended))
    dead = _believed(dead.minus(still_waiting), known.in_dead, position)
    rest = rest.minus(dead)
    waiting = _believed(rest.both(known.waiting).union(still_waiting), in_tier, position)
    books = balanced(
        len(acked),
        waiting=waiting,
        dead=dead,
        no_outcome=rest.minus(waiting),
        # Where there is a record, nothing needs to be confirmed.
        unconfirmed=Offsets(),
        position=0 if position is None else position,
        log=log,
    )
    not_in_tier = waiting.minus(in_tier)
    suspects = {
        Node.KAFKA: books.not_in_log,
        Node.DELIVERY: books.passed,
        Node.RETRY_TIER: not_in_tier.minus(known.was_in_tier),
        Node.RETRIER: not_in_tier.both(known.was_in_tier),
        Node.DEAD_LETTERS: dead.minus(known.in_dead),
    }
    return Account(
        books.balance, {node: offsets for node, offsets in suspects.items() if len(offsets)}
    )


def _believed(said: Offsets, records: Offsets, position: int | None) -> Offsets:
    """Those that have their record, or that the lane has passed, so that they should have one."""
    without = said.minus(records)
    return said.minus(without if position is None else without.from_offset(position))


def confirmed(
    known: Outcomes, suspects: Mapping[Node, Offsets], rules: Rules, *, now_ms: int
) -> dict[Node, Offsets]:
    """Those that have been suspects of the same node for as long as it takes to settle."""
    if rules.settle_ms == 0:
        return dict(suspects)
    since_ms = now_ms - rules.settle_ms
    by_node: dict[Node, Offsets] = {}
    for node, offsets in suspects.items():
        old = [o for at, n, o in known.suspects if n is node and at <= since_ms]
        later = [o for at, n, o in known.suspects if n is node and at > since_ms]
        if old and (sure := reduce(Offsets.both, [old[-1], *later], offsets)):
            by_node[node] = sure
    return by_node


def remember_suspects(
    known: Outcomes, suspects: Mapping[Node, Offsets], rules: Rules, *, now_ms: int
) -> None:
    """Keep what is needed to tell how long something has been a suspect."""
    since_ms = now_ms - rules.settle_ms
    recent = [seen for seen in known.suspects if seen[0] > since_ms]
    newest_old = {seen[1]: seen for seen in known.suspects if seen[0] <= since_ms}
    known.suspects = [
        *newest_old.values(),
        *recent,
        *((now_ms, node, offsets) for node, offsets in suspects.items()),
    ]
