"""From bodies to events, as tables: the accepted ones, with id and time, and the refused ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.admission import Format
from gateway.intake.event_finder import EventLimits, find_events
from gateway.intake.events import Context, Event, ParsedBody, read_events
from gateway.problems import Problem
from shared.event.envelope import EVENT_ID, EVENT_TIME
from tests.support.delivery.record_headers import headers_of

ACCEPTED_AT_MS = 1_750_000_000_000
LIMITS = EventLimits(events_max=100, event_bytes_max=100_000)
CONTEXT = Context(id_base="req", accepted_at_ms=ACCEPTED_AT_MS)


def read(body: bytes, context: Context = CONTEXT, limits: EventLimits = LIMITS) -> ParsedBody:
    found = find_events(body, Format.JSON, limits)
    return read_events(found, context=context, limits=limits)


def one(body: bytes, context: Context = CONTEXT) -> Event:
    parsed = read(body, context)
    assert parsed.rejections == []
    (event,) = parsed.events
    return event


def refusal(body: bytes) -> str:
    with pytest.raises(Problem) as caught:
        read(body)
    assert caught.value.status in {400, 413}
    return caught.value.code


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b'{"a":1}', [b'{"a":1}']),
        (b' \n{"a" : 1}\t\r\n', [b'{"a" : 1}']),
        (b"[]", []),
        (b"  []  ", []),
        (b'[{"a":1},{"a" : 2.0e1 }]', [b'{"a":1}', b'{"a" : 2.0e1 }']),
        (b'{"events":[{"a":1}, {}]}', [b'{"a":1}', b"{}"]),
        (b'{"events":[]}', []),
        # An `events` that is not an array is a member like any other.
        (b'{"events":"none"}', [b'{"events":"none"}']),
        (b'{"events":{"a":[1]},"b":2}', [b'{"events":{"a":[1]},"b":2}']),
        (b'{"events":[{"events":[1]}]}', [b'{"events":[1]}']),
        # A repeated member, big numbers, escapes: the customer's bytes, which Hifi does not touch.
        (b'[{"a":1,"a":2}]', [b'{"a":1,"a":2}']),
        (b'[{"a":1e999,"b":%d}]' % 10**60, [b'{"a":1e999,"b":%d}' % 10**60]),
        (b'[{"a":"\\ud83d\\ude00"}]', [b'{"a":"\\ud83d\\ude00"}']),
        ('[{"a":"日本"}]'.encode(), ['{"a":"日本"}'.encode()]),
    ],
)
def test_bytes_are_untouched(body: bytes, values: list[bytes]) -> None:
    parsed = read(body)
    assert [event.value for event in parsed.events] == values
    assert list(parsed.indexes) == list(range(len(values)))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"   ", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[{}", "invalid_json"),
        (b"[{}] x", "invalid_json"),
        (b"[{}][{}]", "invalid_json"),
        (b"[{},]", "invalid_json"),
        (b'[{"a":NaN}]', "invalid_json"),
        (b'[{"a":Infinity}]', "invalid_json"),
        (b'[{"a":01}]', "invalid_json"),
        (b"[{a:1}]", "invalid_json"),
        (b'[{"a":"\x01"}]', "invalid_json"),
        (b'[{"a":"\\x"}]', "invalid_json"),
        (b'{"a":NaN}', "invalid_json"),
        (b'{"events":[{"a":NaN}]}', "invalid_json"),
        (b"\xef\xbb\xbf[]", "invalid_json"),
        # Raw bytes of strings that are skipped are checked nevertheless.
        (b'[{"a":"\xff"}]', "invalid_utf8"),
        (b'[{"\xff":1}]', "invalid_utf8"),
        (b'{"a":"\xc0\x80"}', "invalid_utf8"),
        (b'{"events":[{"a":"\xed\xa0\x80"}]}', "invalid_utf8"),
        ("[]".encode("utf-16"), "invalid_utf8"),
        (b"null", "not_events"),
        (b"7", "not_events"),
        (b'"{}"', "not_events"),
        (b'{"events":[{}],"sent_at":1}', "ambiguous_body"),
        (b'{"sent_at":1,"events":[{}]}', "ambiguous_body"),
        (b'{"events":[{}],"events":[{"b":1}]}', "ambiguous_body"),
        (b'{"batch":[{"a":1}],"sentAt":1}', "ambiguous_body"),
        (b'{"records": [ {"value":{}}]}', "ambiguous_body"),
        (b"[" * 1_000_000, "too_deep"),
        (b"[" * 15_000 + b"]" * 15_000, "too_deep"),
        (b'{"a":' * 15_000 + b"1" + b"}" * 15_000, "too_deep"),
        (b"[" + b",".join([b"{}"] * 101) + b"]", "too_many_events"),
    ],
)
def test_a_body_that_cannot_be_taken_says_why(body: bytes, code: str) -> None:
    assert refusal(body) == code


@pytest.mark.parametrize(
    "event",
    [
        b'{"id":"e-1","records":[{"a":1}]}',
        b'{"records":[]}',
        b'{"batch":[1,2]}',
        b'{"batch":{"a":1}}',
        b'{"batch":"[{"}',
    ],
)
def test_an_event_that_only_looks_like_a_batch_is_an_event(event: bytes) -> None:
    assert [each.value for each in read(event).events] == [event]


@pytest.mark.parametrize("event", [b'{"batch":[{"a":1}]}', b'{"events":[{}],"sent_at":1}'])
def test_in_an_array_every_object_is_an_event(event: bytes) -> None:
    with pytest.raises(Problem, match="in an array"):
        read(event)
    assert [each.value for each in read(b"[%b]" % event).events] == [event]


def test_a_json_error_names_its_place() -> None:
    with pytest.raises(Problem, match="byte 6"):
        read(b'[{"a":NaN}]')
    with pytest.raises(Problem, match="Byte 7 is not UTF-8"):
        read(b'[{"a":"\xff"}]')


@pytest.mark.parametrize(
    ("member", "event_id"),
    [
        ('"id":"e-1"', "e-1"),
        ('"id":"Zoë"', "Zoë"),
        ('"id":42', "42"),
        ('"id":-7', "-7"),
        (f'"id":{10**40}', str(10**40)),
        ('"id":"\\u0041"', "A"),
        # There is no usable id: the gateway makes one.
        ('"id":""', "req-0"),
        ('"id":null', "req-0"),
        ('"id":1.5', "req-0"),
        ('"id":true', "req-0"),
        ('"id":{"$oid":"5"}', "req-0"),
        ('"x":1', "req-0"),
    ],
)
def test_the_event_id(member: str, event_id: str) -> None:
    event = one(f"[{{{member}}}]".encode())
    assert event.id == event_id
    assert dict(headers_of(event))[EVENT_ID] == event_id.encode()


@pytest.mark.parametrize(
    ("member", "time_ms"),
    [
        ('"time":"1970-01-01T00:00:00Z"', 0),
        ('"time":"2024-02-29T12:00:00.123Z"', 1_709_208_000_123),
        ('"time":"2024-02-29T12:00:00.123999+01:00"', 1_709_204_400_123),
        ('"time":"1969-12-31T23:59:59.999Z"', -1),
        ('"time":"9999-12-31T23:59:59Z"', 253_402_300_799_000),
        ('"time":"0001-01-01T00:00:00Z"', -62_135_596_800_000),
        ('"time_ms":1709208000123', 1_709_208_000_123),
        ('"time_ms":-5', -5),
        ('"time":"1970-01-01T00:00:01Z","time_ms":5', 1_000),
        # Members of the customer's own by that name, and times that do not exist.
        ('"time":"noon","time_ms":5', 5),
        ('"time":1709208000', ACCEPTED_AT_MS),
        ('"time":"2024-02-30T00:00:00Z"', ACCEPTED_AT_MS),
        ('"time":{"h":1}', ACCEPTED_AT_MS),
        ('"time_ms":"5"', ACCEPTED_AT_MS),
        ('"time_ms":1.5', ACCEPTED_AT_MS),
        (f'"time_ms":{10**30}', ACCEPTED_AT_MS),
        ('"time_ms":253402300800000', ACCEPTED_AT_MS),
        ('"x":1', ACCEPTED_AT_MS),
    ],
)
def test_the_event_time(member: str, time_ms: int) -> None:
    event = one(f"[{{{member}}}]".encode())
    assert dict(headers_of(event))[EVENT_TIME] == b"%d" % time_ms


@pytest.mark.parametrize(
    ("member", "key"),
    [
        ('"partitionkey":"k"', b"k"),
        ('"partitionkey":"ключ"', "ключ".encode()),
        ('"partitionkey":7', b"7"),
        ('"partitionkey":""', b"header"),
        ('"partitionkey":null', b"header"),
        ('"partitionkey":[1]', b"header"),
        ('"x":1', b"header"),
    ],
)
def test_the_ordering_key(member: str, key: bytes) -> None:
    context = Context(id_base="req", accepted_at_ms=1, key=b"header")
    assert one(f"{{{member}}}".encode(), context).key == key


@pytest.mark.parametrize(
    ("event", "code", "member"),
    [
        ("7", "not_an_object", ""),
        ("null", "not_an_object", ""),
        ('"text"', "not_an_object", ""),
        ("[{}]", "not_an_object", ""),
        (json.dumps({"x": "x" * 100_000}), "event_too_large", ""),
        (json.dumps({"id": "x" * 257}), "bad_id", "/id"),
        (json.dumps({"id": "a\nb"}), "bad_id", "/id"),
        (json.dumps({"id": "a", "partitionkey": "x" * 1_025}), "bad_key", "/partitionkey"),
    ],
)
def test_one_bad_event_is_rejected_alone(event: str, code: str, member: str) -> None:
    parsed = read(f'[{{"id":"a"}},{event},{{"id":"c"}}]'.encode())
    assert [found.id for found in parsed.events] == ["a", "c"]
    assert list(parsed.indexes) == [0, 2]
    (rejection,) = parsed.rejections
    assert (rejection.index, rejection.code, rejection.pointer) == (1, code, f"/1{member}")
    (wrapped,) = read(f'{{"events":[{{}},{event}]}}'.encode()).rejections
    assert wrapped.pointer == f"/events/1{member}"


def test_a_lone_object_is_pointed_into_from_its_root() -> None:
    (rejection,) = read(b'{"id":"a\\u0000"}').rejections
    assert rejection.pointer == "/id"


# Lone surrogates are not text (RFC 8259, section 8.2), and json.dumps would write them.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = TEXTS | st.sampled_from(["id", "time", "time_ms", "partitionkey", "events"])
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(NAMES, JSON_VALUES, max_size=3), max_size=4))
def test_every_event_of_a_valid_body_is_accounted_for(events: list[dict[str, object]]) -> None:
    texts = [json.dumps(event).encode() for event in events]
    parsed = read(b"[" + b" , ".join(texts) + b"]")
    taken = dict(zip(parsed.indexes, parsed.events, strict=True))
    rejected = {rejection.index for rejection in parsed.rejections}
    assert taken.keys() | rejected == set(range(len(events)))
    assert all(event.value == texts[index] for index, event in taken.items())


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise_anything_but_a_problem(body: bytes) -> None:
    try:
        parsed = read(body)
    except Problem:
        return
    json.loads(body)
    assert all(json.loads(event.value) is not None for event in parsed.events)
