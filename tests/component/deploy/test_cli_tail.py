"""How records are shown: a line for people, an object for programs, and nothing that bites."""

import io
import json
import os
import sys

import pytest

from deploy.cli.events.record_lines import as_json, as_line
from deploy.cli.printing import harmless, reader_may_leave
from shared.event.envelope import (
    REASON,
    History,
    Malformed,
    dead_headers,
    event_headers,
    malformed_headers,
    open_stream_record,
    retry_headers,
)
from shared.event.record import Headers, Origin, RecordIn
from shared.event.topics import DEAD, RECEIPTS, retry_topic, stream_topic

EVENT = RecordIn(
    origin=Origin(stream_topic("demo"), 3, 17),
    timestamp_ms=1_700_000_000_123,
    key=b"k 1",
    value=b'{"id":"e7"}',
    headers=event_headers(event_id="e7", event_time_ms=5, accepted_at_ms=6),
)
HISTORY = History(
    attempt_count=13,
    park_count=0,
    first_attempt_at_ms=1,
    deadline_at_ms=2,
    not_before_ms=3,
    cause="status_500",
    last_status=500,
    last_detail="out of order",
    is_ambiguous=True,
)


def record(topic: str, headers: Headers, value: bytes = b"{}") -> RecordIn:
    return RecordIn(Origin(topic, 0, 1), 1_700_000_000_000, b"demo/to:3", value, headers)


def dead() -> RecordIn:
    headers = dead_headers(
        open_stream_record(EVENT), "demo/to", HISTORY, reason="deadline", dead_at_ms=9
    )
    return record(DEAD, headers)


def test_an_event_is_one_line() -> None:
    line = as_line(EVENT, with_headers=False)
    assert line[8:].startswith('.123  3:17  id=e7  key="k 1"  {"id":"e7"}')
    assert "\n" not in line


def test_an_event_is_one_object() -> None:
    assert json.loads(as_json(EVENT, with_headers=True)) == {
        "topic": stream_topic("demo"),
        "partition": 3,
        "offset": 17,
        "time_ms": 1_700_000_000_123,
        "id": "e7",
        "event_time_ms": 5,
        "key": "k 1",
        "value": {"id": "e7"},
        "headers": {"event-id": "e7", "event-time-ms": "5", "accepted-at-ms": "6"},
    }


def test_a_dead_letter_says_why_how_often_and_from_where() -> None:
    line = as_line(dead(), with_headers=False)
    for words in (
        "id=e7",
        "destination=demo/to",
        "reason=deadline",
        "last_status=500",
        'last_detail="out of order"',
        "attempts=13",
    ):
        assert words in line
    found = json.loads(as_json(dead(), with_headers=False))
    assert found["origin"] == {"topic": stream_topic("demo"), "partition": 3, "offset": 17}
    assert found["may_be_duplicate"] is True


def test_a_waiting_event_has_no_reason_yet() -> None:
    headers = retry_headers(open_stream_record(EVENT), "demo/to", HISTORY, now_ms=3)
    line = as_line(record(retry_topic("30s"), headers), with_headers=False)
    assert "attempts=13" in line
    assert "reason=" not in line


def test_a_dead_letter_that_nobody_could_open_says_so() -> None:
    malformed = Malformed(record(retry_topic("30s"), ()), "header v is missing")
    headers = malformed_headers(malformed, reason="malformed", dead_at_ms=9)
    line = as_line(record(DEAD, headers), with_headers=False)
    assert "reason=malformed" in line
    assert 'problem="header v is missing"' in line


def test_a_receipt_shows_its_own_json() -> None:
    line = as_line(record(RECEIPTS, (), b'{"outcome":"delivered"}'), with_headers=False)
    assert line.endswith('0:1  key=demo/to:3  {"outcome":"delivered"}')


@pytest.mark.parametrize("value", [b"\x1b[31mred", b"a\nb", b"\x07", b"\xff\xfe", b"\xc2\x9b1m"])
def test_no_control_character_reaches_the_terminal(value: bytes) -> None:
    hostile = RecordIn(EVENT.origin, 1, value, value, ((REASON, value), ("name\x1b", value)))
    for with_headers in (False, True):
        line = as_line(hostile, with_headers=with_headers)
        assert all(part.isprintable() for part in line.split("\n"))
    assert line.count("\n") == 2, "a line for the record and one for each header"
    assert as_json(hostile, with_headers=True).isascii()


def test_a_long_value_is_cut_for_people_and_whole_for_programs() -> None:
    long = RecordIn(EVENT.origin, 1, None, b'"' + b"x" * 5_000 + b'"', ())
    assert as_line(long, with_headers=False).endswith("x… (5,002 bytes)")
    assert json.loads(as_json(long, with_headers=False))["value"] == "x" * 5_000


def test_half_a_surrogate_pair_can_be_printed() -> None:
    odd = RecordIn(EVENT.origin, 1, None, b'{"a":"\\ud800"}', ())
    assert as_json(odd, with_headers=False).isascii()


def test_text_without_control_characters_stays_as_it_is() -> None:
    assert harmless("größe 漢字 [red]") == "größe 漢字 [red]"


def test_a_reader_that_leaves_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with io.TextIOWrapper(os.fdopen(writing, "wb")) as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with reader_may_leave():
            sys.stdout.write("nobody reads this")
