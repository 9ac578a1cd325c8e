"""Outcomes that are checked for one destination may be forgotten, and count in all later books."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, Evidence
from observe.audit.findings import World
from observe.audit.minutes import DEAD, Outcomes, Rules
from observe.audit.stored_books import CLOSED_KEPT_MS
from shared.event.record import KafkaPartition
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, Stage
from tests.support.suite.samples import layers_of
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
    lost,
)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.sampled_from([M0, M1, WILD]), st.integers(1, 3)),
        st.tuples(st.just("one"), st.sampled_from(["delivered", "dead"]), st.integers(1, 4)),
        st.tuples(st.just("other"), st.sampled_from(["delivered", "dead"]), st.integers(1, 4)),
        st.tuples(st.just("again"), st.just("delivered"), st.integers(1, 2)),
    ),
    max_size=25,
)


@given(steps, st.sampled_from([NOW, NOW + 9 * CLOSED_KEPT_MS]))
def test_what_is_settled_for_one_and_forgotten_is_in_all_later_books(
    drawn: list[tuple[str, Any, int]], now_ms: int
) -> None:
    """Two destinations at different speeds, closed after each step, against a list of fates."""
    books = AuditBooks()
    minutes: list[int] = []
    fates: dict[str, list[str]] = {"orders/one": [], "orders/other": []}
    shown: dict[tuple[str, int | None], MinuteBooks] = {}
    for what, fate, count in drawn:
        part = Evidence()
        if what == "claim":
            # A minute that was closed a day ago is forgotten: a late event opens it again.
            its = [offset for offset, minute in enumerate(minutes) if minute == fate]
            is_over = bool(its) and all(max(its) < len(known) for known in fates.values())
            assume(not is_over or now_ms == NOW)
            first = len(minutes)
            minutes += [fate] * count
            part.claims.append(claim(fate, first, len(minutes), row=first))
        else:
            to = "orders/one" if what == "again" else f"orders/{what}"
            known = fates[to]
            # A repeat confirms delivered events; otherwise the lane advances.
            first = max(0, len(known) - count) if what == "again" else len(known)
            end = len(known) if what == "again" else min(len(minutes), first + count)
            known += [fate] * (end - len(known))
            for offset in range(first, end):
                one = [(offset, offset + 1)]
                part.outcomes.setdefault((to, known[offset], TOPIC, 0), Offsets()).add(*one[0])
                if known[offset] == "dead" and what != "again":
                    part.records.setdefault((DEAD, to, TOPIC, 0), layers_of([])).add(*one[0])
        books.take(part)
        positions = {to: {WHERE: len(known)} for to, known in fates.items()}
        here = World({TOPIC: list(fates)}, positions, {WHERE: (0, len(minutes))}, now_ms)
        findings = books.judge(here, AT_ONCE, {})
        assert lost(findings) == {}
        shown.update({finding.books.key: finding.books for finding in findings})
        books.close(findings, here, AT_ONCE)
    # Old events that no lane has reached were only counted.
    for ledger in books.ledgers.values():
        for minute_ms in ledger.times_ms():
            ledger.unpack(minute_ms)
        shown.update((one.books.key, one.books) for one in books.judge(young(here), AT_ONCE, {}))
    for to, known in fates.items():
        for minute in set(minutes):
            ours = [
                known[o] if o < len(known) else "queued"
                for o, m in enumerate(minutes)
                if m == minute
            ]
            found = shown[to, None if minute == WILD else minute]
            assert (found.acked, found.delivered, found.dead, found.queued) == (
                len(ours), *(ours.count(fate) for fate in ("delivered", "dead", "queued")),
            )  # fmt: skip
    if all(len(known) == len(minutes) for known in fates.values()):
        assert not any(
            ledger.times_ms() or any(ledger.checked.values()) for ledger in books.ledgers.values()
        )
        assert not any(known.end for known in books.outcomes.values())


def young(world: World) -> World:
    return replace(world, now_ms=NOW)


def test_old_minutes_are_packed_and_found_all_the_same() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0 + n * 60_000, n, n + 1, row=n) for n in range(6)]))
    old = World({TOPIC: [TO]}, {TO: {WHERE: 0}}, {WHERE: (0, 6)}, NOW + 9 * CLOSED_KEPT_MS)
    for _ in range(2):
        books.close(books.judge(old, AT_ONCE, {}), old, AT_ONCE)
        assert (len(books.ledgers[TOPIC].packed), books.overdue[TO].minute_count) == (6, 6)
    # The lane reaches some of them, and stands still again.
    books.take(evidence(delivered=[(0, 2)]))
    moved = replace(old, positions={TO: {WHERE: 3}})
    for _ in range(2):
        findings = books.judge(moved, AT_ONCE, {})
        assert lost(findings) == {Stage.DELIVERY: {2}}
        assert books.overdue[TO].minute_count == 3
        books.close(findings, moved, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == [M0 + n * 60_000 for n in range(2, 6)]
    # An event of a packed minute now has another minute; a late event is entered as usual.
    books.take(evidence([claim(M0 + 3 * 60_000, 6, 7), claim(M1 + 9 * 60_000, 5, 6)]))
    assert books.acked(TOPIC, M0 + 3 * 60_000) == 2
    found = books.judge(replace(moved, log={WHERE: (0, 7)}), AT_ONCE, {})
    assert lost(found) == {Stage.DELIVERY: {2}, Stage.QUEUE: {5}}


def test_offsets_given_anew_are_not_settled_for_what_was_there_before() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 4), claim(M0, 4, 6)], delivered=[(0, 6)]))
    both = World({TOPIC: [TO, "orders/still"]}, {TO: {WHERE: 6}}, {WHERE: (0, 6)}, NOW)
    # Nothing is checked before it has been compared with the log.
    books.close(books.judge(both, AT_ONCE, {}), both, AT_ONCE)
    assert not books.outcomes[TO, WHERE].done
    books.ledgers[TOPIC].note_compared(M0, 6)
    books.close(books.judge(both, AT_ONCE, {}), both, AT_ONCE)
    assert list(books.outcomes[TO, WHERE].done) == [(0, 6)]
    books.take(evidence([claim(M1, 4, 6)]))
    found = [one for one in books.judge(both, AT_ONCE, {}) if one.books.destination_id == TO]
    assert lost(found) == {Stage.QUEUE: {4, 5}, Stage.DELIVERY: {4, 5}}


@pytest.mark.simulation
def test_a_weeks_outage_of_a_hundred_destinations_is_small() -> None:
    """10,080 minutes of 60,000 events, which no lane has reached: see ADR 0053 for the figures."""
    week, each = 10_080, 15_000
    books = AuditBooks()
    part = Evidence()
    for nth in range(week):
        minute, at = M0 + nth * 60_000, nth * each
        part.claims += [
            Claim(TOPIC, number, minute, at, at + each, minute, (0, nth, nth))
            for number in range(4)
        ]
    books.take(part)
    destinations = [f"orders/{number}" for number in range(100)]
    log = {KafkaPartition(TOPIC, number): (0, week * each) for number in range(4)}
    here = World({TOPIC: destinations}, {}, log, M0 + week * 60_000)
    rules = Rules(check_after_ms=120_000, overdue_ms=600_000)
    books.close([], here, rules)
    # For each destination, only 72 minutes and the oldest one are judged one by one; all minutes
    # are counted.
    assert len(books.judge(here, rules, {})) <= 75 * len(destinations)
    assert {books.overdue[each].minute_count for each in destinations} == {week - 12}
    assert len(msgspec.msgpack.encode(books)) < 200 * week


def test_a_loss_of_one_neither_closes_nor_settles_what_is_open_for_another() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 2), claim(M0 + 60_000 * 60 * 24 * 9, 2, 3)]))
    still = "orders/still"
    here = World({TOPIC: [TO, still]}, {TO: {WHERE: 2}}, {WHERE: (0, 3)}, NOW)
    later = replace(here, now_ms=NOW + 9 * CLOSED_KEPT_MS)
    for world in (here, later, later):
        books.close(books.judge(world, AT_ONCE, {}), world, AT_ONCE, uncompared={(TOPIC, M0)})
        books.close(books.judge(world, AT_ONCE, {}), world, AT_ONCE)
        assert len(books.ledgers[TOPIC].times_ms()) == 2
        assert not any(books.ledgers[TOPIC].checked.values())
    books.outcomes[still, KafkaPartition(TOPIC, 1)] = Outcomes()
    books.take(evidence([claim(M1, 1, 2)]))
    assert books.acked(TOPIC, M1) == 1


def test_who_is_taken_away_leaves_open_only_what_others_wait_for() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 2), claim(M1, 2, 3)], delivered=[(0, 2)]))
    both = World({TOPIC: [TO, "orders/still"]}, {TO: {WHERE: 2}}, {WHERE: (0, 3)}, NOW)
    books.close(books.judge(both, AT_ONCE, {}), both, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == [M0, M1]
    assert books.to_look_up(both, AT_ONCE) == {}
    alone = replace(both, destinations={TOPIC: [TO]})
    books.close(books.judge(alone, AT_ONCE, {}), alone, AT_ONCE)
    assert books.ledgers[TOPIC].times_ms() == [M1]
    assert books.closed[TOPIC, M0].outcomes == {TO: (2, 0)}
