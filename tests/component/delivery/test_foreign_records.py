"""A record written without the gateway becomes at most one dead letter, and never ends a lane."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from shared.event.envelope import EVENT_BYTES_MAX, EVENT_ID
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import DEAD, OUTCOME_BYTES_MAX, STATE
from shared.proof.receipt import ReceiptOutcome
from shared.retry.dead_letter import open_letter, story_of
from tests.support.delivery.deliver_runs import (
    covered,
    events,
    events_only,
    plan_for,
    receipts,
    run,
    sample,
)
from tests.support.servers.scripted_destination import always, scripted_destination

HUGE = 3_000_000


def row_bytes(row: RecordOut) -> int:
    headers = sum(len(name) + len(raw) for name, raw in row.headers)
    return len(row.value) + len(row.key or b"") + headers


def with_huge_id(record: RecordIn) -> RecordIn:
    others = tuple(header for header in record.headers if header[0] != EVENT_ID)
    return replace(record, headers=((EVENT_ID, b"i" * HUGE), *others))


HUGE_RECORDS: dict[str, Callable[[RecordIn], RecordIn]] = {
    "value": lambda record: replace(record, value=b'"%b"' % (b"x" * HUGE)),
    "key": lambda record: replace(record, key=b"k" * HUGE),
    "id": with_huge_id,
    "trace": lambda record: replace(
        record, headers=(*record.headers, ("traceparent", b"t" * HUGE))
    ),
}


@pytest.mark.parametrize("status", [503, 400])
@pytest.mark.parametrize("part", HUGE_RECORDS)
def test_what_is_left_of_a_huge_record_fits_into_kafka(part: str, status: int) -> None:
    huge, small = events(2)
    with scripted_destination(always(status)) as destination:
        outcomes = run([HUGE_RECORDS[part](huge), small], plan_for(sample(destination)))
    assert max(map(row_bytes, outcomes)) < OUTCOME_BYTES_MAX
    dead, waiting = (
        covered(outcomes, each) for each in (ReceiptOutcome.DEAD, ReceiptOutcome.WAITING)
    )
    assert len(dead) + len(waiting) == 2
    assert len([row for row in events_only(outcomes) if not receipts([row])]) == 2


def test_an_event_too_large_to_wait_is_a_dead_letter_that_says_so() -> None:
    (record,) = events(1)
    huge = HUGE_RECORDS["value"](record)
    with scripted_destination(always(503)) as destination:
        outcomes = run([huge], plan_for(sample(destination)))
    (row,) = [row for row in outcomes if row.topic != STATE and not receipts([row])]
    assert row.topic == DEAD
    letter = open_letter(RecordIn(record.origin, 0, row.key, row.value, row.headers))
    assert (letter.reason, letter.event_id) == ("too_large", "e0")
    # A part of an event must never be sent as if it were the event.
    assert not letter.can_be_redriven
    assert (
        story_of(letter)["problem"] == f"only the beginning of its {len(huge.value)} bytes is kept"
    )
    assert len(row.value) <= EVENT_BYTES_MAX
    (receipt,) = receipts(outcomes)
    assert (receipt.outcome, receipt.reason) == (ReceiptOutcome.DEAD, "too_large")


def test_a_huge_event_is_delivered_by_whom_takes_it() -> None:
    (record,) = events(1)
    with scripted_destination() as destination:
        outcomes = run([HUGE_RECORDS["value"](record)], plan_for(sample(destination)))
        assert len(destination.accepted) == 1
    assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 1


@pytest.mark.parametrize("value", [b"{[1]:2}", b"{{}:1}", b"{1:2}", b"\xff\xfe{", b'{"a"', b"{"])
def test_what_is_no_json_is_sent_whole_whatever_members_are_wanted(value: bytes) -> None:
    (record,) = events(1)
    with scripted_destination() as destination:
        to = sample(
            destination,
            fields=("/a", "/b/c"),
            filter=({"pointer": "/type", "exists": False},),
            order="key",
        )
        outcomes = run([replace(record, value=value)], plan_for(to))
        (request,) = destination.accepted
    assert request.body == b"[%b]" % value
    assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 1


STRANGE_VALUES = [
    b"",
    b"\xff",
    b"[" * 5_000,
    b'{"a":' * 3_000,
    b'{"type":%b}' % (b"9" * 5_000),
    b'"\\ud800"',
    b"\x00\x00\xfe\xff{",
    b"{}\n{}",
    b'{"type":NaN}',
    b"\xef\xbb\xbf{}",
]
STRANGE_HEADERS = [
    (),
    (("event-id", b"\xff"), ("event-time-ms", b"-99999999999999999")),
    (("event-time-ms", b"999999999999999999"), ("traceparent", b"a\r\nb")),
    (("accepted-at-ms", b""), ("event-id", b"a\r\nb"), ("event-id", b"")),
]


@pytest.mark.parametrize("body_format", ["json", "ndjson", "cloudevents", "single"])
@pytest.mark.parametrize("wanted", [{}, {"fields": ("/a", "/type/b"), "order": "key"}], ids=str)
def test_every_strange_record_has_its_outcome(body_format: str, wanted: dict[str, Any]) -> None:
    pairs = list(product(STRANGE_VALUES, STRANGE_HEADERS))
    records = [
        replace(record, value=value, headers=headers)
        for record, (value, headers) in zip(events(len(pairs)), pairs, strict=True)
    ]
    with scripted_destination(always(400)) as destination:
        outcomes = run(records, plan_for(sample(destination, body_format=body_format, **wanted)))
    # Once it is clear that everything is refused, the remaining events wait.
    dead, waiting = (
        covered(outcomes, fate) for fate in (ReceiptOutcome.DEAD, ReceiptOutcome.WAITING)
    )
    assert not dead.both(waiting)
    assert len(dead) + len(waiting) == len(records)
