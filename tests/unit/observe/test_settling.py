"""What is settled for one destination is forgotten for it, and in all later books all the same."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from observe.audit.books import AuditBooks, World
from observe.audit.evidence import Evidence
from observe.audit.minutes import DEAD
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, Node
from tests.support.samples import layers_of
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


@given(steps)
def test_what_is_settled_for_one_and_forgotten_is_in_all_later_books(
    drawn: list[tuple[str, Any, int]],
) -> None:
    """Two destinations at their own pace, closed after each step, against a plain list of fates."""
    books = AuditBooks()
    minutes: list[int] = []
    fates: dict[str, list[str]] = {"orders/one": [], "orders/other": []}
    shown: dict[tuple[str, int | None], MinuteBooks] = {}
    for what, fate, count in drawn:
        part = Evidence()
        if what == "claim":
            first = len(minutes)
            minutes += [fate] * count
            part.claims.append(claim(fate, first, len(minutes), row=first))
        else:
            to = "orders/one" if what == "again" else f"orders/{what}"
            known = fates[to]
            # A repeat says of what was delivered that it was; else the lane goes on.
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
        here = World({TOPIC: list(fates)}, positions, {WHERE: (0, len(minutes))}, NOW)
        findings = books.judge(here, AT_ONCE, {})
        assert lost(findings) == {}
        shown.update({finding.books.key: finding.books for finding in findings})
        books.close(findings, here, AT_ONCE)
    for to, known in fates.items():
        for minute in set(minutes):
            ours = [
                known[o] if o < len(known) else "pending"
                for o, m in enumerate(minutes)
                if m == minute
            ]
            found = shown[to, None if minute == WILD else minute]
            assert (found.acked, found.delivered, found.dead, found.pending) == (
                len(ours), *(ours.count(fate) for fate in ("delivered", "dead", "pending")),
            )  # fmt: skip
    if all(len(known) == len(minutes) for known in fates.values()):
        assert not any(
            ledger.minutes or any(ledger.settled.values()) for ledger in books.ledgers.values()
        )
        assert not any(known.end for known in books.outcomes.values())


def test_offsets_given_anew_are_not_settled_for_what_was_there_before() -> None:
    books = AuditBooks()
    books.take(evidence([claim(M0, 0, 4), claim(M0, 4, 6)], delivered=[(0, 6)]))
    both = World({TOPIC: [TO, "orders/still"]}, {TO: {WHERE: 6}}, {WHERE: (0, 6)}, NOW)
    books.close(books.judge(both, AT_ONCE, {}), both, AT_ONCE)
    assert list(books.outcomes[TO, WHERE].done) == [(0, 6)]
    books.take(evidence([claim(M1, 4, 6)]))
    found = [one for one in books.judge(both, AT_ONCE, {}) if one.books.destination_id == TO]
    assert lost(found) == {Node.KAFKA: {4, 5}, Node.DELIVERY: {4, 5}}
