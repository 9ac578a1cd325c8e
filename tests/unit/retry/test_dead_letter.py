"""The contents of dead letters, filters for them, and the records of resending them."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.lag.progress import Progress
from shared.event.envelope import Envelope, MalformedRecord, malformed_headers, open_retry_record
from shared.event.payload import payload_of
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.event.topics import DEAD, RECEIPTS, REDRIVEN, retry_topic
from shared.proof.balance import Balance
from shared.proof.receipt import ReceiptOutcome, facts_of, make_receipt
from shared.retry.dead_letter import (
    Age,
    DeadLetterFilter,
    Letter,
    Place,
    export_line,
    marked_place,
    open_letter,
    redriven_rows,
    story_of,
)
from shared.retry.decision import DeadLetter
from shared.retry.routing import route, route_malformed
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import NOW_MS, a_history, an_envelope, envelopes, receipt_of

SCHEDULE = RetrySchedule()


def a_letter(
    offset: int = 17,
    *,
    reason: str = "status_400",
    destination_id: str = "orders/shop",
    dead_at_ms: int = NOW_MS,
    value: bytes = b'{"id":"evt-3"}',
    event_offset: int = 3,
    **history: Any,
) -> Letter:
    dead = DeadLetter(
        reason,
        replace(a_history(attempt_count=1), **{"cause": reason, "last_status": 400, **history}),
    )
    envelope = replace(an_envelope(event_offset), value=value)
    written = route(dead, envelope, destination_id, now_ms=dead_at_ms)
    return open_letter(
        RecordIn(Origin(DEAD, 1, offset), dead_at_ms, written.key, written.value, written.headers)
    )


def a_malformed_letter() -> Letter:
    record = RecordIn(Origin(retry_topic("30s"), 0, 4), NOW_MS, b"k", b"\xff", (("v", b"9"),))
    written = route_malformed(MalformedRecord(record, "header v is not readable"), now_ms=NOW_MS)
    return open_letter(RecordIn(Origin(DEAD, 0, 5), NOW_MS, b"k", written.value, written.headers))


def test_a_letter_read_without_its_bytes_still_says_how_many_there_were() -> None:
    row = route(DeadLetter("x", a_history()), an_envelope(3), "orders/shop", now_ms=NOW_MS)
    record = RecordIn(Origin(DEAD, 0, 5), NOW_MS, b"k", row.value, row.headers)
    whole, bare = open_letter(record), open_letter(record, keeps_value=False)
    assert (bare.value, bare.byte_count) == (b"", len(row.value))
    assert isinstance(bare.opened, Envelope)
    assert bare.opened.value == b""
    assert story_of(bare) == story_of(whole)


def test_a_dead_letter_tells_its_whole_story() -> None:
    assert story_of(a_letter(last_attempt_at_ms=NOW_MS + 5)) == {
        "place": "1:17",
        "dead_at_ms": NOW_MS,
        "stream": "orders",
        "destination": "orders/shop",
        "reason": "status_400",
        "id": "evt-3",
        "bytes": 14,
        "attempts": 1,
        "parks": 0,
        "cause": "status_400",
        "last_status": 400,
        "last_detail": "",
        "may_be_duplicate": False,
        "event_time_ms": an_envelope(3).event_time_ms,
        "accepted_at_ms": an_envelope(3).accepted_at_ms,
        "first_attempt_at_ms": NOW_MS,
        "last_attempt_at_ms": NOW_MS + 5,
        "deadline_at_ms": NOW_MS + 259_200_000,
        "redrives": 0,
        "origin": {
            "topic": "hifi.stream.orders",
            "partition": an_envelope(3).origin.partition,
            "offset": 3,
        },
    }


def test_what_nobody_could_open_says_so_and_is_not_sent_again() -> None:
    letter = a_malformed_letter()
    assert story_of(letter) == {
        "place": "0:5",
        "dead_at_ms": NOW_MS,
        "stream": "",
        "destination": "",
        "reason": "malformed_retry_record",
        "id": "",
        "bytes": 1,
        "problem": "header v is not readable",
    }
    assert not letter.can_be_redriven
    assert json.loads(export_line(letter))["problem"] == "header v is not readable"


def test_a_malformed_record_with_all_of_our_headers_is_not_taken_for_an_event() -> None:
    """The record's offset in the tier was once added to its headers, and passed for the origin."""
    whole = route(
        DeadLetter("x", a_history()), an_envelope(3), "orders/shop", now_ms=NOW_MS
    ).headers
    tier = RecordIn(Origin(retry_topic("30s"), 0, 4), NOW_MS, b"k", b"{}", whole)
    headers = malformed_headers(
        MalformedRecord(tier, "why"), reason="malformed_retry_record", dead_at_ms=NOW_MS
    )
    record = RecordIn(Origin(DEAD, 0, 5), NOW_MS, b"k", b"{}", headers)
    assert isinstance(open_retry_record(record), Envelope)
    assert not open_letter(record).can_be_redriven


def test_what_a_pipeline_gave_up_goes_to_no_retry_tier() -> None:
    row = route(DeadLetter("x", a_history()), an_envelope(3), "orders/pipeline:p", now_ms=NOW_MS)
    record = RecordIn(Origin(DEAD, 0, 5), NOW_MS, row.key, row.value, row.headers)
    letter = open_letter(record)
    assert letter.destination_id == "orders/pipeline:p"
    assert not letter.can_be_redriven


def test_a_part_of_an_event_is_not_sent_again_as_if_it_were_the_event() -> None:
    letter = a_letter(value=b"v" * 2_000_000)
    assert len(letter.value) < 2_000_000
    assert not letter.can_be_redriven
    assert story_of(letter)["problem"] == "only the beginning of its 2000000 bytes is kept"


# what is asked for -> whether a_letter() matches it
WANTED = [
    (DeadLetterFilter(), True),
    (DeadLetterFilter(stream="orders"), True),
    (DeadLetterFilter(stream="order"), False),
    (DeadLetterFilter(destination="shop"), True),
    (DeadLetterFilter(destination="orders/shop"), True),
    (DeadLetterFilter(destination="orders"), False),
    (DeadLetterFilter(reason="status_400"), True),
    (DeadLetterFilter(reason="status_4*"), True),
    (DeadLetterFilter(reason="*"), True),
    (DeadLetterFilter(reason="status_5*"), False),
    (DeadLetterFilter(reason="status_4"), False),
    (DeadLetterFilter(from_ms=NOW_MS), True),
    (DeadLetterFilter(from_ms=NOW_MS + 1), False),
    (DeadLetterFilter(to_ms=NOW_MS + 1), True),
    (DeadLetterFilter(to_ms=NOW_MS), False),
    (DeadLetterFilter(event_id="evt-3"), True),
    (DeadLetterFilter(event_id="evt-"), False),
    (DeadLetterFilter(stream="orders", reason="status_401"), False),
    (DeadLetterFilter(answer="no such customer #"), True),
    (DeadLetterFilter(answer="no such*"), True),
    (DeadLetterFilter(answer="no such"), False),
    (DeadLetterFilter(answer="no such order"), False),
    (DeadLetterFilter(answer=""), False),
]


@pytest.mark.parametrize(("wanted", "is_it"), WANTED, ids=[str(row[0]) for row in WANTED])
def test_what_is_asked_for_is_the_table(wanted: DeadLetterFilter, is_it: bool) -> None:  # noqa: FBT001
    assert wanted.takes(a_letter(last_detail="no such customer 4711")) is is_it


def test_what_nobody_could_open_was_answered_nothing() -> None:
    assert a_malformed_letter().answer == ""
    died = a_letter(reason="retries_exhausted", cause="status_503", last_detail="busy")
    assert died.answer == "503 busy"
    # A letter keeps only the beginning of an answer; an attempt keeps more.
    long = a_letter(last_detail=("\n" * 200 + "bad " * 20)[:256])
    assert long.answer.startswith("bad bad ")
    assert DeadLetterFilter(answer="bad " * 30).takes(long)
    assert not DeadLetterFilter(answer="bad").takes(long)


def test_an_exported_line_has_the_names_of_event_grid_and_the_very_bytes() -> None:
    value = b'{"n": 1.10,\r\n "big": 123456789012345678901234567890}'
    line = export_line(a_letter(value=value, last_attempt_at_ms=NOW_MS))
    assert line.count(b"\n") == 1
    assert b'"data": {"n": 1.10,   "big": 123456789012345678901234567890}}\n' in line
    found = json.loads(line)
    assert found | {"data": None, "eventTime": None, "publishTime": None} == {
        "id": "evt-3",
        "stream": "orders",
        "destination": "orders/shop",
        "deadLetterReason": "status_400",
        "deadLetterTime": "2023-11-14T22:13:20.000+00:00",
        "deliveryAttempts": 1,
        "lastDeliveryOutcome": "status_400",
        "lastHttpStatusCode": 400,
        "lastResponse": "",
        "lastDeliveryAttemptTime": "2023-11-14T22:13:20.000+00:00",
        "eventTime": None,
        "publishTime": None,
        "data": None,
    }


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"no", b"NaN", '{"a":1}'.encode("utf-16")])
def test_what_is_no_json_is_exported_as_its_bytes(value: bytes) -> None:
    found = json.loads(export_line(a_letter(value=value)))
    assert base64.b64decode(found["data_base64"]) == value
    assert payload_of(value) == {"data_base64": found["data_base64"]}
    assert payload_of(a_letter().value) == {"data": {"id": "evt-3"}}


@pytest.mark.parametrize("at_ms", [10**17, -(10**17)])
def test_a_time_that_no_calendar_has_is_exported_as_none(at_ms: int) -> None:
    found = json.loads(export_line(a_letter(last_attempt_at_ms=at_ms)))
    assert found["lastDeliveryAttemptTime"] is None
    assert json.loads(export_line(a_letter()))["lastDeliveryAttemptTime"] is None


def test_sending_again_starts_anew_with_the_same_id_and_bytes() -> None:
    letter = a_letter(is_ambiguous=True)
    rows = redriven_rows([letter], schedule=SCHEDULE, redrive_id="r1", now_ms=NOW_MS + 9)
    waits, mark, receipt = rows
    assert (waits.topic, waits.value) == (retry_topic("30s", is_parked=True), letter.value)
    opened = open_retry_record(
        RecordIn(Origin(waits.topic, 0, 0), NOW_MS, waits.key, waits.value, waits.headers)
    )
    assert isinstance(opened, Envelope)
    assert isinstance(letter.opened, Envelope)
    assert (opened.event_id, opened.origin) == (letter.event_id, letter.opened.origin)
    _, history = opened.travel
    assert (history.attempt_count, history.first_attempt_at_ms) == (0, NOW_MS + 9)
    assert history.deadline_at_ms == NOW_MS + 9 + 259_200_000
    assert (history.redrive_count, history.redrive_id) == (1, "r1")
    assert history.is_ambiguous
    assert (mark.topic, marked_place(mark.key)) == (REDRIVEN, letter.place)
    assert json.loads(mark.value) == {"redrive_id": "r1", "at_ms": NOW_MS + 9}
    told = receipt_of(receipt.value)
    assert (told.outcome, told.reason, told.redrive_count) == (
        ReceiptOutcome.WAITING,
        "redriven",
        1,
    )


def test_the_books_follow_an_event_out_of_dead_letters_and_back() -> None:
    letters = [a_letter(offset, event_offset=offset) for offset in range(4)]
    opened = [letter.opened for letter in letters if isinstance(letter.opened, Envelope)]
    origin = opened[0].origin
    log = {KafkaPartition(origin.topic, origin.partition): (0, 4)}
    progress = Progress("orders/shop")

    def take(outcome: ReceiptOutcome, which: list[Envelope], redrive_count: int) -> Balance:
        progress.take(
            make_receipt(
                facts_of(which),
                destination_id="orders/shop",
                outcome=outcome,
                reason="",
                batch_id="",
                attempt=1,
                started_at_ms=0,
                ended_at_ms=0,
                redrive_count=redrive_count,
            ),
            now_ms=0,
        )
        return progress.balance(log)

    assert take(ReceiptOutcome.DEAD, opened, 0) == Balance(4, 0, 0, 4, 0, 0)
    rows = redriven_rows(letters[:3], schedule=SCHEDULE, redrive_id="r", now_ms=NOW_MS)
    for row in rows:
        if row.topic == RECEIPTS:
            progress.take(receipt_of(row.value), now_ms=0)
    assert progress.balance(log) == Balance(4, 0, 3, 1, 0, 0)
    assert take(ReceiptOutcome.DELIVERED, opened[:1], 1) == Balance(4, 1, 2, 1, 0, 0)
    assert take(ReceiptOutcome.DEAD, opened[1:2], 1) == Balance(4, 1, 1, 2, 0, 0)


def test_what_nobody_could_open_cannot_be_sent_again() -> None:
    with pytest.raises(AssertionError, match="can be opened"):
        redriven_rows([a_malformed_letter()], schedule=SCHEDULE, redrive_id="r", now_ms=0)


def test_receipts_are_one_for_each_destination_and_redrive_count() -> None:
    letters = [
        a_letter(0),
        a_letter(1, event_offset=4),
        a_letter(2, destination_id="orders/bank"),
        a_letter(3, event_offset=5, redrive_count=2, redrive_id="before"),
    ]
    rows = redriven_rows(letters, schedule=SCHEDULE, redrive_id="r", now_ms=NOW_MS)
    told = [receipt_of(row.value) for row in rows if row.topic == RECEIPTS]
    assert [(one.destination_id, one.redrive_count, one.event_count) for one in told] == [
        ("orders/shop", 1, 2),
        ("orders/bank", 1, 1),
        ("orders/shop", 3, 1),
    ]


@given(envelopes, st.integers(0, 1), st.integers(0, 10**15))
def test_any_dead_letter_can_be_opened_exported_and_sent_again(
    envelope: Envelope, partition: int, offset: int
) -> None:
    destination_id, history = envelope.travel
    written = route(DeadLetter("x", history), envelope, destination_id, now_ms=NOW_MS)
    record = RecordIn(
        Origin(DEAD, partition, offset), NOW_MS, written.key, written.value, written.headers
    )
    letter = open_letter(record)
    assert letter.can_be_redriven
    assert export_line(letter).count(b"\n") == 1
    assert json.loads(export_line(letter))["id"] == envelope.event_id
    rows = redriven_rows([letter], schedule=SCHEDULE, redrive_id="r", now_ms=NOW_MS)
    assert [marked_place(row.key) for row in rows if row.topic == REDRIVEN] == [letter.place]


@pytest.mark.parametrize("key", [None, b"", b"1", b":", b"1:", b"1:x", b"-1:2", b"1:+2", b"\xff"])
def test_what_is_no_mark_marks_nothing(key: bytes | None) -> None:
    assert marked_place(key) is None


def test_a_place_is_told_and_read() -> None:
    assert Place.of("3:42") == Place(3, 42)
    assert str(Place(3, 42)) == "3:42"
    with pytest.raises(ValueError, match="not a place"):
        Place.of("3:" + "9" * 40)


def test_an_age_is_told_and_read_and_orders_those_of_one_millisecond() -> None:
    age = Age(7, Place(3, 42))
    assert Age.of(str(age)) == age
    letter = open_letter(RecordIn(Origin(DEAD, 3, 42), 7, None, b"{}", ()))
    assert letter.age == age
    assert Age(7, Place(3, 41)) < age < Age(8, Place(0, 0))
    for wrong in ("", "x:3:42", "7:3", "7", "\u0667:3:42", "9" * 40 + ":3:42"):
        with pytest.raises(ValueError, match="is no"):
            Age.of(wrong)
