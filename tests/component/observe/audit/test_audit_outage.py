"""While a lane is stuck for days, no open minute is forgotten, and losses are reported."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.cli.events.proofs import broken_link
from observe.audit.audit_run import Audit, AuditOutcome
from observe.audit.evidence import Claim, Evidence
from observe.audit.memory import Memory
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_tasks import MinuteRoots
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS, HOUR_MS
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root
from shared.proof.overview import MinuteState, Stage
from shared.proof.statement import SignedStatement
from tests.support.observe import memory_files
from tests.support.observe.published import proofs_of

TOPIC, STILL, WELL = "hifi.stream.orders", "orders/still", "orders/well"
WHERE = KafkaPartition(TOPIC, 0)
M0 = 1_699_999_980_000
RULES = Rules(check_after_ms=120_000, overdue_ms=600_000)
EACH = 100
IDS = {f"e{n}" for n in range(EACH)}


class Outage:
    """Hifi as the audit sees it: what Kafka holds, how far lanes are, and what time it is."""

    def __init__(self, folder: Path, *destinations: str) -> None:
        self.folder = folder
        self.destinations = destinations
        self.now_ms = M0
        self.acked = 0
        self.log_start = 0
        # How long the ledger is kept.
        self.ledger_kept_ms = 9 * DAY_MS
        self.positions: dict[str, int] = {}
        self.statements: list[SignedStatement] = []
        self._evidence = Evidence()

    def accept(self, minute_ms: int) -> None:
        """Acknowledge a minute's events."""
        first, self.acked = self.acked, self.acked + EACH
        row = first // EACH
        claim = Claim(TOPIC, 0, minute_ms, first, self.acked, minute_ms, (0, row, row))
        self._evidence.claims.append(claim)

    def deliver(self, to: str, first: int, end: int, *, outcome: str = "delivered") -> None:
        self._evidence.outcomes[to, outcome, TOPIC, 0] = Offsets.of([(first, end)])
        self.positions[to] = end

    def misread(self, counts: dict[str, int]) -> None:
        self._evidence.unreadable.update(counts)

    def at(self, now_ms: int, *, is_saved: bool = True) -> AuditOutcome:
        """Restart the audit, run it twice, and let it die; only its saved memory remains."""
        self.now_ms = now_ms
        memory = memory_files.load(self.folder)
        audit = self._audit(memory)
        for offset in range(memory.statements_read, len(self.statements)):
            memory.read_statement(self.statements[offset], offset)
        asyncio.run(audit.run({TOPIC: self.destinations}))
        self.now_ms += RULES.check_after_ms
        outcome = asyncio.run(audit.run({TOPIC: self.destinations}))
        if is_saved:
            memory_files.save(memory, self.folder)
        return outcome

    def overdue(self, destination: str) -> int:
        found = memory_files.load(self.folder).books.overdue.get(destination)
        return found.minute_count if found else 0

    def _audit(self, memory: Memory) -> Audit:
        ours: Any = self

        async def publish(made: Sequence[SignedStatement]) -> None:
            self.statements.extend(made)

        return Audit(
            job=ours, kafka=ours, memory=memory, signer=Signer(self.folder),
            publish=publish, rules=RULES, now_ms=lambda: self.now_ms,
        )  # fmt: skip

    # Spark's answers to the audit.

    def gather(self, _: object) -> Evidence:
        found, self._evidence = self._evidence, Evidence()
        return found

    def look_up(self, *_: object) -> list[Any]:
        return []

    def name(self, _: object, *, minutes: Sequence[tuple[str, int]], **__: object) -> MinuteRoots:
        kept = [key for key in minutes if key[1] > self.now_ms - self.ledger_kept_ms]
        return MinuteRoots({key: (merkle_root(IDS), EACH) for key in kept})

    # Kafka's answers to the audit.

    async def position(self, lane: str) -> Mapping[KafkaPartition, int]:
        return {WHERE: self.positions[lane]} if lane in self.positions else {}

    async def spans(self, topics: Sequence[str]) -> dict[KafkaPartition, tuple[int, int]]:
        return {WHERE: (self.log_start, self.acked)} if TOPIC in topics else {}

    async def ids(self, _: object) -> dict[Any, Any]:
        return {}

    async def restored(self) -> dict[KafkaPartition, int]:
        return {}


def lost(outcome: AuditOutcome, destination: str) -> dict[Stage, int]:
    found: dict[Stage, int] = {}
    for books in outcome.minutes.get(destination, ()):
        for stage, count in books.lost.items():
            found[stage] = found.get(stage, 0) + count
    return found


def test_what_a_lane_never_came_to_is_told_as_lost_however_late(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL)
    hifi.positions[STILL] = 0
    hifi.accept(M0)
    # The events stay overdue over a weekend and longer: time alone settles nothing.
    for later_ms in (HOUR_MS, 26 * HOUR_MS, 27 * HOUR_MS, 6 * DAY_MS):
        hifi.at(M0 + later_ms)
        assert hifi.overdue(STILL) == 1, later_ms
    # Kafka deletes all events unread.
    hifi.log_start = EACH
    outcome = hifi.at(M0 + 8 * DAY_MS)
    assert lost(outcome, STILL) == {Stage.QUEUE: EACH}
    assert [books.lost_count for books in outcome.changed] == [EACH]
    assert hifi.overdue(STILL) == 0
    # The same holds once the lane has moved past them.
    hifi.positions[STILL] = EACH
    assert lost(hifi.at(M0 + 8 * DAY_MS + HOUR_MS // 2), STILL) == {Stage.QUEUE: EACH}
    (stated,) = [signed.statement for signed in hifi.statements]
    assert stated.destinations["still"].lost == {"queue": EACH}
    assert stated.root == merkle_root(IDS).hex()
    # The loss is news for an hour; the minute closes a day after the report.
    assert lost(hifi.at(M0 + 8 * DAY_MS + 2 * HOUR_MS), STILL) == {}
    assert memory_files.load(tmp_path).books.ledgers[TOPIC].times_ms()
    hifi.at(M0 + 9 * DAY_MS + 2 * HOUR_MS)
    assert memory_files.load(tmp_path).books.ledgers[TOPIC].times_ms() == []
    assert len(hifi.statements) == 1


def test_a_minute_that_settles_a_week_later_is_stated_then_and_the_chain_holds(
    tmp_path: Path,
) -> None:
    hifi = Outage(tmp_path, STILL)
    # When the minute settles, nothing in Kafka names its events any more.
    hifi.ledger_kept_ms = DAY_MS
    hifi.positions[STILL] = 0
    hifi.accept(M0)
    hifi.at(M0 + HOUR_MS)
    assert hifi.statements == []
    hifi.deliver(STILL, 0, EACH)
    outcome = hifi.at(M0 + 7 * DAY_MS)
    assert [books.state for books in outcome.changed] == [MinuteState.CHECKED]
    hifi.accept(M0 + 7 * DAY_MS)
    hifi.deliver(STILL, EACH, 2 * EACH)
    hifi.at(M0 + 7 * DAY_MS + HOUR_MS)
    made = [signed.statement for signed in hifi.statements]
    assert [(one.minute_ms, one.revision, one.root) for one in made] == [
        (M0, 1, merkle_root(IDS).hex()),
        (M0 + 7 * DAY_MS, 1, merkle_root(IDS).hex()),
    ]
    assert made[0].destinations["still"].delivered == EACH
    assert broken_link(proofs_of(hifi.statements)) is None
    assert hifi.overdue(STILL) == 0


def test_one_destination_that_stands_still_holds_up_nobody_elses_statement(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL, WELL)
    hifi.positions[STILL] = 0
    hifi.accept(M0)
    hifi.deliver(WELL, 0, EACH, outcome="delivered")
    hifi.at(M0 + HOUR_MS)
    assert [set(one.statement.destinations) for one in hifi.statements] == [{"well"}]
    books = memory_files.load(tmp_path).books
    # For a checked destination, the memory keeps only that it is checked.
    known = books.outcomes[WELL, WHERE]
    assert (list(known.delivered), list(known.done)) == ([], [(0, EACH)])
    assert (hifi.overdue(STILL), hifi.overdue(WELL)) == (1, 0)
    hifi.deliver(STILL, 0, EACH)
    hifi.at(M0 + 3 * DAY_MS)
    first, second = (signed.statement for signed in hifi.statements)
    assert second.revision == 2
    assert second.destinations == {**first.destinations, "still": first.destinations["well"]}
    assert broken_link(proofs_of(hifi.statements)) is None
    assert memory_files.load(tmp_path).books.ledgers[TOPIC].times_ms() == []


def test_a_destination_that_is_taken_away_leaves_no_minute_open(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL, WELL)
    hifi.positions[STILL] = 0
    hifi.accept(M0)
    hifi.deliver(WELL, 0, EACH)
    hifi.at(M0 + HOUR_MS)
    hifi.destinations = (WELL,)
    hifi.at(M0 + 2 * HOUR_MS)
    assert memory_files.load(tmp_path).books.ledgers[TOPIC].times_ms() == []
    assert len(hifi.statements) == 1


def test_what_was_published_and_not_saved_is_not_left_out_of_the_chain(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL)
    hifi.accept(M0)
    hifi.deliver(STILL, 0, EACH)
    # The machine dies after the statement and before the memory is saved.
    hifi.at(M0 + HOUR_MS, is_saved=False)
    assert (len(hifi.statements), memory_files.load(tmp_path)) == (1, Memory())
    hifi.accept(M0 + HOUR_MS)
    hifi.deliver(STILL, EACH, 2 * EACH)
    hifi.at(M0 + 2 * HOUR_MS)
    assert len(hifi.statements) == 2
    assert broken_link(proofs_of(hifi.statements)) is None


def test_a_machine_that_knows_nothing_goes_on_with_the_same_chain(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL)
    hifi.accept(M0)
    hifi.deliver(STILL, 0, EACH)
    known = copy.deepcopy(hifi._evidence)
    hifi.at(M0 + HOUR_MS)
    # Kafka still has the events and the statement; the memory is gone.
    (tmp_path / "memory").unlink()
    hifi._evidence = known
    hifi.at(M0 + 2 * HOUR_MS)
    assert len(hifi.statements) == 1, "the minute was stated again"
    hifi.accept(M0 + 2 * HOUR_MS)
    hifi.deliver(STILL, EACH, 2 * EACH)
    hifi.at(M0 + 3 * HOUR_MS)
    assert [one.statement.revision for one in hifi.statements] == [1, 1]
    assert broken_link(proofs_of(hifi.statements)) is None


def test_of_what_was_stated_no_less_is_stated_later(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL)
    hifi.accept(M0)
    hifi.accept(M0)
    hifi.deliver(STILL, 0, 2 * EACH)
    known = copy.deepcopy(hifi._evidence)
    hifi.at(M0 + HOUR_MS)
    (tmp_path / "memory").unlink()
    # Kafka deletes the ledger by segments, so it may have deleted a part of a minute.
    hifi._evidence = known
    del hifi._evidence.claims[0]
    hifi.at(M0 + 8 * DAY_MS)
    assert [one.statement.acked for one in hifi.statements] == [2 * EACH]


def test_late_events_open_what_was_settled_for_one(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL, WELL)
    hifi.positions[STILL] = 0
    hifi.accept(M0)
    hifi.deliver(WELL, 0, EACH)
    hifi.at(M0 + HOUR_MS)
    hifi.accept(M0)
    hifi.accept(M0)
    # Its lane loses half of the later two hundred.
    hifi.deliver(WELL, EACH, 2 * EACH)
    hifi.positions[WELL] = 3 * EACH
    outcome = hifi.at(M0 + 2 * HOUR_MS)
    (well,) = [books for books in outcome.minutes[WELL] if books.destination_id == WELL]
    assert (well.state, well.acked, well.delivered) == (MinuteState.LOSS, 3 * EACH, 2 * EACH)
    stated = hifi.statements[-1].statement
    assert (stated.acked, stated.revision) == (3 * EACH, 2)
    assert sum(stated.destinations["well"].lost.values()) == EACH


def test_records_that_could_not_be_read_are_told_for_a_day(tmp_path: Path) -> None:
    hifi = Outage(tmp_path, STILL)
    for counts in ({"receipt": 2_000, "dead": 1}, {}, {"receipt": 1}):
        hifi.misread(counts)
        hifi.at(M0)
    told = "records of the last day could not be read, so they prove nothing: 1 dead, 2,001 receipt"
    assert memory_files.load(tmp_path).unreadable_in_words() == told
    hifi.at(M0 + DAY_MS + RULES.check_after_ms)
    assert memory_files.load(tmp_path).unreadable_in_words() == ""
