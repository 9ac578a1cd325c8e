"""The audit's books against a plain count, event by event, and named cases."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, Evidence, life
from observe.audit.findings import AuditFinding, World
from observe.audit.minutes import DEAD, PASSED, WRITTEN, Outcomes, Rules
from observe.audit.stored_books import CLOSED_KEPT_MS
from shared.event.record import KafkaPartition
from shared.event.times import HOUR_MS
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteState, OverdueMinutes, Stage
from tests.support.suite.samples import layers_of

TOPIC, TO = "hifi.stream.orders", "orders/shop"
WHERE = KafkaPartition(TOPIC, 0)
M0, M1 = 1_699_999_980_000, 1_700_000_040_000
NOW = M1 + 10 * 60_000
AT_ONCE = Rules(check_after_ms=0, overdue_ms=60_000)
COUNT = 12


def claim(minute: int, first: int, end: int, at: int = M0, row: int = 0) -> Claim:
    return Claim(TOPIC, 0, minute, first, end, at, (0, row, row))


def world(position: int | None = COUNT, *, now: int = NOW, end: int = COUNT) -> World:
    positions = {} if position is None else {TO: {WHERE: position}}
    return World({TOPIC: [TO]}, positions, {WHERE: (0, end)}, now)


def evidence(
    claims: Sequence[Claim] = (), *, records: dict[str, list[tuple[int, int]]] | None = None,
    **outcomes: list[tuple[int, int]],
) -> Evidence:  # fmt: skip
    found = Evidence()
    found.claims += claims
    for outcome, spans in outcomes.items():
        found.outcomes[TO, outcome, TOPIC, 0] = Offsets.of(spans)
    for kind, spans in (records or {}).items():
        found.records[kind, TO, TOPIC, 0] = layers_of(spans)
    return found


def lost(findings: Sequence[AuditFinding]) -> dict[Stage, set[int]]:
    found: dict[Stage, set[int]] = {}
    for finding in findings:
        for loss in (loss for span in finding.losses for loss in span.events()):
            found.setdefault(loss.stage, set()).add(loss.offset)
    return found


events = st.lists(
    st.fixed_dictionaries(
        {
            "minute": st.sampled_from([M0, M1, WILD]),
            "fate": st.sampled_from(["delivered", "dead", "waiting", "nothing"]),
            "is_in_log": st.booleans(),
            "written": st.integers(0, 2),
            "passed": st.integers(0, 2),
            "is_in_dead": st.booleans(),
            # The event's outcome after a resend, if there was one.
            "life": st.sampled_from(["", "dead", "waiting"]),
            "was_retried": st.booleans(),
        }
    ),
    min_size=1,
    max_size=COUNT,
)


@given(events, st.integers(0, COUNT))
def test_every_event_is_in_one_place_and_blamed_on_one_node(  # noqa: C901, PLR0912 - a model
    drawn: list[dict[str, object]], position: int
) -> None:
    books = AuditBooks()
    expected: Counter[str] = Counter()
    blamed: dict[Stage, set[int]] = {}
    absent = Offsets()
    for offset, event in enumerate(drawn):
        one = [(offset, offset + 1)]
        fate = str(event["fate"])
        part = evidence([claim(int(str(event["minute"])), offset, offset + 1)])
        if fate != "nothing":
            part.outcomes[TO, fate, TOPIC, 0] = Offsets.of(one)
        if fate != "nothing" and event["was_retried"]:
            part.outcomes.setdefault((TO, "waiting", TOPIC, 0), Offsets()).add(*one[0])
        said = life(str(event["life"]), 1)
        part.outcomes[TO, said, TOPIC, 0] = Offsets.of(one * bool(event["life"]))
        written, passed = int(str(event["written"])), int(str(event["passed"]))
        part.records[WRITTEN, TO, TOPIC, 0] = layers_of(one * written)
        part.records[PASSED, TO, TOPIC, 0] = layers_of(one * passed)
        part.records[DEAD, TO, TOPIC, 0] = layers_of(one * bool(event["is_in_dead"]))
        if not event["is_in_log"]:
            absent.add(*one[0])
        stage: Stage | None = None
        is_in_tier = written > passed
        is_left = is_in_tier and (event["life"] or not event["is_in_dead"])
        if fate == "dead" and (is_left or event["life"] == "waiting"):
            # The event was resent, or the retrier could not write the dead letter and will retry.
            fate = "waiting"
        without = {"waiting": not is_in_tier, "dead": not event["is_in_dead"]}
        has_no_record = without.get(fate, False)
        if has_no_record and offset >= position:
            # The lane could not write the record, and will retry.
            fate = "nothing"
        if fate == "waiting" and not is_in_tier:
            stage = Stage.RETRIER if written else Stage.RETRY_TIER
        elif fate == "dead" and has_no_record:
            stage = Stage.DEAD_LETTERS
        elif fate == "nothing" and offset < position:
            stage = Stage.DELIVERY if event["is_in_log"] else Stage.QUEUE
        if stage is not None:
            blamed.setdefault(stage, set()).add(offset)
        elif fate == "nothing":
            expected["queued"] += 1
        else:
            expected[fate] += 1
        books.take(msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=Evidence))
    here = world(position, end=len(drawn))
    to_look_up = books.to_look_up(here, AT_ONCE).get(WHERE, Offsets())
    findings = books.judge(here, AT_ONCE, {WHERE: to_look_up.both(absent)})
    assert lost(findings) == blamed
    for name in ("delivered", "dead", "waiting", "queued"):
        assert sum(getattr(f.books, name) for f in findings) == expected[name]
    for finding in findings:
        b = finding.books
        assert b.acked == b.delivered + b.dead + b.waiting + b.queued + b.lost_count
        assert (b.state is MinuteState.LOSS) == bool(finding.losses)
    assert {f.books.minute_ms for f in findings} == {
        None if event["minute"] == WILD else event["minute"] for event in drawn
    }


def test_what_a_lane_has_passed_is_kafkas_loss_if_the_log_has_it_no_more() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 3)]))
    here = world(2, end=3)
    assert books.to_look_up(here, AT_ONCE) == {WHERE: Offsets.of([(0, 2)])}
    findings = books.judge(here, AT_ONCE, {WHERE: Offsets.of([(1, 2)])})
    assert lost(findings) == {Stage.DELIVERY: {0}, Stage.QUEUE: {1}}


def test_offsets_given_to_two_events_mean_that_the_first_is_gone() -> None:
    books = AuditBooks()
    books.take(evidence([replace(claim(M1 + 60_000, 0, 1), partition=1)]))
    books.take(evidence([claim(M1, 8, 9, row=0)], delivered=[(8, 9)]))
    books.take(evidence([claim(M0, 0, 6, row=1), claim(M1, 4, 8, row=2)], delivered=[(0, 8)]))
    findings = books.judge(world(), AT_ONCE, {})
    assert [(f.books.minute_ms, f.books.acked, f.books.delivered) for f in findings] == [
        (M0, 6, 4),
        (M1, 5, 5),
        (M1 + 60_000, 1, 0),
    ]
    assert lost(findings[:2]) == {Stage.QUEUE: {4, 5}}


def test_what_the_log_claimed_first_is_the_same_event_when_its_row_comes() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 3)], delivered=[(0, 9)]))
    assert list(books.unclaimed({WHERE: (0, 9)}, back_max=100, begins={})) == [(WHERE, 3, 9)]
    for offset in range(3, 9):
        one = replace(claim(M0, offset, offset + 1), ledger=(-1, 0, 0))
        books.ledgers[TOPIC].enter(one, is_from_log=True)
    books.take(evidence([claim(M0, 5, 9)]))
    assert not list(books.unclaimed({WHERE: (0, 9)}, back_max=100, begins={}))
    (finding,) = books.judge(world(9, end=9), AT_ONCE, {})
    assert (finding.books.acked, finding.losses) == (9, ())


def test_history_from_before_the_ledger_is_left_out_if_it_is_long() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 500, 510)]))
    log = {WHERE: (0, 520)}
    found = list(books.unclaimed(log, back_max=500, begins={}))
    assert found == [(WHERE, 0, 500), (WHERE, 510, 520)]
    assert list(books.unclaimed(log, back_max=499, begins={})) == [(WHERE, 510, 520)]
    for restored, begin in ((0, 0), (300, 300), (515, 500)):
        found = list(books.unclaimed(log, back_max=400, begins={WHERE: restored}))
        assert found == [(WHERE, begin, 500), (WHERE, 510, 520)][begin == 500 :]
    assert not list(AuditBooks().unclaimed({WHERE: (0, 520)}, back_max=100, begins={}))
    assert list(AuditBooks().unclaimed({WHERE: (0, 5)}, back_max=100, begins={})) == [(WHERE, 0, 5)]


@pytest.mark.parametrize(
    ("log", "stage"), [((0, 4), Stage.QUEUE), ((4, 8), Stage.QUEUE), ((0, 8), None)]
)
def test_what_the_log_does_not_reach_kafka_lost(log: tuple[int, int], stage: Stage | None) -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 8)]))
    here = replace(world(0), log={WHERE: log})
    found = lost(books.judge(here, AT_ONCE, {}))
    assert set(found) == ({stage} if stage else set())
    assert sum(map(len, found.values())) == (4 if stage else 0)


def test_a_loss_must_last_before_it_is_one() -> None:
    rules = Rules(check_after_ms=1_000, overdue_ms=5_000)
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 8)], delivered=[(0, 4)]))
    assert not lost(books.judge(world(8, now=NOW, end=8), rules, {}))
    assert not lost(books.judge(world(8, now=NOW + 500, end=8), rules, {}))
    books.take(evidence(delivered=[(4, 6)]))
    found = books.judge(world(8, now=NOW + 1_000, end=8), rules, {})
    assert lost(found) == {Stage.DELIVERY: {6, 7}}
    # Events that turn up are no longer lost.
    books.take(evidence(delivered=[(6, 8)]))
    found = books.judge(world(8, now=NOW + 2_000, end=8), rules, {})
    assert not lost(found)
    assert found[0].books.state is MinuteState.CHECKED


def test_a_minute_is_unchecked_until_it_is_due_and_cannot_be_told_when_overdue() -> None:
    rules = Rules(check_after_ms=60_000, overdue_ms=60_000)
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 4, at=M1 + 7_000)]))
    due = M1 + 7_000 + 60_000
    states = {
        now: books.judge(world(None, now=now), rules, {})[0].books.state
        for now in (due - 1, due, due + 59_999, due + 60_000)
    }
    assert [*states.values()] == [*[MinuteState.UNCHECKED] * 3, MinuteState.CANNOT_TELL]
    # A suspect that is not lost yet cannot be judged, either.
    passed = books.judge(world(4, now=due + 60_000), rules, {})[0].books
    assert (passed.state, passed.queued) == (MinuteState.CANNOT_TELL, 0)
    assert "not certain yet" in passed.problem
    books.take(evidence(delivered=[(0, 4)]))
    early = books.judge(world(None, now=due - 1), rules, {})[0].books
    assert early.state is MinuteState.UNCHECKED
    done = books.judge(world(None, now=due), rules, {})[0].books
    assert (done.state, done.problem) == (MinuteState.CHECKED, "")


def test_a_closed_minute_is_forgotten_and_a_late_event_finds_its_counts() -> None:
    books = AuditBooks()
    books.take(
        evidence(
            [claim(M0, 0, 6, row=3)],
            delivered=[(0, 5)],
            dead=[(5, 6)],
            records={DEAD: [(5, 6)]},
        )
    )
    elsewhere = KafkaPartition(TOPIC, 1)
    books.outcomes[TO, elsewhere] = Outcomes(delivered=Offsets.of([(0, 6)]))
    here = world(6, end=6)
    books.close(books.judge(here, AT_ONCE, {}), here, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == []
    assert not list(books.outcomes[TO, WHERE].delivered)
    assert list(books.outcomes[TO, elsewhere].delivered) == [(0, 6)]
    # Receipts that arrive again have no effect.
    books.take(evidence(delivered=[(0, 6)]))
    assert not list(books.outcomes[TO, WHERE].delivered)
    books.take(evidence([claim(M0, 6, 8, row=9)], delivered=[(6, 8)]))
    later = world(8, end=8)
    (finding,) = books.judge(later, AT_ONCE, {})
    assert (finding.books.acked, finding.books.delivered, finding.books.dead) == (8, 7, 1)
    books.close([finding], later, AT_ONCE)
    assert {n: list(rows) for n, rows in books.closed[TOPIC, M0].ledger.items()} == {
        0: [(3, 4), (9, 10)]
    }
    much_later = replace(later, now_ms=M0 + CLOSED_KEPT_MS + 1)
    books.close([], much_later, AT_ONCE)
    assert books.closed == {}


def test_a_loss_keeps_a_minute_open_for_a_day_after_it_was_told_a_wait_until_it_ends() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 2), claim(M1, 2, 4)], waiting=[(2, 4)],
                        records={WRITTEN: [(2, 4)]}))  # fmt: skip
    here = world(4, end=4)
    books.close(books.judge(here, AT_ONCE, {}), here, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == [M0, M1]
    later = replace(here, now_ms=NOW + CLOSED_KEPT_MS)
    (loss, _) = books.judge(later, AT_ONCE, {})
    assert loss.books.told_at_ms == NOW
    books.close(books.judge(later, AT_ONCE, {}), later, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == [M0, M1]
    later = replace(here, now_ms=NOW + CLOSED_KEPT_MS + 1)
    books.close(books.judge(later, AT_ONCE, {}), later, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == [M1]
    books.take(evidence(delivered=[(2, 4)]))
    much_later = replace(here, now_ms=NOW + 100 * CLOSED_KEPT_MS)
    books.close(books.judge(much_later, AT_ONCE, {}), much_later, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == []


def test_what_nobody_came_to_is_counted_however_old_and_listed_for_an_hour() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0 + n * 60_000, n, n + 1, row=n) for n in range(6)]))
    young = world(0, now=M0 + HOUR_MS - 1, end=6)
    assert len(books.judge(young, AT_ONCE, {})) == 6
    told = "its lane has not reached 1 of its events"
    assert books.overdue == {TO: OverdueMinutes(6, M0, told)}
    old = replace(young, now_ms=young.now_ms + 100 * CLOSED_KEPT_MS)
    # The oldest minute gives the reason; the others gave the same one when they were young.
    assert [one.books.minute_ms for one in books.judge(old, AT_ONCE, {})] == [M0]
    assert books.overdue == {TO: OverdueMinutes(6, M0, told)}
    # Events that the lane reaches are judged again, as are those lost at either end of the log.
    assert len(books.judge(replace(old, positions={TO: {WHERE: 3}}), AT_ONCE, {})) == 4
    assert len(books.judge(replace(old, log={WHERE: (2, 6)}), AT_ONCE, {})) == 3
    assert len(books.judge(replace(old, log={WHERE: (0, 5)}), AT_ONCE, {})) == 6


def test_a_destination_that_began_late_is_not_owed_what_nobody_came_to() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 4), claim(M1, 4, 8)]))
    late = replace(world(0, end=8), late=frozenset({TO}))
    assert [one.books.acked for one in books.judge(late, AT_ONCE, {})] == [0, 0]
    books.take(evidence(delivered=[(3, 4)]))
    late = replace(late, positions={TO: {WHERE: 4}})
    assert [one.books.acked for one in books.judge(late, AT_ONCE, {})] == [1, 4]
    assert books.overdue[TO].minute_count == 1


def test_a_stream_that_nobody_wants_closes_by_itself() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 2)]))
    alone = replace(world(), destinations={TOPIC: []})
    assert books.judge(alone, AT_ONCE, {}) == []
    books.close([], alone, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == []
    assert books.closed[TOPIC, M0].acked == 2


def test_a_destination_that_began_late_is_asked_only_from_its_first_outcome_on() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 8)]))
    late = replace(world(8, end=8), late=frozenset({TO}))
    assert books.judge(late, AT_ONCE, {})[0].books.acked == 0
    books.take(evidence(delivered=[(5, 7)]))
    found = books.judge(late, AT_ONCE, {})
    assert (found[0].books.acked, lost(found)) == (3, {Stage.DELIVERY: {7}})


def test_what_is_sent_again_out_of_dead_letters_waits_until_it_is_dead_again() -> None:
    books = AuditBooks()
    letter = {WRITTEN: [(0, 1)], PASSED: [(0, 1)], DEAD: [(0, 1)]}
    books.take(evidence([claim(M0, 0, 2)], delivered=[(1, 2)], dead=[(0, 1)], records=letter))

    def counts() -> tuple[int, int]:
        (finding,) = books.judge(world(), AT_ONCE, {})
        assert not finding.losses
        return finding.books.waiting, finding.books.dead

    assert counts() == (0, 1)
    again: Any = {"waiting": [(0, 1)], life("waiting", 1): [(0, 1)]}
    books.take(evidence(records={WRITTEN: [(0, 1)]}, **again))
    assert counts() == (1, 0)
    # The minute stays open for the event.
    books.close(books.judge(world(), AT_ONCE, {}), world(), AT_ONCE)
    assert counts() == (1, 0)
    dead_again: Any = {"dead": [(0, 1)], life("dead", 1): [(0, 1)]}
    books.take(evidence(records={PASSED: [(0, 1)], DEAD: [(0, 1)]}, **dead_again))
    assert counts() == (0, 1)


def test_what_is_sent_again_and_lost_by_the_retrier_is_not_dead_for_its_old_dead_letter() -> None:
    books = AuditBooks()
    letter = {WRITTEN: [(0, 1)], PASSED: [(0, 1)], DEAD: [(0, 1)]}
    books.take(evidence([claim(M0, 0, 1)], dead=[(0, 1)], records=letter))
    again: Any = {"waiting": [(0, 1)], life("waiting", 1): [(0, 1)]}
    books.take(evidence(records={WRITTEN: [(0, 1)], PASSED: [(0, 1)]}, **again))
    found = books.judge(world(1, end=1), AT_ONCE, {})
    assert (lost(found), found[0].books.dead) == ({Stage.RETRIER: {0}}, 0)
    # A late receipt of the first dead letter changes nothing; one after the resend ends the loss.
    books.take(evidence(dead=[(0, 1)]))
    assert lost(books.judge(world(1, end=1), AT_ONCE, {})) == {Stage.RETRIER: {0}}
    ended: Any = {life("dead", 1): [(0, 1)]}
    books.take(evidence(**ended))
    assert not lost(books.judge(world(1, end=1), AT_ONCE, {}))
    # The same holds after another resend.
    again = {life("waiting", 2): [(0, 1)]}
    books.take(evidence(**again))
    assert lost(books.judge(world(1, end=1), AT_ONCE, {})) == {Stage.RETRIER: {0}}


def test_a_minute_that_waits_for_its_statement_stays_open() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 6)], delivered=[(0, 6)]))
    here = world(6, end=6)
    findings = books.judge(here, AT_ONCE, {})
    books.close(findings, here, AT_ONCE, uncompared={(TOPIC, M0)})
    assert (len(books.ledgers[TOPIC].times_ms()), books.acked(TOPIC, M0)) == (1, 6)
    books.close(findings, here, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == []
