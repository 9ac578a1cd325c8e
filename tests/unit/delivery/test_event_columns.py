"""Opening a stream's events by column gives the same batches, bodies and facts as one by one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.batches import FreshBatch, TriedBatch, cut, join_body
from delivery.event_columns import FetchedRecords, columns_of
from shared.config.destination import Destination
from shared.event.envelope import event_headers, open_stream_record
from shared.event.record import Headers, KafkaPartition, Origin, RecordIn
from shared.proof.receipt import facts_of
from tests.support.delivery.fetched_rows import decoded, fetched
from tests.support.suite.samples import a_history
from tests.unit.delivery.test_batches import chunks

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_record(offset: int, *, size: int = 3, time_ms: int = 1_000, traced: bool = False) -> RecordIn:
    headers = event_headers(
        event_id=f"e{offset}",
        event_time_ms=time_ms,
        accepted_at_ms=time_ms + 1,
        traceparent=TRACE if traced else None,
    )
    value = b"1" * size
    return RecordIn(Origin("hifi.stream.a", 2, offset), 5, b"k", value, headers)


@st.composite
def runs(draw: st.DrawFn) -> list[RecordIn]:
    """Draw 20 to 60 records with gaps, of several sizes and minutes, with and without traces."""
    gaps = draw(st.lists(st.integers(1, 3) | st.just(1), min_size=20, max_size=60))
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=7))
    times_ms = draw(st.lists(st.integers(0, 10**15), min_size=1, max_size=5))
    traced = draw(st.lists(st.booleans(), min_size=1, max_size=3))
    offset = draw(st.integers(0, 2**40))
    records = []
    for at, gap in enumerate(gaps):
        offset += gap
        records.append(
            a_record(
                offset,
                size=sizes[at % len(sizes)],
                time_ms=times_ms[at % len(times_ms)],
                traced=traced[at % len(traced)],
            )
        )
    return records


def test_each_trace_of_a_batch_is_named_once() -> None:
    records = [a_record(n, traced=n % 3 == 0) for n in range(9)]
    columns = columns_of(fetched(records))
    assert columns is not None
    assert list(columns.traceparents(1, 9)) == [TRACE]
    assert list(columns.traceparents(1, 3)) == []
    fresh = FreshBatch(columns, 0, 9, a_history())
    tried = TriedBatch(fresh.tried())
    assert list(fresh.traceparents()) == [TRACE]
    assert list(tried.traceparents()) == [TRACE] * 3


@given(runs(), st.integers(1, 30), st.integers(1, 300))
def test_columns_say_what_the_envelopes_say(
    records: list[RecordIn], count_max: int, bytes_max: int
) -> None:
    columns = columns_of(fetched(records))
    assert columns is not None
    opened = [open_stream_record(record) for record in records]
    expected = chunks(opened, count_max=count_max, bytes_max=bytes_max)
    url = "https://to.example/in"
    to = Destination("s", "d", url, batch_count_max=count_max, batch_bytes_max=bytes_max)
    cuts = list(cut(columns.value_starts, to))
    assert [end - first for first, end in cuts] == [len(chunk) for chunk in expected]
    for (first, end), chunk in zip(cuts, expected, strict=True):
        assert columns.json_body(first, end) == join_body(chunk, "json")
        assert columns.facts(first, end) == facts_of(chunk)
        assert columns.envelopes(first, end) == chunk


def good() -> list[RecordIn]:
    return [a_record(offset) for offset in range(30)]


REGULAR = a_record(7).headers
OTHER_HEADERS: list[Headers] = [
    (),
    REGULAR[:2],
    (*REGULAR, ("other", b"x")),
    (*REGULAR, ("event-id", b"the last one counts")),
    (REGULAR[1], REGULAR[0], REGULAR[2]),
    (REGULAR[0], ("event-time-ms", b"0x10"), REGULAR[2]),
    (REGULAR[0], ("event-time-ms", b"-1"), REGULAR[2]),
    (REGULAR[0], ("event-time-ms", b""), REGULAR[2]),
    (REGULAR[0], REGULAR[1], ("accepted-at-ms", b"\xff")),
    (REGULAR[0], REGULAR[1], ("accepted-at-ms", b"1" * 19)),
]


@pytest.mark.parametrize("headers", OTHER_HEADERS)
def test_records_that_the_gateway_did_not_write_are_opened_one_by_one(headers: Headers) -> None:
    records = good()
    records[7] = replace(records[7], headers=headers)
    assert columns_of(fetched(records)) is None


def test_an_empty_value_and_an_offset_that_goes_back_are_opened_one_by_one() -> None:
    for odd in (
        replace(good()[7], value=b""),
        replace(good()[7], origin=Origin("hifi.stream.a", 2, 6)),
    ):
        records = good()
        records[7] = odd
        assert columns_of(fetched(records)) is None
    columns = columns_of(fetched(good()))
    assert columns is not None
    assert len(columns) == 30


def test_what_is_null_in_kafka_is_empty_once_it_is_opened() -> None:
    where = KafkaPartition("hifi.stream.a", 2)
    plain = decoded(a_record(7))
    nothing = type(plain)(8, 5, 0, None, None, [("event-id", None)])
    rows = FetchedRecords(where, [plain, nothing])
    assert columns_of(rows) is None
    assert rows.opened() == [
        a_record(7),
        RecordIn(Origin(*where, 8), 5, None, b"", (("event-id", b""),)),
    ]
    assert rows.first == Origin(*where, 7)
    assert FetchedRecords(where, []).first is None


def test_null_instead_of_a_number_is_no_event_of_the_gateways() -> None:
    record = decoded(a_record(7))
    for at in (1, 2):
        headers = list(record.headers)
        headers[at] = (headers[at][0], None)
        odd = type(record)(7, 5, 0, b"k", b"1", headers)
        assert columns_of(FetchedRecords(KafkaPartition("hifi.stream.a", 2), [odd])) is None
