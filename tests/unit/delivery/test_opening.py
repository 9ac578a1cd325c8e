"""Opening a task's rows gives the same events by column as one by one."""

from hypothesis import given
from hypothesis import strategies as st

from delivery.event_columns import FetchedRecords
from delivery.opening import Rows, open_stream
from shared.config.destination import Destination
from shared.event.envelope import Envelope, History, event_headers, open_stream_record
from shared.event.record import Headers, KafkaPartition, Origin, RecordIn
from tests.support.delivery.fetched_rows import fetched
from tests.support.suite.samples import a_history

TO = Destination("a", "to", "https://to.example/in", body_format="ndjson")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

regular = st.builds(
    event_headers,
    event_id=st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable()),
    event_time_ms=st.integers(0, 10**15),
    accepted_at_ms=st.integers(0, 10**15),
    traceparent=st.none() | st.just(TRACE),
)
# Headers that a program which bypasses the gateway may have written.
names = st.sampled_from(["event-id", "event-time-ms", "accepted-at-ms", "traceparent", "other"])
wild: st.SearchStrategy[Headers] = st.lists(
    st.tuples(names, st.binary(max_size=20)), max_size=4
).map(tuple)
# The shape of the gateway's headers, with values that the gateway would not write.
odd: st.SearchStrategy[Headers] = st.tuples(
    st.tuples(st.just("event-id"), st.binary(max_size=3)),
    st.tuples(st.just("event-time-ms"), st.just(b"7") | st.binary(max_size=3)),
    st.tuples(st.just("accepted-at-ms"), st.just(b"8")),
    st.tuples(st.just("traceparent"), st.binary(max_size=3)),
)


@st.composite
def records(draw: st.DrawFn, headers: st.SearchStrategy[Headers]) -> list[RecordIn]:
    kinds = draw(st.lists(headers, min_size=1, max_size=5))
    keys = draw(st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=3))
    gaps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=45))
    value = draw(st.binary(min_size=draw(st.integers(0, 1)), max_size=9))
    offset, given_records = draw(st.integers(0, 2**40)), []
    for at, gap in enumerate(gaps):
        offset += gap
        place = Origin("hifi.stream.a", 2, offset)
        given_records.append(
            RecordIn(place, 5, keys[at % len(keys)], value, kinds[at % len(kinds)])
        )
    return given_records


def opened(rows: Rows, fresh: History) -> list[Envelope]:
    (tracks,) = open_stream(rows, {TO.id: TO}, fresh, replay_until={}).to_send.values()
    tried = [event for track in tracks for batch in track for event in batch.tried()]
    assert all(event.history is fresh for event in tried)
    return [event.envelope for event in tried]


@given(records(regular))
def test_records_of_the_gateway_open_alike_both_ways(given_records: list[RecordIn]) -> None:
    expected = [open_stream_record(record) for record in given_records]
    assert opened(fetched(given_records), a_history()) == expected


@given(records(wild | regular | odd))
def test_any_other_records_open_alike_both_ways(given_records: list[RecordIn]) -> None:
    expected = [open_stream_record(record) for record in given_records]
    fresh = a_history()
    assert opened(fetched(given_records), fresh) == expected
    # Spark reads the events of a replay, without columns.
    assert opened(given_records, fresh) == expected


def test_no_rows_open_as_nothing() -> None:
    assert opened(FetchedRecords(KafkaPartition("hifi.stream.a", 2), []), a_history()) == []
    assert opened([], a_history()) == []
