"""Headers are read back as they were written; an unreadable one gives its reason."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.event.envelope import (
    ACCEPTED_AT,
    AMBIGUOUS,
    ATTEMPT,
    CAUSE,
    DEAD_AT,
    DEADLINE_AT,
    DESTINATION,
    EVENT_BYTES_MAX,
    EVENT_ID,
    EVENT_TIME,
    FIRST_ATTEMPT_AT,
    LAST_DETAIL,
    LAST_STATUS,
    ORDERING_KEY,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    PARKS,
    REASON,
    STREAM,
    TRACEPARENT,
    VERSION,
    WAIT,
    Envelope,
    History,
    MalformedRecord,
    dead_headers,
    dead_value,
    event_headers,
    malformed_headers,
    malformed_key,
    open_retry_record,
    open_stream_record,
    retry_headers,
)
from shared.event.record import Headers, Origin, RecordIn
from tests.support.suite.samples import (
    NOW_MS,
    a_history,
    a_record,
    an_envelope,
    envelopes,
    names,
    times_ms,
)

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def headers_of_a_waiting_event() -> Headers:
    envelope = replace(an_envelope(7), traceparent=TRACE)
    history = replace(a_history(attempt_count=2), cause="status_503", last_status=503)
    return retry_headers(envelope, "orders/shop", history, now_ms=NOW_MS)


def a_waiting_record(headers: Headers) -> RecordIn:
    return a_record(headers, topic="hifi.retry.30s", key=b"orders/shop:3")


def test_a_fresh_history_has_the_whole_time_before_it() -> None:
    assert History.fresh(now_ms=NOW_MS, deadline_s=1.5) == History(
        attempt_count=0,
        park_count=0,
        first_attempt_at_ms=NOW_MS,
        deadline_at_ms=NOW_MS + 1_500,
        not_before_ms=NOW_MS,
    )


def test_headers_of_an_event_stand_in_their_fixed_order() -> None:
    facts = {"event_id": "evt-1", "event_time_ms": -5, "accepted_at_ms": NOW_MS}
    plain = (
        ("event-id", b"evt-1"),
        ("event-time-ms", b"-5"),
        ("accepted-at-ms", b"1700000000000"),
    )
    assert event_headers(**facts) == plain  # type: ignore[arg-type]
    traced = event_headers(**facts, traceparent=TRACE)  # type: ignore[arg-type]
    assert traced == (*plain, ("traceparent", TRACE.encode()))


@given(names, times_ms, times_ms, st.none() | names)
def test_a_stream_record_opens_to_what_the_gateway_wrote(
    event_id: str, event_time_ms: int, accepted_at_ms: int, traceparent: str | None
) -> None:
    headers = event_headers(
        event_id=event_id,
        event_time_ms=event_time_ms,
        accepted_at_ms=accepted_at_ms,
        traceparent=traceparent,
    )
    opened = open_stream_record(a_record(headers))
    assert opened == Envelope(
        origin=Origin("hifi.stream.orders", 3, 42),
        value=b"{}",
        key=b"k",
        stream="orders",
        event_id=event_id,
        event_time_ms=event_time_ms,
        accepted_at_ms=accepted_at_ms,
        traceparent=traceparent,
    )


def test_a_record_written_past_the_gateway_gets_its_facts_from_its_coordinates() -> None:
    opened = open_stream_record(a_record(()))
    assert opened.event_id == "hifi.stream.orders:3:42"
    assert opened.event_time_ms == opened.accepted_at_ms == NOW_MS
    assert opened.traceparent is None


@given(st.lists(st.tuples(st.sampled_from([EVENT_ID, EVENT_TIME, TRACEPARENT]), st.binary())))
def test_a_stream_record_opens_whatever_its_headers_are(headers: list[tuple[str, bytes]]) -> None:
    opened = open_stream_record(a_record(tuple(headers)))
    assert opened.event_id
    opened.event_id.encode()
    assert abs(opened.event_time_ms) < 2**63


# Unreadable event ids must not be repaired: two of them could become the same.
@pytest.mark.parametrize("raw", [b"", b"\xff", b"\xfe", b"ok\xff"])
def test_an_unreadable_event_id_gives_way_to_the_coordinates(raw: bytes) -> None:
    opened = open_stream_record(a_record(((EVENT_ID, raw),)))
    assert opened.event_id == "hifi.stream.orders:3:42"


@pytest.mark.parametrize("raw", [b"", b" 1", b"1 ", b"1_000", b"+1", b"1.5", b"0x1", b"9" * 19])
def test_a_time_that_we_would_not_write_is_not_read(raw: bytes) -> None:
    assert open_stream_record(a_record(((EVENT_TIME, raw),))).event_time_ms == NOW_MS


def test_arabic_digits_are_not_digits() -> None:
    raw = "\u0661".encode()
    assert open_stream_record(a_record(((EVENT_TIME, raw),))).event_time_ms == NOW_MS


def test_of_a_header_given_twice_the_last_counts() -> None:
    headers = ((EVENT_ID, b"first"), (EVENT_ID, b"last"))
    assert open_stream_record(a_record(headers)).event_id == "last"


@given(envelopes)
def test_a_retry_record_opens_to_what_was_written(envelope: Envelope) -> None:
    destination_id, history = envelope.travel
    record = RecordIn(
        origin=Origin("hifi.retry.30s", 1, 99),
        timestamp_ms=NOW_MS,
        key=b"another key",
        value=envelope.value,
        headers=retry_headers(envelope, destination_id, history, now_ms=NOW_MS),
    )
    assert open_retry_record(record) == envelope


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_copy_says_where_the_one_waited_that_it_was_made_of(*, is_dead: bool) -> None:
    envelope = replace(an_envelope(), read_at=Origin("hifi.retry.30s.parked", 3, 12))
    headers = retry_headers(envelope, "orders/shop", a_history(), now_ms=NOW_MS)
    assert headers[-1] == ("read-at", b"hifi.retry.30s.parked:3:12")
    if is_dead:
        letter = replace(envelope, destination_id="orders/shop", history=a_history())
        headers = dead_headers(letter, "orders/shop", a_history(), reason="r", dead_at_ms=1)
    opened = open_retry_record(a_record(headers))
    assert isinstance(opened, Envelope)
    assert opened.read_at == envelope.read_at


def test_a_wait_is_as_long_as_it_was_whatever_the_clock_of_who_wrote_it_down() -> None:
    slow_ms = NOW_MS - 10_000
    history = replace(a_history(), not_before_ms=slow_ms + 60_000)
    headers = retry_headers(an_envelope(), "orders/shop", history, now_ms=slow_ms)
    opened = open_retry_record(a_record(headers))
    assert isinstance(opened, Envelope)
    assert opened.travel[1].not_before_ms == NOW_MS + 60_000


@given(envelopes)
def test_a_dead_letter_can_be_opened_for_its_redrive(envelope: Envelope) -> None:
    destination_id, history = envelope.travel
    headers = dead_headers(
        envelope, destination_id, history, reason="status_400", dead_at_ms=NOW_MS
    )
    assert headers[-2:] == ((REASON, b"status_400"), (DEAD_AT, b"%d" % NOW_MS))
    record = RecordIn(Origin("hifi.dead", 0, 1), NOW_MS, None, envelope.value, headers)
    assert open_retry_record(record) == envelope


@pytest.mark.parametrize("key", [None, b"", b"\x00\xff"])
def test_an_ordering_key_survives_as_it_is(key: bytes | None) -> None:
    envelope = replace(an_envelope(), key=key)
    opened = open_retry_record(
        a_record(retry_headers(envelope, "orders/shop", a_history(), now_ms=NOW_MS))
    )
    assert isinstance(opened, Envelope)
    assert opened.key == key


def test_a_detail_that_utf8_cannot_hold_does_not_stop_the_event() -> None:
    history = replace(a_history(), last_detail="broken \udcff pipe")
    opened = open_retry_record(
        a_record(retry_headers(an_envelope(), "orders/shop", history, now_ms=NOW_MS))
    )
    assert isinstance(opened, Envelope)
    assert opened.travel[1].last_detail == "broken ? pipe"


NEEDED = [
    VERSION,
    EVENT_ID,
    EVENT_TIME,
    ACCEPTED_AT,
    STREAM,
    DESTINATION,
    ORIGIN_TOPIC,
    ORIGIN_PARTITION,
    ORIGIN_OFFSET,
    ATTEMPT,
    PARKS,
    FIRST_ATTEMPT_AT,
    DEADLINE_AT,
    WAIT,
    AMBIGUOUS,
]
OPTIONAL = [TRACEPARENT, ORDERING_KEY, CAUSE, LAST_STATUS, LAST_DETAIL]


def test_every_header_is_either_needed_or_optional() -> None:
    assert {name for name, _ in headers_of_a_waiting_event()} == {*NEEDED, *OPTIONAL}


@pytest.mark.parametrize("missing", NEEDED)
def test_a_retry_record_without_a_needed_header_says_which(missing: str) -> None:
    headers = tuple(header for header in headers_of_a_waiting_event() if header[0] != missing)
    opened = open_retry_record(a_waiting_record(headers))
    assert isinstance(opened, MalformedRecord)
    assert opened.problem == f"header {missing} is missing"


@pytest.mark.parametrize("missing", OPTIONAL)
def test_a_retry_record_opens_without_an_optional_header(missing: str) -> None:
    headers = tuple(header for header in headers_of_a_waiting_event() if header[0] != missing)
    assert isinstance(open_retry_record(a_waiting_record(headers)), Envelope)


UNREADABLE = [
    (VERSION, b"2"),
    (VERSION, b""),
    (EVENT_ID, b""),
    (EVENT_ID, b"\xff"),
    (EVENT_TIME, b"yesterday"),
    (ACCEPTED_AT, b"1e3"),
    (STREAM, b""),
    (DESTINATION, b"\xc3\x28"),
    (ORIGIN_TOPIC, b""),
    (ORIGIN_PARTITION, b"-1"),
    (ORIGIN_OFFSET, b"1_000"),
    (ORIGIN_OFFSET, b" 1"),
    (ORIGIN_OFFSET, b"9223372036854775808"),
    (ATTEMPT, b""),
    (ATTEMPT, b"-1"),
    (PARKS, b"\xb2"),
    (FIRST_ATTEMPT_AT, b"1.0"),
    (DEADLINE_AT, b"9" * 5000),
    (WAIT, b"None"),
    (LAST_STATUS, b"OK"),
    (AMBIGUOUS, b"true"),
    (AMBIGUOUS, b""),
]


@pytest.mark.parametrize(("name", "raw"), UNREADABLE)
def test_a_retry_record_with_an_unreadable_header_says_which(name: str, raw: bytes) -> None:
    opened = open_retry_record(a_waiting_record((*headers_of_a_waiting_event(), (name, raw))))
    assert isinstance(opened, MalformedRecord)
    assert opened.problem == f"header {name} is not readable: {raw[:40]!r}"


@given(st.lists(st.tuples(st.sampled_from([*NEEDED, *OPTIONAL]), st.binary(max_size=20))))
def test_no_headers_can_break_the_reader(headers: list[tuple[str, bytes]]) -> None:
    record = a_waiting_record((*headers_of_a_waiting_event(), *headers))
    opened = open_retry_record(record)
    assert isinstance(opened, Envelope | MalformedRecord)


def test_a_malformed_record_keeps_its_headers_and_says_where_it_was() -> None:
    record = a_waiting_record(((ORIGIN_TOPIC, b"hifi.stream.orders"), ("x", b"\xff")))
    opened = open_retry_record(record)
    assert isinstance(opened, MalformedRecord)
    headers = malformed_headers(opened, reason="malformed_retry_record", dead_at_ms=9)
    assert headers == (
        *record.headers,
        (ORIGIN_TOPIC, b"hifi.retry.30s"),
        (ORIGIN_PARTITION, b"3"),
        (ORIGIN_OFFSET, b"42"),
        (REASON, b"malformed_retry_record"),
        (LAST_DETAIL, b"header v is missing"),
        (DEAD_AT, b"9"),
    )


def test_an_event_straight_from_its_stream_is_on_no_way_yet() -> None:
    with pytest.raises(AssertionError, match="no destination"):
        _ = an_envelope().travel
    with pytest.raises(AssertionError, match="no history"):
        _ = replace(an_envelope(), destination_id="orders/shop").travel


def whole_record(value: bytes = b"{}", **headers: bytes) -> RecordIn:
    """Return a waiting event as Hifi writes it, with these headers replaced."""
    written = dict(retry_headers(an_envelope(1), "orders/shop", a_history(), now_ms=NOW_MS))
    written |= {name.replace("_", "-"): raw for name, raw in headers.items()}
    return a_record(tuple(written.items()), value=value)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (whole_record(b"x" * 1_048_589), "more than any event"),
        (whole_record(stray=b"x" * 65_536), "more than Hifi writes"),
        (whole_record(event_id=b"x" * 8_193), "header event-id is not readable"),
        (whole_record(destination=b""), "header destination is not readable"),
    ],
    ids=["value", "headers", "id", "destination"],
)
def test_what_is_larger_than_anything_we_write_is_malformed(record: RecordIn, problem: str) -> None:
    opened = open_retry_record(record)
    assert isinstance(opened, MalformedRecord)
    assert problem in opened.problem


def test_a_long_reply_is_cut_and_the_event_goes_on() -> None:
    opened = open_retry_record(whole_record(last_detail=b"x" * 20_000, cause=b"y" * 20_000))
    assert isinstance(opened, Envelope)
    assert opened.history is not None
    assert (len(opened.history.last_detail), len(opened.history.cause)) == (8_192, 8_192)


def test_of_a_malformed_record_beyond_measure_the_beginning_is_kept() -> None:
    """The record must fit into the dead letters' topic with its explanation, or its lane stops."""
    headers = (("a", b"1"), ("b", b"x" * 60_000), ("c", b"x" * 60_000), ("d", b"1"))
    record = a_record(headers, key=b"k" * 1_000_000, value=b"v" * 2_000_000)
    malformed = MalformedRecord(record, "why")
    kept = malformed_headers(malformed, reason="malformed_retry_record", dead_at_ms=9)
    assert [name for name, _ in kept[:3]] == ["a", "b", "value-bytes"]
    assert dict(kept)["value-bytes"] == b"2000000"
    assert dead_value(malformed.record.value) == b"v" * 1_048_576
    assert malformed_key(malformed) == b"k" * 8_192
    assert malformed_key(MalformedRecord(a_record(key=None), "why")) is None
    small = malformed_headers(MalformedRecord(a_record(), "why"), reason="r", dead_at_ms=9)
    assert "value-bytes" not in dict(small)


def test_what_no_tier_can_hold_keeps_its_beginning_as_a_dead_letter() -> None:
    fits = a_record(value=b"v" * EVENT_BYTES_MAX, key=b"k" * 8_192)
    for record in (replace(fits, value=fits.value + b"v"), replace(fits, key=b"k" * 8_193)):
        envelope = open_stream_record(record)
        assert not envelope.may_wait
        history = History.fresh(now_ms=0, deadline_s=1)
        headers = dict(dead_headers(envelope, "demo/to", history, reason="r", dead_at_ms=9))
        assert headers["value-bytes"] == b"%d" % len(record.value)
        assert headers["ordering-key"] == b"k" * 8_192
    envelope = open_stream_record(fits)
    assert envelope.may_wait
    assert "value-bytes" not in dict(
        dead_headers(envelope, "demo/to", history, reason="r", dead_at_ms=9)
    )
    assert dead_value(fits.value) == fits.value
    assert open_stream_record(replace(fits, key=None)).may_wait


def test_an_id_or_a_trace_beyond_measure_is_none() -> None:
    headers = (("event-id", b"i" * 8_193), ("traceparent", b"t" * 8_193))
    envelope = open_stream_record(a_record(headers))
    assert envelope.event_id == ":".join(map(str, envelope.origin))
    assert envelope.traceparent is None
