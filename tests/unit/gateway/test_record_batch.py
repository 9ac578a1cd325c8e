"""Our record batches, read back by aiokafka's own reader; our produce requests against its own."""

from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from gateway.intake.record_encoding import varint
from gateway.publish.produce_encoding import encode
from shared.event.record import Headers
from tests.support.record_headers import headers_of

headers = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=200)), max_size=4).map(tuple)
records = st.builds(
    Event.of,
    id=st.just("e"),
    key=st.none() | st.binary(max_size=200),
    value=st.binary(max_size=300),
    headers=headers,
)


def built(events: list[Event], *, bytes_max: int = 1_000_000) -> tuple[RecordBatch, int]:
    batch = RecordBatch(bytes_max)
    return batch, batch.fill(events, 1_700_000_000_000)


@given(st.lists(records, min_size=1, max_size=150))
def test_kafka_reads_what_we_write(events: list[Event]) -> None:
    batch, count = built(events)
    assert count == len(events) == batch.record_count()
    batch._set_producer_state(77, 3, 1_000)
    raw = b"".join(batch._build())
    assert len(raw) == batch.size()
    read = DefaultRecordBatch(raw)
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (77, 3, 1_000)
    found = list(read)
    assert [record.offset for record in found] == list(range(len(events)))
    assert [(record.key, record.value) for record in found] == [(e.key, e.value) for e in events]
    assert [tuple(record.headers) for record in found] == [headers_of(e) for e in events]
    assert {record.timestamp for record in found} == {1_700_000_000_000}


def test_a_batch_is_built_once_and_stays_the_same_at_each_retry() -> None:
    batch, _ = built([Event.of(id="e", key=None, value=b"{}", headers=())])
    assert batch._build() is batch._build()
    assert batch.closed()
    assert batch.fill([Event.of(id="f", key=None, value=b"{}", headers=())], 5) == 0


@given(st.integers(1, 60), st.integers(100, 2_000))
def test_a_batch_takes_what_fits_and_at_least_one(count: int, bytes_max: int) -> None:
    events = [Event.of(id="e", key=b"k", value=b"v" * 100, headers=())] * count
    batch, taken = built(events, bytes_max=bytes_max)
    assert 1 <= taken <= count
    assert batch.size() <= bytes_max or taken == 1
    assert taken == count or batch.size() + 112 > bytes_max
    assert batch.size() == len(b"".join(batch._build()))


def test_a_record_too_large_for_any_batch_still_goes_alone() -> None:
    batch, taken = built([Event.of(id="e", key=None, value=b"x" * 5_000, headers=())], bytes_max=10)
    assert taken == 1
    assert next(iter(DefaultRecordBatch(b"".join(batch._build())))).value == b"x" * 5_000


@given(headers)
def test_headers_come_out_as_they_went_in(given_headers: Headers) -> None:
    event = Event.of(id="e", key=None, value=b"", headers=given_headers)
    assert headers_of(event) == given_headers


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, b"\0"),
        (1, b"\x02"),
        (63, b"~"),
        (64, b"\x80\x01"),
        (-1, b"\x01"),
        (1 << 20, b"\x80\x80\x80\x01"),
    ],
)
def test_numbers_are_written_like_this(number: int, written: bytes) -> None:
    assert varint(number) == written


@dataclass
class Sent:
    transactional_id: str | None
    required_acks: int
    timeout: int
    topics: list[tuple[str, list[tuple[int, bytes]]]]


@given(
    st.none() | st.text(max_size=10),
    st.lists(
        st.tuples(
            st.text(max_size=20),
            st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=50)), max_size=4),
        ),
        max_size=3,
    ),
)
def test_a_produce_request_is_byte_for_byte_aiokafkas(
    transaction: str | None, topics: list[tuple[str, list[tuple[int, bytes]]]]
) -> None:
    version = ProduceRequest._CLASSES[-1]
    fields = [transaction, -1, 5_000, topics]
    # The instance's own encoder may be ours already; the schema's is aiokafka's for certain.
    theirs = b"header" + version.SCHEMA.encode(fields)
    # Ours come in two pieces.
    pieces: Any = [(name, [(n, (raw[:3], raw[3:])) for n, raw in sent]) for name, sent in topics]
    assert b"size" + (b"header" + encode(Sent(transaction, -1, 5_000, pieces))) == b"size" + theirs
    ours = b"header" + encode(Sent(transaction, -1, 5_000, topics))
    assert len(ours) == len(theirs)
    assert b"size" + ours == b"size" + theirs
