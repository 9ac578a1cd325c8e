"""Rows to and from Arrow: records come back unchanged, even from a slice."""

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shared.event.envelope import event_headers
from shared.event.record import Headers, Origin, RecordIn
from shared.runtime.spark.arrow_rows import records_of

regular = st.builds(
    event_headers,
    event_id=st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable()),
    event_time_ms=st.integers(0, 10**15),
    accepted_at_ms=st.integers(0, 10**15),
)
# Headers that a program which bypasses the gateway may have written.
names = st.sampled_from(["event-id", "event-time-ms", "accepted-at-ms", "traceparent", "other"])
wild: st.SearchStrategy[Headers] = st.lists(
    st.tuples(names, st.binary(max_size=20)), max_size=4
).map(tuple)


def records(headers: st.SearchStrategy[Headers]) -> st.SearchStrategy[list[RecordIn]]:
    return st.lists(
        st.builds(
            RecordIn,
            origin=st.builds(
                Origin,
                st.sampled_from(["hifi.stream.a", "hifi.stream.b"]),
                st.integers(0, 3),
                st.integers(0, 2**40),
            ),
            timestamp_ms=st.integers(0, 2**42),
            key=st.none() | st.binary(max_size=3),
            value=st.binary(max_size=9),
            headers=headers,
        ),
        max_size=6,
    )


def batch_in(records: Sequence[RecordIn]) -> pa.RecordBatch:
    """Return a batch in the form of the Kafka source."""
    types: dict[str, pa.DataType] = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    rows = [
        (each.key, each.value, *each.origin, each.timestamp_ms * 1000, each.headers)
        for each in records
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in types]
    return pa.RecordBatch.from_pydict(dict(zip(types, columns, strict=True)), pa.schema(types))


@given(records(wild | regular), st.data())
def test_records_come_back_as_they_were_also_from_a_slice(
    given_records: list[RecordIn], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(given_records)))
    batch = batch_in(given_records).slice(start)
    assert list(records_of(batch)) == given_records[start:]
