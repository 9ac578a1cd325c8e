"""Idempotency-Keys in the log of requests: every reader of it reaches the same verdicts."""

import json
import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers import Answer
from gateway.fleet.idempotency import (
    ENTRY_BYTES,
    KeyBook,
    RequestRow,
    Verdict,
    Won,
    digest_of,
    id_base,
)
from gateway.problems import Problem

DONE = Answer(200, b"{}")
HOLDS_MS = 30_000
DAY_MS = 86_400_000


def a_claim(content: bytes = b"body", *, tenant: str = "acme", holds_ms: int = HOLDS_MS) -> Any:
    return RequestRow(os.urandom(8), tenant, digest_of([content]), holds_ms=holds_ms)


@dataclass
class Log:
    """Rows that are written one after the other, and a book that has read them."""

    book: KeyBook = field(default_factory=lambda: KeyBook(1_000_000))

    def add(self, row: RequestRow, *, at_ms: int = 1, key: bytes = b"key") -> Verdict | None:
        return self.book.take(key, row.to_bytes(), at_ms)[1]

    def ended(
        self, row: RequestRow, answer: Answer | None, *, is_sent: bool = True, at_ms: int = 2
    ) -> None:
        assert self.add(row.end(answer, is_sent=is_sent), at_ms=at_ms) is None


def code(verdict: Verdict | None) -> str:
    assert isinstance(verdict, Problem)
    return verdict.code


def test_a_repeated_key_gets_the_first_answer() -> None:
    log, first = Log(), a_claim()
    assert log.add(first) == Won()
    log.ended(first, DONE)
    again = log.add(a_claim())
    assert isinstance(again, RequestRow)
    assert again.answer == DONE
    known = log.book.known(b"key", a_claim())
    assert isinstance(known, RequestRow), "an answer is final, and is returned without a claim"
    assert known.answer == DONE


def test_the_first_claim_in_the_log_has_the_key_and_with_another_body_it_is_422() -> None:
    log = Log()
    assert log.add(a_claim()) == Won()
    assert code(log.add(a_claim())) == "idempotency_key_in_use"
    assert code(log.add(a_claim(b"other"))) == "idempotency_key_reused"
    assert log.add(a_claim(b"other"), key=b"other") == Won()
    assert log.book.known(b"key", a_claim(b"other")) is None, "the key may be free again"


@pytest.mark.parametrize("ended", [None, Answer(503, b""), Answer(504, b""), Answer(500, b"")])
def test_what_is_not_final_opens_the_key_for_the_same_body(ended: Answer | None) -> None:
    log, first = Log(), a_claim()
    log.add(first, at_ms=7)
    log.ended(first, ended, is_sent=False)
    assert code(log.add(a_claim(b"other"))) == "idempotency_key_reused"
    assert log.add(a_claim()) == Won()


def test_what_may_be_in_the_log_is_looked_for_since_the_first_claim() -> None:
    log, first, second = Log(), a_claim(), a_claim()
    log.add(first, at_ms=7)
    log.ended(first, Answer(504, b""), is_sent=True, at_ms=8)
    assert log.add(second, at_ms=20) == Won(since_ms=7)
    # A request that sent nothing, or was refused, says nothing about earlier ones.
    log.ended(second, Answer(503, b""), is_sent=False, at_ms=21)
    third = a_claim()
    assert log.add(third, at_ms=30) == Won(since_ms=7)
    log.ended(third, Answer(400, b""), is_sent=False, at_ms=31)
    assert log.add(a_claim(), at_ms=40) == Won(since_ms=7)


def test_a_claim_whose_gateway_died_holds_for_as_long_as_it_says_by_the_logs_own_clock() -> None:
    log = Log()
    log.add(a_claim(), at_ms=1_000)
    assert code(log.add(a_claim(), at_ms=1_000 + HOLDS_MS)) == "idempotency_key_in_use"
    assert log.add(a_claim(), at_ms=1_001 + HOLDS_MS) == Won(since_ms=1_000)
    assert log.add(a_claim(), at_ms=2_002 + 2 * HOLDS_MS) == Won(since_ms=1_000)


def test_who_was_overtaken_has_nothing_to_say_any_more() -> None:
    log, late, taker = Log(), a_claim(), a_claim()
    log.add(late, at_ms=0)
    log.add(taker, at_ms=HOLDS_MS + 1)
    log.ended(late, Answer(200, b"late"), at_ms=HOLDS_MS + 2)
    assert code(log.add(a_claim(), at_ms=HOLDS_MS + 3)) == "idempotency_key_in_use"
    log.ended(taker, DONE, at_ms=HOLDS_MS + 4)
    again = log.add(a_claim(), at_ms=HOLDS_MS + 5)
    assert isinstance(again, RequestRow)
    assert again.answer == DONE


def test_a_refused_request_gives_the_key_back() -> None:
    log, first = Log(), a_claim(b"[")
    log.add(first)
    log.ended(first, Answer(400, b""), is_sent=False)
    assert log.add(a_claim(b"[]")) == Won()


def test_who_begins_in_mid_log_knows_an_answer_without_its_claim() -> None:
    log, first = Log(), a_claim()
    log.ended(first, DONE)
    assert isinstance(log.add(a_claim()), RequestRow)


def test_content_is_compared_part_by_part() -> None:
    assert digest_of([b"key", b"body"]) != digest_of([b"keyb", b"ody"])
    assert digest_of([b"key", b"body"]) == digest_of([b"key", b"body"])


def test_answers_are_good_for_a_day() -> None:
    log, first = Log(), a_claim()
    log.add(first, at_ms=0)
    log.ended(first, DONE, at_ms=1)
    assert isinstance(log.add(a_claim(), at_ms=DAY_MS), RequestRow)
    log.add(a_claim(), key=b"other", at_ms=DAY_MS + 2)
    assert log.book.known(b"key", a_claim()) is None, "a new claim is needed"
    assert log.add(a_claim(b"new"), at_ms=DAY_MS + 2) == Won()


def test_answers_come_back_as_they_were_with_lists_of_events_packed() -> None:
    body = json.dumps({"accepted": 1, "results": [{"id": f"e-{n}"} for n in range(1_000)]}).encode()
    answer = Answer(207, body, ((b"preference-applied", b"return=minimal"),))
    row = a_claim().end(answer, is_sent=True)
    assert len(row.to_bytes()) < len(body) / 4
    assert row.answer == answer


def test_an_answer_that_is_too_long_for_a_record_is_kept_without_its_list() -> None:
    rng = random.Random(5)
    results = [{"id": rng.randbytes(16).hex()} for _ in range(40_000)]
    body = json.dumps({"request_id": "r", "accepted": 40_000, "results": results}).encode()
    row = a_claim().end(Answer(200, body), is_sent=True)
    assert json.loads(row.answer.body) == {"request_id": "r", "accepted": 40_000}


def test_memory_is_bounded_and_the_tenant_that_holds_most_forgets_first() -> None:
    log = Log(KeyBook(100 * ENTRY_BYTES))
    for n in range(10):
        other = a_claim(tenant="other")
        log.add(other, key=b"other-%d" % n)
        log.add(other.end(DONE, is_sent=True), key=b"other-%d" % n)
    for n in range(1_000):
        claim = a_claim()
        log.add(claim, key=b"%d" % n)
        log.add(claim.end(DONE, is_sent=True), key=b"%d" % n)
    assert log.book.byte_count <= 100 * ENTRY_BYTES
    kept = [log.book.known(b"other-%d" % n, a_claim(tenant="other")) for n in range(10)]
    assert None not in kept, "a tenant's keys do not push out another's"
    assert log.book.known(b"999", a_claim()) is not None
    assert log.book.known(b"0", a_claim()) is None, "the oldest key is forgotten first"


def test_what_is_under_way_is_never_forgotten() -> None:
    log = Log(KeyBook(ENTRY_BYTES))
    log.add(a_claim(), key=b"slow")
    for n in range(10):
        claim = a_claim()
        log.add(claim, key=b"%d" % n)
        log.add(claim.end(DONE, is_sent=True), key=b"%d" % n)
    assert code(log.add(a_claim(), key=b"slow")) == "idempotency_key_in_use"


def test_a_record_of_no_meaning_is_an_error_of_its_own() -> None:
    log = Log()
    with pytest.raises(ValueError, match="JSON"):
        log.book.take(b"key", b"nonsense", 1)
    assert log.add(a_claim()) == Won()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["claim", "end", "die"])), max_size=60)
)
def test_of_claims_that_overlap_one_has_the_key_and_all_readers_agree(
    steps: list[tuple[int, str]],
) -> None:
    """Three gateways claim, end and die in any order; two books read the same log."""
    books = KeyBook(1_000_000), KeyBook(1_000_000)
    mine: dict[int, RequestRow] = {}
    holders: dict[bytes, int] = {}
    at_ms = 0
    for gateway, what in steps:
        at_ms += 10_000
        if what == "die":
            mine.pop(gateway, None)
            continue
        ended = mine.pop(gateway, None) if what == "end" else None
        row = a_claim() if ended is None else ended.end(Answer(503, b""), is_sent=True)
        first, second = (book.take(b"key", row.to_bytes(), at_ms)[1] for book in books)
        assert type(first) is type(second)
        if ended is not None:
            holders.pop(ended.claim, None)
        if isinstance(first, Won):
            alive = [until for until in holders.values() if until >= at_ms]
            assert not alive, "two requests hold one key"
            holders[row.claim] = at_ms + HOLDS_MS
            mine[gateway] = row


def test_ids_of_a_repetition_are_the_same_everywhere() -> None:
    assert id_base("acme\0orders\0k") == "ik-b7e4a61a315486ebbc3b32dd0c088b9f"
    assert id_base("a") != id_base("b")
