"""Our record batches can be read by aiokafka's own reader; our produce requests equal its own."""

from io import BytesIO

import pytest
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from gateway.intake.record_encoding import varint
from gateway.publish.produce_request import (
    BatchOutcome,
    Handover,
    Parcel,
    ProduceAnswer,
    SendBatches,
)
from shared.event.record import Headers, KafkaPartition
from tests.support.delivery.record_headers import headers_of

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
    assert count == len(events) == batch.count
    raw = b"".join(batch.build(77, 3, 1_000))
    assert len(raw) == batch.byte_count
    read = DefaultRecordBatch(raw)
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (77, 3, 1_000)
    found = list(read)
    assert [record.offset for record in found] == list(range(len(events)))
    # An event without bytes has no value: it deletes a row of a table.
    assert [(record.key, record.value) for record in found] == [
        (e.key, e.value or None) for e in events
    ]
    assert [tuple(record.headers) for record in found] == [headers_of(e) for e in events]
    assert {record.timestamp for record in found} == {1_700_000_000_000}


def test_a_batch_is_built_once_and_stays_the_same_at_each_retry() -> None:
    batch, _ = built([Event.of(id="e", key=None, value=b"{}", headers=())])
    assert batch.build(1, 0, 5) is batch.build(2, 0, 0)
    assert batch.fill([Event.of(id="f", key=None, value=b"{}", headers=())], 5) == 0


@given(st.integers(1, 60), st.integers(100, 2_000))
def test_a_batch_takes_what_fits_and_at_least_one(count: int, bytes_max: int) -> None:
    events = [Event.of(id="e", key=b"k", value=b"v" * 100, headers=())] * count
    batch, taken = built(events, bytes_max=bytes_max)
    assert 1 <= taken <= count
    assert batch.byte_count <= bytes_max or taken == 1
    assert taken == count or batch.byte_count + 112 > bytes_max
    assert batch.byte_count == len(b"".join(batch.build()))


def test_a_record_too_large_for_any_batch_still_goes_alone() -> None:
    batch, taken = built([Event.of(id="e", key=None, value=b"x" * 5_000, headers=())], bytes_max=10)
    assert taken == 1
    assert next(iter(DefaultRecordBatch(b"".join(batch.build())))).value == b"x" * 5_000


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


batches = st.dictionaries(
    st.builds(KafkaPartition, st.text(max_size=20), st.integers(0, 9)), st.binary(max_size=50)
)


@given(batches)
def test_a_produce_request_is_byte_for_byte_aiokafkas(batches: dict[KafkaPartition, bytes]) -> None:
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for place, raw in batches.items():
        topics.setdefault(place.topic, []).append((place.partition, raw))
    theirs = b"header" + ProduceRequest_v7.SCHEMA.encode([None, -1, 5_000, [*topics.items()]])
    # Our batches are in two pieces.
    parcels = [Parcel(place, (raw[:3], raw[3:]), Handover()) for place, raw in batches.items()]
    ours = b"header" + SendBatches(parcels, timeout_ms=5_000).encode()
    assert len(ours) == len(theirs)
    assert b"size" + ours == b"size" + theirs


outcomes = st.builds(BatchOutcome, st.integers(-1, 100), st.integers(-1, 2**62))


@given(
    st.dictionaries(st.builds(KafkaPartition, st.text(max_size=20), st.integers(0, 9)), outcomes)
)
def test_an_answer_is_read_as_aiokafka_writes_it(told: dict[KafkaPartition, BatchOutcome]) -> None:
    topics: dict[str, list[tuple[int, int, int, int, int]]] = {}
    for place, (code, offset) in told.items():
        topics.setdefault(place.topic, []).append((place.partition, code, offset, -1, 7))
    raw = ProduceResponse_v7.SCHEMA.encode([[*topics.items()], 12])
    assert ProduceAnswer.decode(BytesIO(raw)) == told


def test_what_takes_a_row_away_has_no_value() -> None:
    gone = Event.of(id="a", key=b"a", value=b"", headers=())
    batch, taken = built([gone, Event.of(id="b", key=b"b", value=b"{}", headers=())])
    assert taken == 2
    found = DefaultRecordBatch(b"".join(batch.build()))
    records = [(record.key, record.value) for record in found]
    assert records == [(b"a", None), (b"b", b"{}")]
