"""The written form of a lane's position: other machines read it, so no change may go unseen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.lanes.marks import OPEN, Mark, mark_record, open_mark
from delivery.lanes.units import Strand
from shared.event.record import KafkaPartition

STRAND = Strand("orders/shop", KafkaPartition("hifi.stream.orders", 3))


def test_a_mark_is_spelled_like_this() -> None:
    record = mark_record(STRAND, Mark(7, 12))
    assert (record.topic, record.key) == ("hifi.lanes", b"orders/shop:3")
    assert record.value == b'{"at":7,"until":12}'
    assert OPEN == 4611686018427387904
    assert mark_record(STRAND, Mark(7, 12, done=3)).value == b'{"at":7,"until":12,"done":3}'


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 999))
def test_what_is_written_is_read_again(at: int, until: int, partition: int) -> None:
    strand = Strand("orders/shop", KafkaPartition("hifi.stream.orders", partition))
    record = mark_record(strand, Mark(at, until))
    assert open_mark(record.key or b"", record.value) == (strand, Mark(at, until))
    record = mark_record(strand, Mark(at, until, done=partition))
    assert open_mark(record.key or b"", record.value) == (strand, Mark(at, until, partition))


@pytest.mark.parametrize("value", [None, b""])
def test_a_mark_that_was_taken_back_names_its_strand(value: bytes | None) -> None:
    assert open_mark(b"orders/shop:3", value) == (STRAND, None)


def test_what_a_newer_hifi_says_besides_is_passed_by() -> None:
    newer = b'{"at": 7, "until": 12, "colour": "red"}'
    assert open_mark(b"orders/shop:3", newer) == (STRAND, Mark(7, 12))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b'{"at":7,"until":12}'),
        (b"orders/shop", b'{"at":7,"until":12}'),
        (b"orders/shop:x", b'{"at":7,"until":12}'),
        (b"\xff:", b'{"at":7,"until":12}'),
        (b"orders/shop:3", b"{"),
        (b"orders/shop:3", b'{"at":7}'),
        (b"orders/shop:3", b'{"at":"7","until":12}'),
        (b"orders/shop:3", b"\xff"),
        (b"orders/shop:3", b"7"),
    ],
)
def test_what_is_no_mark_is_nothing(key: bytes, value: bytes) -> None:
    assert open_mark(key, value) is None
