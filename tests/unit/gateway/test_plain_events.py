"""Reading events all at once gives the same events and records as reading them one by one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.admission import Format
from gateway.intake.event_finder import EventLimits, find_events
from gateway.intake.events import Context, ParsedBody, read_events
from gateway.intake.plain_events import PlainEvents, read_plain
from gateway.intake.record_batch import RecordBatch

LIMITS = EventLimits(events_max=2_000, event_bytes_max=10_000, json_depth_max=5)
CONTEXT = Context(id_base="request", accepted_at_ms=1_700_000_000_000)
KEYED = Context(id_base="request", accepted_at_ms=1_700_000_000_000, key=b"user-7")

ids = st.text(alphabet="aé😀\u0085 ", max_size=300) | st.integers() | st.none() | st.just("e-1")
times: st.SearchStrategy[Any] = (
    st.none()
    | st.datetimes().map(lambda time: time.isoformat() + "Z")
    | st.sampled_from(["yesterday", "", 5])
)
values = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{"', max_size=2), inner),
    max_leaves=10,
)
events = st.fixed_dictionaries(
    {},
    optional={
        "id": ids,
        "time": times,
        "time_ms": st.none() | st.integers(),
        "partitionkey": st.none() | st.sampled_from(["", "k"]),
        "value": values,
    },
)
plain = st.fixed_dictionaries(
    {"id": st.text(alphabet="aé😀", min_size=1, max_size=100)},
    optional={"time_ms": st.integers(0, 2_000_000_000_000), "value": st.text(max_size=9)},
)


def both(
    body: bytes, context: Context, body_format: Format = Format.JSON
) -> list[ParsedBody | None]:
    found = find_events(body, body_format, LIMITS)
    return [
        read_plain(found, body, context=context, limits=LIMITS),
        read_events(found, context=context, limits=LIMITS),
    ]


@given(
    st.lists(events, max_size=5) | st.lists(plain, min_size=2, max_size=5),
    st.sampled_from([CONTEXT, KEYED]),
)
def test_what_is_read_at_once_is_what_is_read_one_by_one(
    sent: list[dict[str, Any]], context: Context
) -> None:
    bodies = {
        Format.JSON: json.dumps(sent).encode(),
        Format.NDJSON: b"\n".join(json.dumps(one, ensure_ascii=False).encode() for one in sent),
    }
    for body_format, body in bodies.items():
        fast, slow = both(body, context, body_format)
        assert slow is not None
        if fast is not None:
            assert list(fast.events) == slow.events
            assert isinstance(fast.events, PlainEvents)
            times_ms = {event.time_ms for event in slow.events}
            happened_ms = fast.events.happened_ms
            assert times_ms == ({happened_ms} if isinstance(happened_ms, int) else {*happened_ms})
            assert list(fast.indexes) == list(slow.indexes)
            assert slow.rejections == []


@pytest.mark.parametrize(
    "sent",
    [
        {"id": "a"},
        {"id": "a", "time": "2026-11-21T10:00:00Z"},
        {"id": "a", "time_ms": 5, "tags": ["x", {"y": {}}]},
        {"id": "é", "time": None, "partitionkey": None},
    ],
)
def test_ordinary_events_are_plain(sent: dict[str, Any]) -> None:
    assert both(json.dumps(sent).encode(), KEYED)[0] is None
    for body in ([sent, sent], {"events": [sent, sent]}):
        fast, slow = both(json.dumps(body).encode(), KEYED)
        assert fast is not None
        assert slow is not None
        assert isinstance(fast.events, PlainEvents)
        assert list(fast.events) == slow.events


def test_an_event_at_the_depth_limit_is_not_passed_over() -> None:
    for levels, is_refused in ((5, False), (6, True)):
        event = b'{"id":"a","v":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
        for body in (event, b"[" + event + b',{"id":"b"}]'):
            fast, slow = both(body, CONTEXT)
            assert slow is not None
            assert bool(slow.rejections) == is_refused
            assert fast is None or not is_refused


def test_a_body_of_blanks_is_not_kept_by_its_events() -> None:
    fast, _ = both(b"[" + b" " * 1_000 + b'{"id":"a"},{"id":"b"}]', CONTEXT)
    assert fast is not None
    assert isinstance(fast.events, PlainEvents)
    assert [type(raw) for raw in fast.events.raws] == [bytes, bytes]


@given(
    st.lists(plain, min_size=2, max_size=8),
    st.integers(1, 30),
    st.sampled_from([0, 1, 60, 63, 64, 65, 8_180]),
    st.integers(100, 20_000),
    st.sampled_from([CONTEXT, KEYED]),
)
def test_records_laid_out_at_once_are_those_laid_out_one_by_one(
    sent: list[dict[str, Any]], times_over: int, before: int, room: int, context: Context
) -> None:
    fast, slow = both(json.dumps(sent * times_over).encode(), context)
    assert fast is not None
    assert slow is not None
    filler = [*slow.events[:1]] * before
    batches, counts = [], []
    for chosen in (fast.events, slow.events):
        batch = RecordBatch(1_000_000)
        batch.fill(filler, 1_000)
        batch._bytes_max = batch.byte_count + room
        counts.append(batch.fill(chosen, 1_000))
        if counts[-1] < len(chosen):
            # The rest of the events goes into the next batch.
            rest = RecordBatch(1_000_000)
            assert rest.fill(chosen[counts[-1] :], 2_000) == len(chosen) - counts[-1]
            batches.append(b"".join(rest.build()))
        assert batch.byte_count <= batch._bytes_max or batch.count == 1
        size = batch.byte_count
        batches.append(b"".join(batch.build()))
        assert len(batches[-1]) == size
    half = len(batches) // 2
    assert counts[0] == counts[1]
    assert batches[:half] == batches[half:]


def test_the_largest_plain_event_has_its_record() -> None:
    """The event has the longest id, key and trace; larger events are read one by one."""
    limits = EventLimits(events_max=10, event_bytes_max=1_000_000)
    context = Context(
        id_base="request",
        accepted_at_ms=1_700_000_000_000,
        key=b"k" * 1_024,
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )
    start = json.dumps({"id": "\U0001f600" * 256}, ensure_ascii=False).encode()[:-1]
    was_plain = False
    for size in range(12_000, 16_400, 100):
        event = start + b', "text": "' + b"x" * (size - len(start) - 12) + b'"}'
        body = b"[%b,%b]" % (event, event)
        found = find_events(body, Format.JSON, limits)
        parsed = read_plain(found, body, context=context, limits=limits)
        if parsed is None:
            continue
        was_plain = True
        assert isinstance(parsed.events, PlainEvents)
        packed = parsed.events.pack(first=0, room=1_000_000)
        assert packed is not None
        parts, count, byte_count = packed
        assert (count, byte_count) == (2, len(b"".join(parts)))
    assert was_plain
