"""Repeats are announced before they are sent, in a fixed form, as other machines read it."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.lanes.marks import Mark, mark_record, open_mark
from delivery.lanes.strands.repeats import (
    RepeatedRanges,
    open_repeats,
    repeats_key,
    repeats_record,
    unsaid,
)
from delivery.lanes.strands.telling import Teller
from delivery.lanes.units import Span, Strand
from shared.event.record import KafkaPartition, RecordOut
from shared.proof.intervals import Offsets

STRAND = Strand("orders/shop", KafkaPartition("hifi.stream.orders", 3))
OTHER = Strand("orders/books", KafkaPartition("hifi.stream.orders", 3))
RETRIER = Strand("retrier", KafkaPartition("hifi.retry.30s", 0))

spans = st.lists(st.tuples(st.integers(0, 999), st.integers(1, 9)), min_size=1, max_size=40)


def test_it_is_spelled_like_this_and_no_mark_to_an_older_release() -> None:
    record = repeats_record(STRAND, ((3, 5), (7, 9)))
    assert (record.topic, record.key) == (
        "hifi.lanes",
        b"orders/shop:hifi.stream.orders:3:repeats",
    )
    assert record.value == b'{"ranges":[[3,5],[7,9]]}'
    assert open_mark(record.key or b"", record.value) is None
    assert repeats_key(RETRIER) == b"retrier:hifi.retry.30s:0:repeats"


@given(spans)
def test_what_is_written_is_read_again(ranges: list[tuple[int, int]]) -> None:
    for strand in (STRAND, RETRIER):
        record = repeats_record(strand, tuple(ranges))
        assert open_repeats(record.key or b"", record.value) == (strand, tuple(ranges))


@pytest.mark.parametrize("value", [None, b""])
def test_what_was_taken_away_names_its_strand(value: bytes | None) -> None:
    assert open_repeats(repeats_key(STRAND), value) == (STRAND, ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"orders/shop:3", b'{"at":7,"until":12}'),
        (b":repeats", b'{"ranges":[]}'),
        (b"orders/shop:3:repeats", b'{"ranges":[]}'),
        (b"orders/shop:hifi.stream.orders:x:repeats", b'{"ranges":[]}'),
        (b"\xff:hifi.stream.orders:3:repeats", b'{"ranges":[]}'),
        (b"orders/shop:hifi.stream.orders:3:repeats", b'{"ranges":[[1]]}'),
        (b"orders/shop:hifi.stream.orders:3:repeats", b"{"),
    ],
)
def test_what_is_none_is_nothing(key: bytes, value: bytes) -> None:
    assert open_repeats(key, value) is None


@given(spans)
def test_all_that_was_ever_said_stays_said_in_few_ranges(begun: list[tuple[int, int]]) -> None:
    known: dict[Strand, RepeatedRanges] = {}
    for begin, count in begun:
        news = unsaid(known, {STRAND: (begin, begin + count)})
        known |= {it: RepeatedRanges(ranges, 1) for it, ranges in news.items()}
        assert unsaid(known, {STRAND: (begin, begin + count)}) == {}
    said = Offsets.of(known[STRAND].ranges)
    assert tuple(said) == known[STRAND].ranges
    assert all(said.reach(begin) >= begin + count for begin, count in begun)
    assert len(known[STRAND].ranges) <= 16


def test_of_too_many_ranges_the_oldest_are_joined() -> None:
    known = {STRAND: RepeatedRanges(tuple((10 * n, 10 * n + 1) for n in range(16)), 1)}
    (said,) = unsaid(known, {STRAND: (500, 502)}).values()
    assert said[0] == (0, 11)
    assert said[1:] == (*((10 * n, 10 * n + 1) for n in range(2, 16)), (500, 502))


class TwoStrands:
    """Two strands; the log has a mark of the first."""

    def __init__(self) -> None:
        self.rows: list[RecordOut] = []
        self.refuses = False
        self.teller = Teller(
            self.store,
            {STRAND: Mark(3, 7), OTHER: Mark(3, 9)}.get,
            {STRAND: Mark(3, 7)},
            {},
        )

    async def store(self, rows: Sequence[RecordOut]) -> None:
        if self.refuses:
            raise OSError("no leader")
        self.rows += rows

    def begin(self, spans: dict[Strand, Span]) -> list[RecordOut]:
        self.rows.clear()
        asyncio.run(self.teller.begin(spans))
        return list(self.rows)


def test_what_may_have_been_sent_is_said_once_and_before_the_marks() -> None:
    told = TwoStrands()
    begun = {STRAND: Span(3, 7, 7), OTHER: Span(3, 9)}
    again = repeats_record(STRAND, ((3, 7),))
    assert told.begin(begun) == [again, mark_record(OTHER, Mark(3, 9))]
    assert told.begin(begun) == []
    assert told.begin({STRAND: Span(5, 7, 7)}) == [], "a part of an announced repeat"
    more = repeats_record(STRAND, ((3, 8),))
    assert told.begin({STRAND: Span(5, 8, 8)}) == [more]


def test_what_kafka_did_not_take_is_said_the_next_time() -> None:
    told = TwoStrands()
    told.refuses = True
    with pytest.raises(OSError, match="no leader"):
        told.begin({STRAND: Span(3, 7, 7)})
    told.refuses = False
    assert told.begin({STRAND: Span(3, 7, 7)}) == [repeats_record(STRAND, ((3, 7),))]


def test_of_what_is_not_ours_no_mark_is_written() -> None:
    told = TwoStrands()
    elsewhere = Strand("orders/else", STRAND.where)
    assert told.begin({elsewhere: Span(0, 3)}) == []
