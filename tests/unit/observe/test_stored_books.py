"""The audit's minutes when offsets, destinations and old states no longer fit."""

from observe.audit.books import AuditBooks
from observe.audit.evidence import Evidence
from observe.audit.findings import NEVER, World
from observe.audit.ledger import ClosedMinute, LedgerMinute, number_of
from observe.audit.minutes import Outcomes
from observe.audit.stored_books import CLOSED_KEPT_MS
from shared.event.record import KafkaPartition
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteState
from tests.unit.observe.test_books import (
    AT_ONCE,
    M0,
    M1,
    NOW,
    TO,
    TOPIC,
    WHERE,
    claim,
    evidence,
    world,
)

OTHER, OTHER_TOPIC = "orders/other", "hifi.stream.others"


def with_a_closed_minute() -> AuditBooks:
    """Return books with three delivered events of M0, and with that minute closed."""
    books = AuditBooks()
    here = world(3, end=3)
    books.meet(here, Evidence())
    books.take(evidence([claim(M0, 0, 3)], delivered=[(0, 3)]))
    books.close(books.judge(here, AT_ONCE, {}), here, AT_ONCE)
    assert list(books.closed) == [(TOPIC, M0)]
    return books


def test_a_closed_minute_has_no_offset_that_is_another_event_now() -> None:
    books = with_a_closed_minute()
    elsewhere = ClosedMinute(acked=1, offsets={1: Offsets.of([(1, 2)])})
    books.closed[TOPIC, M0 - 60_000] = elsewhere
    books.claim(claim(M1, 1, 2, row=3))
    assert books.closed[TOPIC, M0].offsets == {0: Offsets.of([(0, 1), (2, 3)])}
    assert books.done[WHERE] == Offsets.of([(0, 1), (2, 3)])
    assert elsewhere.offsets == {1: Offsets.of([(1, 2)])}


def test_a_minute_of_an_old_state_that_is_both_closed_and_open_is_one_minute_again() -> None:
    books = with_a_closed_minute()
    late = LedgerMinute(acked={0: Offsets.of([(3, 5)])})
    ledger = books.ledgers[TOPIC]
    ledger.minutes[M0] = late
    ledger.checked[OTHER] = Offsets.of([(number_of(M0), number_of(M0) + 1)])
    books.met = None
    books.meet(world(5, end=5), Evidence())
    assert not books.closed
    assert books.acked(TOPIC, M0) == 5
    # The old events stay checked: two for one destination, all three for the other.
    assert ledger.look(M0).ended == {OTHER: (2, 0), TO: (3, 0)}


def test_a_new_destination_owes_only_what_its_own_stream_has() -> None:
    books = with_a_closed_minute()
    both = {WHERE: (0, 3), KafkaPartition(OTHER_TOPIC, 0): (0, 7)}
    books.meet(World({TOPIC: [TO, OTHER], OTHER_TOPIC: []}, {}, both, NOW), Evidence())
    # The new destination needs the closed minute's events, too.
    assert (TOPIC, M0) not in books.closed
    assert {where.topic for _, where in books.begun} == {TOPIC}


def test_nothing_is_owed_by_a_late_destination_of_which_nobody_knows_where_it_begins() -> None:
    books = with_a_closed_minute()
    here = World({TOPIC: [TO, OTHER]}, {}, {WHERE: (0, 3)}, NOW, frozenset({OTHER}))
    books.meet(here, Evidence())
    assert books.begin_of(OTHER, WHERE, here) == NEVER
    assert (TOPIC, M0) in books.closed


def test_one_that_began_earlier_than_was_known_is_judged_by_what_it_owes_since() -> None:
    books = AuditBooks()
    late = World({TOPIC: [TO]}, {TO: {WHERE: 5}}, {WHERE: (0, 8)}, NOW, frozenset({TO}))
    books.meet(late, Evidence())
    books.take(evidence([claim(M0, 0, 8)]))
    number = number_of(M0)
    books.ledgers[TOPIC].checked[TO] = Offsets.of([(number, number + 1)])
    books.outcomes[TO, WHERE] = Outcomes(done=Offsets.of([(0, 8)]))
    books.meet(late, evidence(delivered=[(2, 4)]))
    assert books.begin_of(TO, WHERE, late) == 2
    assert books.outcomes[TO, WHERE].done == Offsets.of([(0, 2), (5, 8)])
    assert number not in books.ledgers[TOPIC].checked[TO]


def test_how_much_is_due_is_unknown_where_some_events_have_no_place_any_more() -> None:
    minute = LedgerMinute(acked={0: Offsets.of([(0, 3)])}, unplaced=2)
    assert minute.owed({0: 0}) == 5
    assert minute.owed({0: 1}) is None


def test_what_was_lost_before_a_destination_began_it_has_not_lost() -> None:
    books = AuditBooks()
    late = World({TOPIC: [TO]}, {TO: {WHERE: 5}}, {WHERE: (0, 8)}, NOW, frozenset({TO}))
    books.meet(late, Evidence())
    books.take(evidence([claim(M0, 0, 8)], delivered=[(5, 8)]))
    books.ledgers[TOPIC].minutes[M0].misplaced.append((0, 0, 2))
    (finding,) = books.judge(late, AT_ONCE, {})
    assert finding.losses == ()
    assert finding.books.state is not MinuteState.LOSS


def test_a_loss_that_was_told_long_ago_settles_nothing_while_others_are_open() -> None:
    books = AuditBooks()
    here = World({TOPIC: [TO, OTHER]}, {TO: {WHERE: 1}, OTHER: {WHERE: 0}}, {WHERE: (0, 1)}, NOW)
    books.meet(here, Evidence())
    books.take(evidence([claim(M0, 0, 1)]))
    books.judge(here, AT_ONCE, {})
    old = World(here.destinations, here.positions, here.log, NOW + 2 * CLOSED_KEPT_MS)
    findings = books.judge(old, AT_ONCE, {})
    states = {each.books.destination_id: each.books.state for each in findings}
    assert states[TO] is MinuteState.LOSS
    books.ledgers[TOPIC].note_compared(M0, 1)
    books.close(findings, old, AT_ONCE)
    assert not any(books.ledgers[TOPIC].checked.values())
    assert (TOPIC, M0) not in books.closed
