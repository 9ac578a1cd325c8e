"""The live books, which follow receipts, agree with the audit's."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, Evidence, Layers
from observe.audit.findings import World
from observe.audit.minutes import DEAD as IN_DEAD
from observe.audit.minutes import PASSED, WRITTEN, Rules
from observe.lag.progress import Progress
from shared.event.record import KafkaPartition, Origin
from shared.proof.balance import Balance
from shared.proof.receipt import Receipt, ReceiptOutcome
from tests.support.suite.samples import a_receipt

TOPIC, TIER, TO = "hifi.stream.orders", "hifi.retry.30s", "orders/shop"
M0 = 1_699_999_980_000
AT_ONCE = Rules(check_after_ms=0, overdue_ms=60_000)
PARTITIONS, COUNT = 2, 10
LOG = {KafkaPartition(TOPIC, number): (0, COUNT) for number in range(PARTITIONS)}
Event: TypeAlias = tuple[int, int]
# The outcome of an event in a task, or None if the task drops it.
Fate: TypeAlias = ReceiptOutcome | None
OUTCOMES = list(ReceiptOutcome)

no_fates: list[Fate] = []
tasks = st.tuples(
    st.just("task"),
    st.integers(0, PARTITIONS - 1),
    st.lists(st.sampled_from([*OUTCOMES, None]), min_size=1, max_size=6),
    st.booleans(),
)
retries = st.tuples(
    st.just("retry"),
    st.just(0),
    st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6),
    st.booleans(),
)
redrives = st.tuples(st.just("redrive"), st.just(0), st.just(no_fates), st.just(True))
restarts = st.tuples(
    st.just("restart"), st.integers(0, PARTITIONS - 1), st.just(no_fates), st.just(True)
)
steps = st.lists(st.one_of(tasks, tasks, retries, redrives, restarts), max_size=20)


@dataclass
class Hifi:
    """A small lane, retrier and redrive: their records, and the positions that they report."""

    receipts: list[Receipt] = field(default_factory=list)
    records: dict[tuple[str, int], Layers] = field(default_factory=dict)
    position: Counter[int] = field(default_factory=Counter)
    tier: deque[tuple[Event, int]] = field(default_factory=deque)
    tier_position: int = 0
    dead: dict[Event, int] = field(default_factory=dict)

    def take(self, kind: str, partition: int, fates: list[Fate], *, ends: bool) -> None:
        match kind:
            case "task":
                first = self.position[partition]
                events = [((partition, first + nth), 0) for nth in range(len(fates))]
                events = [event for event in events if event[0][1] < COUNT]
                self._settle(events, fates, Origin(TOPIC, partition, first), stores=ends)
                self.position[partition] += len(events) if ends else 0
            case "retry":
                events = list(self.tier)[: len(fates)]
                at = Origin(TIER, 0, self.tier_position)
                if ends:
                    for (number, offset), _ in events:
                        self._record(PASSED, number, offset)
                        self.tier.popleft()
                    self.tier_position += len(events)
                self._settle(events, fates, at, stores=ends)
            case "redrive":
                waiting = {event for event, _ in self.tier}
                for event, redrives in [*self.dead.items()]:
                    if event not in waiting:
                        del self.dead[event]
                        self._receive(event, ReceiptOutcome.WAITING, redrives + 1, None)
                        self._wait(event, redrives + 1)
            case _:
                # A lane rereads the events that it had not reported yet.
                if not any(receipt.redrive_count for receipt in self.receipts):
                    self.position[partition] = max(0, self.position[partition] - 3)

    def _settle(
        self, events: list[tuple[Event, int]], fates: list[Fate], at: Origin, *, stores: bool
    ) -> None:
        """Store receipts of a task that does not end, but no waiting or dead records."""
        for (event, redrives), fate in zip(events, fates, strict=False):
            if fate is None:
                continue
            self._receive(event, fate, redrives, at)
            if stores and fate is ReceiptOutcome.WAITING:
                self._wait(event, redrives)
            elif stores and fate is ReceiptOutcome.DEAD:
                self._record(IN_DEAD, *event)
                self.dead[event] = redrives

    def _receive(
        self, event: Event, outcome: ReceiptOutcome, redrives: int, at: Origin | None
    ) -> None:
        is_sure = outcome is ReceiptOutcome.DELIVERED or at is None
        self.receipts.append(
            a_receipt(
                outcome,
                (event[1], event[1] + 1),
                partition=event[0],
                redrive_count=redrives,
                **({} if is_sure else {"read_at": at}),
            )
        )

    def _wait(self, event: Event, redrives: int) -> None:
        self.tier.append((event, redrives))
        self._record(WRITTEN, *event)

    def _record(self, kind: str, number: int, offset: int) -> None:
        self.records.setdefault((kind, number), Layers()).add(offset, offset + 1)


def live_books(hifi: Hifi) -> Balance:
    progress = Progress(TO)
    progress.begin(LOG)
    for receipt in hifi.receipts:
        progress.take(receipt, now_ms=0)
    lane = {KafkaPartition(TOPIC, number): hifi.position[number] for number in range(PARTITIONS)}
    progress.reached({**lane, KafkaPartition(TIER, 0): hifi.tier_position})
    return progress.balance(LOG)


def audited_books(hifi: Hifi) -> Balance:
    evidence = Evidence(
        [Claim(TOPIC, number, M0, 0, COUNT, M0, (0, 0, 0)) for number in range(PARTITIONS)],
        records={
            (kind, TO, TOPIC, number): offsets for (kind, number), offsets in hifi.records.items()
        },
    )
    for receipt in hifi.receipts:
        evidence.take_sheet(receipt.to_json())
    books = AuditBooks()
    books.take(evidence)
    lane = {KafkaPartition(TOPIC, number): hifi.position[number] for number in range(PARTITIONS)}
    (finding,) = books.judge(World({TOPIC: [TO]}, {TO: lane}, LOG, M0 * 2), AT_ONCE, {})
    minute = finding.books
    return Balance(
        minute.acked,
        minute.delivered,
        minute.waiting,
        minute.dead,
        minute.queued,
        minute.lost_count,
    )


# A task that dies leaves receipts that the live books believe once its lane has continued, while
# the audit also needs the records. They agree again when the events are delivered.
@given(steps.filter(lambda drawn: all(ends and kind != "restart" for kind, _, _, ends in drawn)))
def test_live_books_are_those_of_the_audit_and_balance(
    drawn: list[tuple[str, int, list[Fate], bool]],
) -> None:
    hifi = Hifi()
    for kind, partition, fates, ends in drawn:
        hifi.take(kind, partition, fates, ends=ends)
    books = live_books(hifi)
    assert books == audited_books(hifi)
    parts = books.delivered + books.waiting + books.dead + books.queued + books.unaccounted
    assert books.acked == parts == PARTITIONS * COUNT
