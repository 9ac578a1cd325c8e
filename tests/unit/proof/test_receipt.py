"""A receipt says which offsets, minutes and times its events have, and survives its JSON."""

import itertools
import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from shared.event.record import KafkaPartition, Origin
from shared.event.times import minute_of
from shared.proof.last_answer import FailedTry
from shared.proof.receipt import (
    SHEET_BYTES_MAX,
    CoveredOffsets,
    Receipt,
    ReceiptOutcome,
    cover,
    facts_of,
    make_receipt,
    receipts_of,
    sheets_of,
    without_event,
)
from tests.support.suite.samples import NOW_MS, an_envelope, log_buckets, receipt_of

TOPIC = "hifi.stream.orders"

origins = st.builds(
    Origin, st.sampled_from([TOPIC, "hifi.stream.hits"]), st.integers(0, 2), st.integers(0, 30)
)


def a_receipt() -> Receipt:
    minute_ms = minute_of(NOW_MS)
    return make_receipt(
        facts_of(
            [
                an_envelope(4, event_time_ms=minute_ms, accepted_at_ms=NOW_MS + 9),
                an_envelope(5, event_time_ms=minute_ms + 59_999, accepted_at_ms=NOW_MS + 7),
                an_envelope(9, event_time_ms=minute_ms + 60_000, accepted_at_ms=NOW_MS + 8),
            ]
        ),
        destination_id="orders/shop",
        outcome=ReceiptOutcome.DELIVERED,
        reason="status_200",
        batch_id="msg_1",
        attempt=1,
        started_at_ms=NOW_MS + 20,
        ended_at_ms=NOW_MS + 30,
    )


def test_a_receipt_adds_up_its_events() -> None:
    assert a_receipt() == Receipt(
        destination_id="orders/shop",
        outcome=ReceiptOutcome.DELIVERED,
        reason="status_200",
        batch_id="msg_1",
        event_count=3,
        covered=(CoveredOffsets(TOPIC, 0, 4, 6), CoveredOffsets(TOPIC, 0, 9, 10)),
        minutes={1_699_999_980_000: 2, 1_700_000_040_000: 1},
        event_time_ms_min=1_699_999_980_000,
        accepted_at_ms_min=NOW_MS + 7,
        attempt=1,
        started_at_ms=NOW_MS + 20,
        ended_at_ms=NOW_MS + 30,
        out_from_event=log_buckets([20_030, -39_969, -39_970]).to_list(),
        out_from_accepted=log_buckets([21, 23, 22]).to_list(),
        in_from_accepted=log_buckets([11, 13, 12]).to_list(),
    )


def test_a_receipt_of_another_version_can_be_read() -> None:
    written = {"is_retry": False, "not_passed": {}, **json.loads(a_receipt().to_json())}
    del written["out_from_event"]
    read = receipt_of(json.dumps({**written, "something_new": 1}).encode())
    assert read == structs.replace(a_receipt(), out_from_event=[])


@pytest.mark.parametrize("times_ms", [[5], [0, 59_999, 3], [60_000, 59_999], [-1, 0, -60_000]])
def test_each_event_is_counted_in_its_minute(times_ms: list[int]) -> None:
    events = [an_envelope(at, event_time_ms=time_ms) for at, time_ms in enumerate(times_ms)]
    receipt = make_receipt(
        facts_of(events),
        destination_id="orders/shop",
        outcome=ReceiptOutcome.DELIVERED,
        reason="status_200",
        batch_id="msg_1",
        attempt=1,
        started_at_ms=0,
        ended_at_ms=0,
    )
    assert receipt.minutes == Counter(minute_of(time_ms) for time_ms in times_ms)


def test_a_receipt_is_written_like_this() -> None:
    assert json.loads(a_receipt().to_json()) == {
        "destination_id": "orders/shop",
        "outcome": "delivered",
        "reason": "status_200",
        "batch_id": "msg_1",
        "event_count": 3,
        "covered": [[TOPIC, 0, 4, 6], [TOPIC, 0, 9, 10]],
        "minutes": {"1699999980000": 2, "1700000040000": 1},
        "event_time_ms_min": 1_699_999_980_000,
        "accepted_at_ms_min": 1_700_000_000_007,
        "attempt": 1,
        "started_at_ms": 1_700_000_000_020,
        "ended_at_ms": 1_700_000_000_030,
        "out_from_event": log_buckets([20_030, 0, 0]).to_list(),
        "out_from_accepted": log_buckets([21, 22, 23]).to_list(),
        "in_from_accepted": log_buckets([11, 12, 13]).to_list(),
    }


def test_a_receipt_says_what_came_of_tries_that_failed_and_costs_nothing_if_none_did() -> None:
    failed = structs.replace(
        a_receipt(),
        failed_tries=(
            FailedTry(NOW_MS, "status_503", 9, 503, "no healthy upstream", {"server": "edge"}),
            FailedTry(NOW_MS + 1, "connect_refused"),
        ),
    )
    assert receipt_of(failed.to_json()) == failed
    assert json.loads(failed.to_json())["failed_tries"] == [
        {"at_ms": NOW_MS, "reason": "status_503", "took_ms": 9, "status": 503,
         "text": "no healthy upstream", "headers": {"server": "edge"}},
        {"at_ms": NOW_MS + 1, "reason": "connect_refused"},
    ]  # fmt: skip
    assert b"failed_tries" not in a_receipt().to_json()


@given(
    st.lists(origins, min_size=1, max_size=20),
    st.sampled_from(ReceiptOutcome),
    st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=5),
    st.text(),
)
def test_a_receipt_is_the_same_after_its_json(
    drawn: list[Origin], outcome: ReceiptOutcome, times_ms: list[int], reason: str
) -> None:
    envelopes = [
        replace(an_envelope(), origin=origin, event_time_ms=times_ms[at % len(times_ms)])
        for at, origin in enumerate(drawn)
    ]
    receipt = structs.replace(
        a_receipt(),
        outcome=outcome,
        reason=reason,
        covered=facts_of(envelopes).covered,
        minutes=dict(Counter(minute_of(envelope.event_time_ms) for envelope in envelopes)),
    )
    assert receipt_of(receipt.to_json()) == receipt
    confirmed = structs.replace(receipt, read_at=drawn[0])
    assert receipt_of(confirmed.to_json()) == confirmed


@given(st.lists(st.integers(1, SHEET_BYTES_MAX * 2), max_size=12))
def test_receipts_come_off_their_sheets_as_they_went_on(sizes: list[int]) -> None:
    lines = [bytes([65 + nth]) * size for nth, size in enumerate(sizes)]
    sheets = list(sheets_of(lines))
    assert [line for sheet in sheets for line in sheet.split(b"\n")] == lines
    # No sheet exceeds its maximum, except one with a single receipt.
    assert all(len(sheet) <= SHEET_BYTES_MAX or b"\n" not in sheet for sheet in sheets)
    for one, after in itertools.pairwise(sheets):
        assert len(one) + 1 + len(after.split(b"\n")[0]) > SHEET_BYTES_MAX


def test_a_torn_receipt_is_none_and_spoils_no_other() -> None:
    line = a_receipt().to_json()
    sheet = b"\n".join((line, line[:40], line))
    assert receipts_of(sheet) == [a_receipt(), None, a_receipt()]
    assert receipts_of(b"\n".join((line, line))) == [a_receipt(), a_receipt()]


@given(st.lists(origins, max_size=40))
def test_what_is_covered_is_exactly_the_events(drawn: list[Origin]) -> None:
    covered = cover((origin.topic, origin.partition, origin.offset) for origin in drawn)
    unfolded = [
        Origin(c.topic, c.partition, offset) for c in covered for offset in range(c.first, c.end)
    ]
    assert len(unfolded) == len(set(unfolded))
    assert set(unfolded) == set(drawn)


@given(st.lists(origins, max_size=40))
def test_no_two_intervals_of_a_receipt_could_be_one(drawn: list[Origin]) -> None:
    covered = cover((origin.topic, origin.partition, origin.offset) for origin in drawn)
    ends = {(c.topic, c.partition, c.end) for c in covered}
    assert not any((c.topic, c.partition, c.first) in ends for c in covered)


@pytest.mark.parametrize(
    ("time_ms", "minute_ms"),
    [(0, 0), (59_999, 0), (60_000, 60_000), (-1, -60_000), (-60_000, -60_000)],
)
def test_a_minute_starts_at_or_before_its_times(time_ms: int, minute_ms: int) -> None:
    assert minute_of(time_ms) == minute_ms


def test_what_was_sent_beside_an_event_is_its_piece_of_the_batch() -> None:
    topic = a_receipt().covered[0].topic
    covered = (
        CoveredOffsets(topic, 0, 5, 9),
        CoveredOffsets(topic, 1, 2, 7),
        CoveredOffsets(topic, 1, 8, 9),
    )
    receipt = structs.replace(a_receipt(), batch_id="msg_1", covered=covered)
    assert list(receipt.beside(Origin(topic, 1, 6))) == [(2, 7)]
    assert list(receipt.beside(Origin(topic, 1, 7))) == []
    assert list(structs.replace(receipt, batch_id="").beside(Origin(topic, 1, 6))) == []


@given(st.sets(st.integers(0, 30)), st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted))
def test_what_holds_no_event_is_all_of_a_span_but_its_events(
    events: set[int], span: list[int]
) -> None:
    begin, end = span
    offsets = sorted(each for each in events if each >= begin)
    found = list(without_event(KafkaPartition("t", 1), offsets, (begin, end)))
    assert [each for part in found for each in range(part.first, part.end)] == [
        each for each in range(begin, end) if each not in events
    ]
    assert all(part[:2] == ("t", 1) and part.first < part.end for part in found)
