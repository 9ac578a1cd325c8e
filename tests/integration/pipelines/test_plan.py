"""A plan gives each event one outcome and its own bytes, with ids that a second run repeats."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipelines.plan import RECORD_BYTES_MAX, RECORDS, ROWS_BYTES_MAX, ROWS_MAX, planned
from shared.config.pipeline import Pipeline
from shared.event.derived import HOPS_MAX, ORIGIN, VIA, derived_id, hop, via_of
from shared.event.envelope import (
    ACCEPTED_AT,
    EVENT_ID,
    EVENT_TIME,
    TRACEPARENT,
    event_headers,
    open_stream_record,
)
from shared.event.record import Headers, Origin, RecordIn
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

TOPIC = "hifi.stream.orders"
NOW_MS = 1_767_225_600_000
OURS = event_headers(event_id="e-1", event_time_ms=NOW_MS - 5, accepted_at_ms=NOW_MS - 1)
TRACED = (*OURS, (TRACEPARENT, b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))


def rows_of(
    spark: SparkSession,
    pipeline: Pipeline,
    *values: bytes | None,
    headers: Headers | None = OURS,
    key: bytes | None = b"k",
) -> list[Row]:
    at = datetime.fromtimestamp(NOW_MS / 1000, tz=UTC)
    records = [
        (TOPIC, 3, offset, at, key, value, None if headers is None else list(headers))
        for offset, value in enumerate(values)
    ]
    return planned(pipeline, spark.createDataFrame(records, RECORDS)).collect()


def told(rows: list[Row]) -> list[tuple[int, str, str | None]]:
    return [(row["offset"], row["outcome"], row["reason"]) for row in rows]


def headers_of(row: Row) -> dict[str, bytes]:
    return {header["key"]: bytes(header["value"]) for header in row["headers"]}


def events_of(rows: list[Row]) -> list[Any]:
    return [json.loads(row["value"]) for row in rows if row["outcome"] == "passed"]


def test_bytes_stay_when_no_step_writes_them_anew(locked_spark: SparkSession) -> None:
    odd = b'{ "id":"\\u00e4\xc3\xa4", "price":1.00e1,"price":2,"more":{"z":1} }'
    pipeline = a_pipeline({"where": "price > 1"}, {"key": "id"})
    (row,) = rows_of(locked_spark, pipeline, odd)
    assert (bytes(row["value"]), bytes(row["key"]), row["topic"]) == (
        odd,
        "ää".encode(),
        "hifi.stream.sales",
    )


def test_without_a_key_step_the_key_stays(locked_spark: SparkSession) -> None:
    assert bytes(rows_of(locked_spark, a_pipeline(), b"{}")[0]["key"]) == b"k"
    assert rows_of(locked_spark, a_pipeline(), b"{}", key=None)[0]["key"] is None
    (row,) = rows_of(locked_spark, a_pipeline({"key": "id"}), b"{}")
    assert (row["outcome"], row["key"]) == ("passed", None)


def test_select_writes_its_columns_in_their_order_and_leaves_nulls_out(
    locked_spark: SparkSession,
) -> None:
    pipeline = a_pipeline({"select": {"b": "price * 2", "a": "id", "none": "type", "t": "at"}})
    given = b'{"id":"x","price":1.5,"at":"2026-01-02T03:04:05Z"}'
    (row,) = rows_of(locked_spark, pipeline, given)
    assert bytes(row["value"]) == b'{"b":3.0,"a":"x","t":"2026-01-02T03:04:05.000Z"}'


def test_times_keep_their_microseconds(locked_spark: SparkSession) -> None:
    exact, short = "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.100Z"
    fine = "TIMESTAMP '2026-01-02 03:04:05.123456'"
    pipeline = a_pipeline(
        {
            "select": {
                "t": "at",
                "local": "CAST(at AS TIMESTAMP_NTZ)",
                "list": f"array(at, {fine}, NULL)",
                "one": f"named_struct('in', map('k', {fine}), 'n', price)",
                "none": "IF(price > 0, NULL, named_struct('at', at))",
                "price": "price",
            }
        }
    )
    for at, written in ((exact, exact), (short, short), ("2026-01-02T05:04:05.1+02:00", short)):
        given = json.dumps({"at": at, "price": 1.5}).encode()
        assert events_of(rows_of(locked_spark, pipeline, given)) == [
            {
                "t": written,
                "local": written.removesuffix("Z"),
                "list": [written, exact, None],
                "one": {"in": {"k": exact}, "n": 1.5},
                "price": 1.5,
            }
        ]


BROKEN = [
    b"",
    None,
    b"no event",
    b'"a text"',
    b"17",
    b"null",
    b"[]",
    b"{",
    b'{"id":"x"',
    b'{"price":"dear"}',
    b'{"price":NaN}',
    b'{"n":1.5}',
    b'{"n":9223372036854775808}',
    b'{"ok":"yes"}',
    b'{"items":[{"n":"many"}]}',
    b'{"items":{"sku":1}}',
    b'{"tags":"a"}',
    b'{"day":"someday"}',
    b'{"at":"someday"}',
]


def test_an_event_that_cannot_be_read_is_one_dead_letter_as_it_came(
    locked_spark: SparkSession,
) -> None:
    pipeline = a_pipeline({"explode": {"item": "items"}}, {"select": {"x": "item.sku"}})
    good = b'{"items":[{"sku":"a"}]}'
    rows = rows_of(locked_spark, pipeline, good, *BROKEN, b"{}", headers=TRACED)
    dead = [(nth, "dead", "not_readable") for nth, _ in enumerate(BROKEN, start=1)]
    assert told(rows) == [(0, "passed", None), *dead, (len(BROKEN) + 1, "filtered", None)]
    for broken, row in zip(BROKEN, rows[1:-1], strict=True):
        assert (bytes(row["value"]), bytes(row["key"])) == (broken or b"", b"k")
        assert [(each["key"], bytes(each["value"])) for each in row["headers"]] == list(TRACED)
        assert row["topic"] is None


def test_what_is_not_read_need_not_be_readable(locked_spark: SparkSession) -> None:
    pipeline = a_pipeline({"where": "length(hifi.text) > 2"}, schema="")
    rows = rows_of(locked_spark, pipeline, b"no event", b"{}")
    assert told(rows) == [(0, "passed", None), (1, "filtered", None)]


def test_what_hifi_knows_of_an_event_can_be_named(locked_spark: SparkSession) -> None:
    facts = {name: f"hifi.{name}" for name in ("event_id", "event_time", "accepted_at", "key")}
    pipeline = a_pipeline({"where": "ok"}, {"select": {"id": "id"}}, {"select": facts})
    (event,) = events_of(rows_of(locked_spark, pipeline, b'{"ok":true}'))
    assert event == {
        "event_id": "e-1",
        "event_time": "2025-12-31T23:59:59.995Z",
        "accepted_at": "2025-12-31T23:59:59.999Z",
        "key": "k",
    }


def test_the_first_output_that_wants_an_event_gets_it_or_all_do(locked_spark: SparkSession) -> None:
    to = [
        {"stream": "a", "when": "n > 1"},
        {"dead": True, "when": "n = 0"},
        {"stream": "b", "when": "n > 0"},
    ]
    events = [b'{"n":%d}' % n for n in (2, 1, 0, -1)] + [b"{}"]
    first = rows_of(locked_spark, a_pipeline(to=to, match="first"), *events)
    assert [row["topic"] for row in first] == ["hifi.stream.a", "hifi.stream.b", None, None, None]
    assert told(first)[2:] == [
        (2, "dead", "by_pipeline"),
        (3, "filtered", None),
        (4, "filtered", None),
    ]
    both = rows_of(locked_spark, a_pipeline(to=to, match="all"), *events)
    assert [(row["offset"], row["nth"], row["topic"]) for row in both] == [
        (0, 0, "hifi.stream.a"),
        (0, 1, "hifi.stream.b"),
        (1, 0, "hifi.stream.b"),
        (2, 0, None),
        (3, 0, None),
        (4, 0, None),
    ]
    assert told(both)[3] == (2, "dead", "by_pipeline")


def test_an_id_is_that_of_its_place_and_the_facts_travel_on(locked_spark: SparkSession) -> None:
    to = [{"stream": "a"}, {"stream": "b"}]
    pipeline = a_pipeline({"explode": {"tag": "tags"}}, to=to, generation=7)
    rows = rows_of(locked_spark, pipeline, b"{}", b'{"tags":["x","y"]}', headers=TRACED)
    assert [row["nth"] for row in rows] == [0, 0, 1, 2, 3]
    for nth, row in enumerate(rows[1:]):
        assert [header["key"] for header in row["headers"]] == [
            *(EVENT_ID, EVENT_TIME, ACCEPTED_AT, TRACEPARENT, ORIGIN, VIA)
        ]
        headers = headers_of(row)
        assert headers[EVENT_ID].decode() == derived_id("trial", 7, Origin(TOPIC, 3, 1), nth)
        assert headers[ORIGIN] == f"{TOPIC}:3:1".encode()
        assert headers[VIA] == b"trial"
        known = dict(TRACED)
        assert all(headers[name] == known[name] for name in (EVENT_TIME, ACCEPTED_AT, TRACEPARENT))


def test_an_event_that_is_posted_again_keeps_its_id_and_is_not_taken_twice(
    locked_spark: SparkSession,
) -> None:
    pipeline = a_pipeline(to=[{"stream": "orders", "repost": True}])
    (row,) = rows_of(locked_spark, pipeline, b"{}")
    assert headers_of(row)[EVENT_ID] == b"e-1"
    again = tuple((header["key"], bytes(header["value"])) for header in row["headers"])
    assert told(rows_of(locked_spark, pipeline, b"{}", headers=again)) == [(0, "filtered", None)]


FAR = tuple(f"p{nth}" for nth in range(HOPS_MAX))


@pytest.mark.parametrize(
    "via", [(), ("a",), ("trial",), FAR[1:], FAR, ("trial", *FAR[1:]), ("tri",)]
)
def test_events_go_no_further_than_the_core_says(
    locked_spark: SparkSession, via: tuple[str, ...]
) -> None:
    raw = ",".join(via).encode()
    (row,) = rows_of(locked_spark, a_pipeline(), b"{}", headers=(*OURS, (VIA, raw)))
    said = {
        "take": ("passed", None),
        "skip": ("filtered", None),
        "too_many": ("dead", "too_many_hops"),
    }
    assert (row["outcome"], row["reason"]) == said[hop(via_of(raw), "trial")]
    if row["outcome"] == "passed":
        assert via_of(headers_of(row)[VIA]) == (*via, "trial")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        (),
        ((EVENT_ID, b""), (EVENT_TIME, b" 1"), (ACCEPTED_AT, b"1_000")),
        ((EVENT_ID, b"\xff"), (EVENT_TIME, b"-5"), (ACCEPTED_AT, b"999999999999999999")),
        ((EVENT_ID, b"x" * 9_000), (EVENT_TIME, b"1000000000000000000"), (ACCEPTED_AT, b"")),
        ((EVENT_ID, b"first"), *OURS, (EVENT_TIME, b"1")),
    ],
)
def test_what_a_stranger_wrote_is_read_as_the_core_reads_it(
    locked_spark: SparkSession, headers: Headers | None
) -> None:
    pipeline = a_pipeline({"select": {"id": "hifi.event_id", "at": "hifi.accepted_at"}})
    (row,) = rows_of(locked_spark, pipeline, b"{}", headers=headers)
    record = RecordIn(Origin(TOPIC, 3, 0), NOW_MS, b"k", b"{}", headers or ())
    envelope = open_stream_record(record)
    assert (row["event_time_ms"], row["accepted_at_ms"]) == (
        envelope.event_time_ms,
        envelope.accepted_at_ms,
    )
    assert events_of([row])[0]["id"] == envelope.event_id


def test_one_event_becomes_no_more_rows_than_there_may_be(locked_spark: SparkSession) -> None:
    pipeline = a_pipeline({"explode": {"tag": "tags"}}, {"select": {"tag": "tag"}})
    most, more = (json.dumps({"tags": ["x"] * n}).encode() for n in (ROWS_MAX, ROWS_MAX + 1))
    rows = rows_of(locked_spark, pipeline, most, more, b'{"tags":[]}', b'{"tags":null}')
    assert [row["nth"] for row in rows[:ROWS_MAX]] == list(range(ROWS_MAX))
    assert told(rows[ROWS_MAX:]) == [
        (1, "dead", "too_many_rows"),
        (2, "filtered", None),
        (3, "filtered", None),
    ]


def test_rows_that_are_too_large_take_their_whole_event_with_them(
    locked_spark: SparkSession,
) -> None:
    pipeline = a_pipeline({"explode": {"tag": "tags"}}, {"select": {"tag": "repeat(tag, 16)"}})
    # One row of the second event is too large by itself; all rows of the third together are.
    large = json.dumps({"tags": ["a", "x" * (RECORD_BYTES_MAX // 16)]}).encode()
    many = json.dumps({"tags": ["x" * (ROWS_BYTES_MAX // 16 // 100 + 1)] * 100}).encode()
    rows = rows_of(locked_spark, pipeline, b'{"tags":["a"]}', large, many)
    assert told(rows) == [(0, "passed", None), (1, "dead", "too_large"), (2, "dead", "too_large")]
    assert bytes(rows[1]["value"]) == large


def test_an_event_some_rows_of_which_are_filtered_has_passed(locked_spark: SparkSession) -> None:
    steps: list[dict[str, Any]] = [
        {"explode": {"tag": "tags"}},
        {"where": "tag <> 'a'"},
        {"key": "tag"},
    ]
    rows = rows_of(locked_spark, a_pipeline(*steps), b'{"tags":["a","b","c"]}', b'{"tags":["a"]}')
    assert told(rows) == [(0, "passed", None), (0, "passed", None), (1, "filtered", None)]
    assert [row["nth"] for row in rows] == [0, 1, 0]
    assert [bytes(row["key"]) for row in rows[:2]] == [b"b", b"c"]
