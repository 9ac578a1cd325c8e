"""Batches lose nothing, keep to their size, keep their ids at a replay, and are valid JSON."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.batches import (
    CONTENT_TYPES,
    TriedEvent,
    batch_id,
    fresh_batches,
    is_plain,
    join_body,
    tried_batches,
)
from delivery.event_columns import columns_of
from shared.config.destination import BodyFormat, Destination
from shared.config.selection import Condition
from shared.event.envelope import Envelope, event_headers, open_stream_record
from shared.event.record import Origin, RecordIn
from shared.proof.receipt import cover, facts_of
from tests.support.delivery.fetched_rows import fetched
from tests.support.suite.samples import NOW_MS, a_history, an_envelope

# Bodies that hold several events; a single one is its own body.
JOINED: tuple[BodyFormat, ...] = ("json", "cloudevents", "ndjson")

values = st.integers(0, 30).map(lambda size: b'"' + b"x" * size + b'"') | st.just(b"")


def chunks(
    envelopes: Sequence[Envelope],
    *,
    count_max: int,
    bytes_max: int,
    body_format: BodyFormat = "json",
) -> list[list[Envelope]]:
    """Return the events of each batch into which they are cut."""
    to = Destination(
        "orders",
        "to",
        "https://to.example/in",
        batch_count_max=count_max,
        batch_bytes_max=bytes_max,
        body_format=body_format,
    )
    tried = [TriedEvent(envelope, a_history()) for envelope in envelopes]
    return [[event.envelope for event in batch.events] for batch in tried_batches(tried, to)]


@st.composite
def events(draw: st.DrawFn) -> list[Envelope]:
    drawn = draw(st.lists(values, max_size=30))
    return [an_envelope(offset, value=value) for offset, value in enumerate(drawn)]


@given(events(), st.integers(1, 10), st.integers(1, 400), st.sampled_from(get_args(BodyFormat)))
def test_chunks_keep_the_order_lose_nothing_and_keep_to_the_size(
    envelopes: list[Envelope], count_max: int, bytes_max: int, body_format: BodyFormat
) -> None:
    cut = chunks(envelopes, count_max=count_max, bytes_max=bytes_max, body_format=body_format)
    assert [envelope for chunk in cut for envelope in chunk] == envelopes
    for chunk in cut:
        assert 1 <= len(chunk) <= count_max
        assert len(chunk) == 1 or len(join_body(chunk, body_format)) <= bytes_max


@given(events(), st.integers(1, 10), st.integers(1, 400), st.sampled_from(JOINED))
def test_no_chunk_is_cut_before_it_must_be(
    envelopes: list[Envelope], count_max: int, bytes_max: int, body_format: BodyFormat
) -> None:
    cut = chunks(envelopes, count_max=count_max, bytes_max=bytes_max, body_format=body_format)
    for chunk, following in pairwise(cut):
        one_more = [*chunk, following[0]]
        assert len(one_more) > count_max or len(join_body(one_more, body_format)) > bytes_max


def test_a_body_may_fill_its_size_to_the_byte() -> None:
    pair = [an_envelope(0, value=b"12"), an_envelope(1, value=b"34")]
    assert len(join_body(pair, "json")) == 7
    assert len(chunks(pair, count_max=9, bytes_max=7)) == 1
    assert len(chunks(pair, count_max=9, bytes_max=6)) == 2


def test_no_events_make_no_batch() -> None:
    assert chunks([], count_max=1, bytes_max=1) == []


def test_a_batch_id_looks_like_this_for_ever() -> None:
    pair = facts_of([an_envelope(0), an_envelope(1)])
    assert batch_id("orders/shop", pair.covered) == "msg_a81f42e34a2a524e3e92604f"


origins = st.builds(Origin, st.text("ab.1\0", max_size=3), st.integers(0, 12), st.integers(0, 200))


@given(st.lists(origins, max_size=5), st.lists(origins, max_size=5))
def test_two_batches_share_an_id_only_if_they_hold_the_same_events(
    one: list[Origin], other: list[Origin]
) -> None:
    ids = [
        batch_id("orders/shop", cover((o.topic, o.partition, o.offset) for o in each))
        for each in (one, other)
    ]
    # A topic's name holds no NUL; examples with one only test the separator.
    if not any("\0" in origin.topic for origin in (*one, *other)):
        assert (ids[0] == ids[1]) == (set(one) == set(other))


def test_a_batch_id_depends_on_destination_and_coordinates_alone() -> None:
    envelope = an_envelope(5)
    changed = replace(envelope, value=b"{}", event_id="x", key=None, event_time_ms=0)
    here, there = facts_of([envelope]).covered, facts_of([changed]).covered
    assert batch_id("orders/shop", here) == batch_id("orders/shop", there)
    assert batch_id("orders/shop", here) != batch_id("orders/mail", here)


def test_a_json_body_is_the_bytes_as_they_came() -> None:
    untouched = b'{"n": 1.10,\n "big": 12345678901234567890, "dup":1, "dup":2}'
    pair = [an_envelope(0, value=untouched), an_envelope(1, value=b"7")]
    assert join_body(pair, "json") == b"[" + untouched + b",7]"


@pytest.mark.parametrize("body_format", JOINED)
def test_a_record_without_a_value_does_not_break_its_neighbours(body_format: BodyFormat) -> None:
    body = join_body([an_envelope(0), an_envelope(1, value=b""), an_envelope(2)], body_format)
    if body_format == "ndjson":
        assert body == b'{"a":1}\nnull\n{"a":1}\n'
        return
    found = json.loads(body)
    data = found if body_format == "json" else [event["data"] for event in found]
    assert data == [{"a": 1}, None, {"a": 1}]


def test_a_single_event_is_its_own_body() -> None:
    envelopes = [an_envelope(0, value=b'{"a": 1.0}'), an_envelope(1, value=b"7")]
    cut = chunks(envelopes, count_max=500, bytes_max=10_000, body_format="single")
    assert [join_body(chunk, "single") for chunk in cut] == [b'{"a": 1.0}', b"7"]


def test_a_line_holds_one_event_however_it_was_written() -> None:
    value = b'{\r\n  "a": "x\\ny"\n}'
    body = join_body([an_envelope(0, value=value), an_envelope(1)], "ndjson")
    lines = body.splitlines()
    assert [json.loads(line) for line in lines] == [{"a": "x\ny"}, {"a": 1}]


@pytest.mark.parametrize(
    ("body_format", "body"),
    [
        ("json", b'[{"a":1.10},{}]'),
        ("ndjson", b'{"a":1.10}\n{}\n'),
    ],
)
def test_only_the_wanted_members_are_sent(body_format: BodyFormat, body: bytes) -> None:
    pair = [an_envelope(0, value=b'{"b":2, "a":1.10}'), an_envelope(1, value=b'{"b": 5}')]
    assert join_body(pair, body_format, fields=("/a",)) == body


def test_only_the_wanted_members_are_in_a_cloud_event() -> None:
    body = join_body([an_envelope(0, value=b'{"b":2,"a":1}')], "cloudevents", fields=("/a",))
    assert json.loads(body)[0]["data"] == {"a": 1}


def test_a_cloud_event_wraps_the_bytes_as_they_came() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    envelope = an_envelope(3, value=b'{"n": 1.10}', event_time_ms=NOW_MS + 1, traceparent=trace)
    body = join_body([envelope], "cloudevents")
    assert body.endswith(b',"data":{"n": 1.10}}]')
    assert json.loads(body) == [
        {
            "specversion": "1.0",
            "id": "evt-3",
            "source": "/streams/orders",
            "type": "hifi.event",
            "time": "2023-11-14T22:13:20.001Z",
            "datacontenttype": "application/json",
            "traceparent": trace,
            "data": {"n": 1.1},
        }
    ]
    plain = join_body([an_envelope(3)], "cloudevents")
    assert "traceparent" not in json.loads(plain)[0]


def test_a_cloud_event_goes_on_as_it_came_so_that_source_and_id_stay_its_name() -> None:
    # CloudEvents 1.0.2, id: "Producers MUST ensure that source + id is unique for each distinct
    # event". Two sources may use one id; a wrapper made by Hifi would have given both one source.
    ours = [b'{"id":"1","specversion":"1.0","source":"/%b","type":"t", "data":1}' % s for s in _AB]
    envelopes = [replace(an_envelope(0, value=value), event_id="1") for value in ours]
    assert join_body(envelopes, "cloudevents") == b"[%b,%b]" % (ours[0], ours[1])
    # The members that make it a CloudEvent stay, whichever members the destination wants.
    cut_down = json.loads(join_body(envelopes[:1], "cloudevents", fields=("/data",)))
    assert cut_down == [
        {"id": "1", "specversion": "1.0", "source": "/a", "type": "t", "data": 1},
    ]
    assert json.loads(join_body(envelopes[:1], "json", fields=("/data",))) == [{"data": 1}]


_AB = (b"a", b"b")


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":"1","specversion":"1.0","source":"/s"}',
        b'{"id":"1","specversion":"0.3","source":"/s","type":"t"}',
        b'{"id":"","specversion":"1.0","source":"/s","type":"t"}',
        b'{"id":1,"specversion":"1.0","source":"/s","type":"t"}',
        b'["specversion"]',
    ],
)
def test_what_only_looks_like_a_cloud_event_becomes_one(value: bytes) -> None:
    (found,) = json.loads(join_body([an_envelope(0, value=value)], "cloudevents"))
    assert (found["source"], found["data"]) == ("/streams/orders", json.loads(value))


# epoch ms -> RFC 3339; a time beyond any calendar becomes the epoch
TIMES = [
    (0, "1970-01-01T00:00:00.000Z"),
    (-1, "1969-12-31T23:59:59.999Z"),
    (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
    (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    (253_402_300_800_000, "1970-01-01T00:00:00.000Z"),
    (-62_135_596_800_001, "1970-01-01T00:00:00.000Z"),
    (10**17, "1970-01-01T00:00:00.000Z"),
    (-(10**18) + 1, "1970-01-01T00:00:00.000Z"),
]


@pytest.mark.parametrize(("time_ms", "text"), TIMES)
def test_an_event_time_is_written_to_the_millisecond(time_ms: int, text: str) -> None:
    body = join_body([an_envelope(event_time_ms=time_ms)], "cloudevents")
    assert json.loads(body)[0]["time"] == text


@given(st.text())
def test_an_event_id_cannot_break_out_of_its_string(event_id: str) -> None:
    body = join_body([replace(an_envelope(), event_id=event_id)], "cloudevents")
    assert json.loads(body)[0]["id"] == event_id


def test_each_body_format_has_its_content_type() -> None:
    assert CONTENT_TYPES == {
        "json": "application/json",
        "cloudevents": "application/cloudevents-batch+json",
        "ndjson": "application/x-ndjson",
        "single": "application/json",
    }
    assert set(CONTENT_TYPES) == set(get_args(BodyFormat))


@given(
    st.integers(1, 60),
    st.integers(1, 30),
    st.integers(20, 400),
    st.integers(0, 30),
    st.integers(0, 3),
)
def test_a_batch_of_columns_answers_as_one_of_opened_events(
    count: int, count_max: int, bytes_max: int, middle: int, attempt_count: int
) -> None:
    """Failed events, split or retried, are treated alike, whichever form they had at first."""
    to = Destination(
        "orders",
        "to",
        "https://to.example/in",
        batch_count_max=count_max,
        batch_bytes_max=bytes_max,
    )
    records = [stored(offset) for offset in range(count)]
    columns = columns_of(fetched(records))
    assert columns is not None
    fresh = a_history()
    opened = [TriedEvent(open_stream_record(record), fresh) for record in records]
    after = a_history(attempt_count=attempt_count)
    pairs = zip(fresh_batches(columns, fresh, to), tried_batches(opened, to), strict=True)
    for quick, slow in pairs:
        at = min(middle, quick.event_count)
        for one, other in zip(
            (quick, *quick.split_at(at)), (slow, *slow.split_at(at)), strict=True
        ):
            assert one.event_count == other.event_count
            if not one.event_count:
                continue
            again = other.with_histories([after] * other.event_count)
            assert one.with_histories([after]).tried() == again.tried()
            assert one.tried() == other.tried()
            assert set(one.histories) == set(other.histories)
            assert one.facts == other.facts
            assert one.body(to) == other.body(to)


@pytest.mark.parametrize(
    "settings", [{"body_format": "ndjson"}, {"order": "key"}, {"fields": ("/a",)}]
)
def test_only_a_destination_that_takes_events_as_they_are_is_plain(
    settings: dict[str, Any],
) -> None:
    plain = Destination("orders", "to", "https://to.example/in")
    assert is_plain(plain)
    assert not is_plain(replace(plain, **settings))
    assert not is_plain(replace(plain, filter=(Condition("/kind", "equals", "wanted"),)))


def stored(offset: int) -> RecordIn:
    """Return a record as the gateway writes it to the log."""
    envelope = an_envelope(offset, value=b'"' + b"x" * (offset % 7) + b'"')
    headers = event_headers(
        event_id=envelope.event_id,
        event_time_ms=envelope.event_time_ms,
        accepted_at_ms=envelope.accepted_at_ms,
    )
    return RecordIn(envelope.origin, NOW_MS, envelope.key, envelope.value, headers)
