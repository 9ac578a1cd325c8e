"""Keeps what the audit knows from run to run: open minutes judged, closed ones forgotten.

Evidence goes in, findings come out. What is kept follows what is open, not what has ever been.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from observe.audit.evidence import Evidence, unite
from observe.audit.minutes import (
    Account,
    Ledger,
    LedgerMinute,
    Outcomes,
    Rules,
    account_for,
    confirmed,
    enter_outcomes,
    remember_suspects,
)
from shared.event.record import KafkaPartition, Position, Ranges
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import stream_of, stream_topic
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, MinuteState, Missing, Node

# So long a minute stays known after it was closed, so that a late event finds its books: as long
# as late events are counted in their minute at all, and an hour.
CLOSED_KEPT_MS = DAY_MS + HOUR_MS


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The books of a minute of one destination, with every offset that is missing."""

    books: MinuteBooks
    # Their ids are not known yet.
    losses: tuple[Missing, ...] = ()


@dataclass(slots=True)
class Closed:
    """What is left of a minute that was closed: counts, and where the ledger names its events."""

    acked: int = 0
    # By destination: delivered and dead.
    outcomes: dict[str, tuple[int, int]] = field(default_factory=dict)
    ledger: dict[int, Offsets] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """What must be known besides the evidence to judge."""

    # The destinations of each stream's topic; those that began later than the stream are `late`.
    destinations: Mapping[str, Sequence[str]]
    # Lanes' positions, read before any of the evidence was.
    positions: Mapping[str, Position]
    # The first offset and the end of each Kafka partition, read after the evidence was.
    log: Ranges
    now_ms: int
    late: frozenset[str] = frozenset()


@dataclass(slots=True)
class AuditBooks:
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    outcomes: dict[tuple[str, KafkaPartition], Outcomes] = field(default_factory=dict)
    closed: dict[tuple[str, int], Closed] = field(default_factory=dict)
    # Offsets of closed minutes, of all destinations alike.
    done: dict[KafkaPartition, Offsets] = field(default_factory=dict)
    first_outcome: dict[tuple[str, KafkaPartition], int] = field(default_factory=dict)

    def take(self, evidence: Evidence) -> None:
        """Enter a run's evidence."""
        for claim in evidence.claims:
            self.ledgers.setdefault(claim.topic, Ledger()).enter(claim)
        enter_outcomes(self.outcomes, evidence, self.done)
        for (destination, _, topic, partition), offsets in evidence.outcomes.items():
            key = (destination, KafkaPartition(topic, partition))
            first = next(iter(offsets), (0, 0))[0]
            self.first_outcome[key] = min(first, self.first_outcome.get(key, first))

    def unclaimed(self, log: Ranges, *, back_max: int) -> Iterator[tuple[KafkaPartition, int, int]]:
        """What the log has and nobody claimed: a gateway died before it wrote its ledger.

        History from before there was a ledger is left out, if it is longer than `back_max`.
        """
        for (topic, partition), (start, end) in log.items():
            claimed = self.ledgers.get(topic, Ledger()).claimed.get(partition, Offsets())
            first = next(iter(claimed), (end, end))[0]
            begin = start if first - start <= back_max else first
            for low, high in Offsets.of([(begin, end)]).minus(claimed):
                yield KafkaPartition(topic, partition), low, high

    def to_look_up(self, world: World, rules: Rules) -> dict[KafkaPartition, Offsets]:
        """Offsets that a lane has passed and left without an outcome; the log may not have them."""
        passed: dict[KafkaPartition, Offsets] = {}
        for topic, ledger in self.ledgers.items():
            for minute in ledger.minutes.values():
                for destination in world.destinations.get(topic, ()):
                    for where, _, sure in self._accounts(topic, minute, destination, world, rules):
                        if Node.DELIVERY in sure:
                            unite(passed, {where: sure[Node.DELIVERY]})
        return passed

    def judge(
        self, world: World, rules: Rules, absent: Mapping[KafkaPartition, Offsets]
    ) -> list[AuditFinding]:
        """Every open minute of every destination; `absent` is what the log has not, looked up."""
        findings: list[AuditFinding] = []
        suspects: dict[tuple[str, KafkaPartition], dict[Node, Offsets]] = {}
        for topic, ledger in self.ledgers.items():
            for minute_ms, minute in sorted(ledger.minutes.items()):
                findings += [
                    self._finding(
                        (topic, minute_ms, minute, destination), world, rules, absent, suspects
                    )
                    for destination in world.destinations.get(topic, ())
                ]
        for key, known in self.outcomes.items():
            remember_suspects(known, suspects.get(key, {}), rules, now_ms=world.now_ms)
        return findings

    def _finding(
        self,
        what: tuple[str, int, LedgerMinute, str],
        world: World,
        rules: Rules,
        absent: Mapping[KafkaPartition, Offsets],
        suspects: dict[tuple[str, KafkaPartition], dict[Node, Offsets]],
    ) -> AuditFinding:
        topic, minute_ms, minute, destination = what
        before = self.closed.get((topic, minute_ms), Closed())
        sums: Counter[str] = Counter(acked=before.acked)
        sums["delivered"], sums["dead"] = before.outcomes.get(destination, (0, 0))
        losses = [Missing("", Node.KAFKA, topic, *where) for where in minute.overwritten]
        sums["acked"] += len(losses)
        for where, account, sure in self._accounts(topic, minute, destination, world, rules):
            gone = sure.get(Node.DELIVERY, Offsets()).both(absent.get(where, Offsets()))
            if gone:
                sure[Node.DELIVERY] = sure[Node.DELIVERY].minus(gone)
                sure[Node.KAFKA] = sure.get(Node.KAFKA, Offsets()).union(gone)
            lost = [
                Missing("", node, *where, offset)
                for node, offsets in sure.items()
                for first, end in offsets
                for offset in range(first, end)
            ]
            losses += lost
            unite(suspects.setdefault((destination, where), {}), account.suspects)
            sums["acked"] += account.balance.acked
            sums["delivered"] += account.balance.delivered
            sums["waiting"] += account.balance.waiting - _count(sure, Node.RETRY_TIER, Node.RETRIER)
            sums["dead"] += account.balance.dead - _count(sure, Node.DEAD_LETTERS)
            sums["pending"] += account.balance.pending
            sums["suspected"] += sum(len(o) for o in account.suspects.values()) - len(lost)
        return AuditFinding(_books(what, sums, losses, rules, world.now_ms), tuple(losses))

    def _accounts(
        self, topic: str, minute: LedgerMinute, destination: str, world: World, rules: Rules
    ) -> Iterator[tuple[KafkaPartition, Account, dict[Node, Offsets]]]:
        """What became of a minute's events in each Kafka partition, and what is surely lost."""
        for partition, offsets in minute.acked.items():
            where = KafkaPartition(topic, partition)
            acked = offsets
            if destination in world.late:
                first = self.first_outcome.get((destination, where), offsets.end)
                acked = offsets.from_offset(first)
            known = self.outcomes.setdefault((destination, where), Outcomes())
            account = account_for(
                acked,
                known,
                position=world.positions.get(destination, {}).get(where),
                log=world.log.get(where, (0, 0)),
            )
            yield where, account, confirmed(known, account.suspects, rules, now_ms=world.now_ms)

    def acked(self, topic: str, minute_ms: int) -> int:
        """How many events an open minute has, with those of before it was closed."""
        before = self.closed.get((topic, minute_ms), Closed())
        return self.ledgers[topic].minutes[minute_ms].count + before.acked

    def close(
        self,
        findings: Sequence[AuditFinding],
        world: World,
        rules: Rules,
        *,
        held: AbstractSet[tuple[str, int]] = frozenset(),
    ) -> None:
        """Forget the offsets of minutes of which nothing is open any more, and keep their counts.

        A minute with a loss stays open as long as late events are counted: what was lost may still
        turn up. Minutes that are `held` wait for their statement.
        """
        books_of = by_minute(finding.books for finding in findings)
        for topic, ledger in self.ledgers.items():
            for minute_ms in list(ledger.minutes):
                if (topic, minute_ms) in held:
                    continue
                judged = books_of.get((topic, minute_ms), [])
                due_ms = ledger.minutes[minute_ms].quiet_since_ms(minute_ms) + rules.settle_ms
                is_old = 0 <= minute_ms < world.now_ms - CLOSED_KEPT_MS
                # Nobody wants the stream's events: then there is nothing to wait for.
                is_unwanted = not world.destinations.get(topic) and world.now_ms >= due_ms
                is_final = judged and all(
                    books.state is MinuteState.COMPLETE and not books.waiting for books in judged
                )
                if is_final or is_old or is_unwanted:
                    self._close(topic, minute_ms, ledger.minutes.pop(minute_ms), judged)
        self.closed = {
            key: closed
            for key, closed in self.closed.items()
            if key[1] < 0 or key[1] >= world.now_ms - CLOSED_KEPT_MS
        }

    def _close(
        self, topic: str, minute_ms: int, minute: LedgerMinute, judged: Sequence[MinuteBooks]
    ) -> None:
        kept = self.closed.setdefault((topic, minute_ms), Closed())
        kept.acked += minute.count
        for books in judged:
            # The books of a reopened minute have those of before in them.
            kept.outcomes[books.destination_id] = (books.delivered, books.dead)
        unite(kept.ledger, minute.ledger)
        for partition, offsets in minute.acked.items():
            where = KafkaPartition(topic, partition)
            unite(self.done, {where: offsets})
            for (_, at), known in self.outcomes.items():
                if at == where:
                    _forget(known, offsets)


def _forget(known: Outcomes, gone: Offsets) -> None:
    known.delivered = known.delivered.minus(gone)
    known.dead = known.dead.minus(gone)
    known.waiting = known.waiting.minus(gone)
    known.lives = {name: offsets.minus(gone) for name, offsets in known.lives.items()}
    known.in_tier.forget(gone)
    known.was_in_tier = known.was_in_tier.minus(gone)
    known.in_dead = known.in_dead.minus(gone)


def by_minute(shown: Iterable[MinuteBooks]) -> dict[tuple[str, int], list[MinuteBooks]]:
    """The books of all destinations, by topic and minute."""
    books_of: dict[tuple[str, int], list[MinuteBooks]] = {}
    for books in shown:
        minute_ms = WILD if books.minute_ms is None else books.minute_ms
        books_of.setdefault((stream_topic(books.stream), minute_ms), []).append(books)
    return books_of


def _count(sure: Mapping[Node, Offsets], *nodes: Node) -> int:
    return sum(len(sure.get(node, ())) for node in nodes)


def _books(
    what: tuple[str, int, LedgerMinute, str],
    sums: Mapping[str, int],
    losses: Sequence[Missing],
    rules: Rules,
    now_ms: int,
) -> MinuteBooks:
    topic, minute_ms, minute, destination = what
    due_ms = minute.quiet_since_ms(minute_ms) + rules.settle_ms
    unsure = sums["pending"] + sums["suspected"]
    problem = ""
    if losses:
        state = MinuteState.LOSING
    elif now_ms < due_ms or (unsure and now_ms < due_ms + rules.blind_ms):
        state = MinuteState.OPEN
    elif unsure:
        state = MinuteState.CANNOT_TELL
        problem = (
            f"its lane has not come to {sums['pending']:,} of its events"
            if sums["pending"]
            else f"there is no certain word yet of {unsure:,} of its events"
        )
    else:
        state = MinuteState.COMPLETE
    return MinuteBooks(
        stream=stream_of(topic),
        destination_id=destination,
        minute_ms=minute_ms if minute_ms >= 0 else None,
        state=state,
        acked=sums["acked"],
        delivered=sums["delivered"],
        waiting=sums["waiting"],
        dead=sums["dead"],
        pending=sums["pending"],
        lost=dict(Counter(loss.node for loss in losses)),
        problem=problem,
    )
