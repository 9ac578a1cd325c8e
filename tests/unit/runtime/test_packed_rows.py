"""A record packed as Spark packs it opens as what it was."""

from hypothesis import given
from hypothesis import strategies as st

from shared.event.record import Origin, RecordIn
from shared.runtime.spark.packed_rows import unpacked


def packed(record: RecordIn) -> bytes:
    """What `PACKED` says, in Python; test_lanes_live.py lets Spark do it."""
    headers = ",".join(f"{name.encode().hex()}={value.hex()}" for name, value in record.headers)
    key = "-" if record.key is None else record.key.hex()
    origin = record.origin
    line = f"{origin.topic} {origin.partition} {origin.offset} {record.timestamp_ms * 1000} {key}"
    return f"{line} {headers}\n".encode() + record.value


@given(
    st.builds(
        RecordIn,
        origin=st.builds(
            Origin, st.just("hifi.stream.a-b_c"), st.integers(0, 999), st.integers(0, 2**62)
        ),
        timestamp_ms=st.integers(0, 2**42),
        key=st.none() | st.binary(max_size=5),
        value=st.binary(max_size=20),
        headers=st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9)), max_size=4).map(
            tuple
        ),
    )
)
def test_what_is_packed_opens_as_it_was(record: RecordIn) -> None:
    assert unpacked(packed(record)) == record
