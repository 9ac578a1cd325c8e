"""Waiting events of which another copy may arrive first."""

from dataclasses import replace

import pytest

from shared.event.record import KafkaPartition, Origin
from shared.event.topics import RETRIER, retry_topic
from shared.retry.doubts import Doubts
from tests.support.suite.samples import a_history, an_envelope

STREAM = KafkaPartition("hifi.stream.orders", 0)
TIER = KafkaPartition(retry_topic("30s"), 2)
SHOP, BOOKS = "orders/shop", "orders/books"


@pytest.mark.parametrize(
    ("destination_id", "offset", "read_at", "is_covered"),
    [
        (SHOP, 2, None, False),
        (SHOP, 3, None, True),
        (SHOP, 4, None, True),
        (SHOP, 5, None, False),
        (SHOP, 7, None, True),
        (BOOKS, 3, None, False),
        ("orders/new", 3, None, False),
        (SHOP, 2, 10, True),
        (SHOP, 2, 11, False),
        (BOOKS, 2, 10, True),
    ],
)
def test_a_copy_is_in_doubt_where_its_own_reader_has_read_again(
    destination_id: str, offset: int, read_at: int | None, *, is_covered: bool
) -> None:
    ranges = {SHOP: (*STREAM, 3, 5), BOOKS: (*STREAM, 9, 9), RETRIER: (*TIER, 10, 11)}
    doubts = Doubts.of([*ranges.items(), (SHOP, (*STREAM, 7, 8))])
    waiting = replace(
        an_envelope(offset),
        destination_id=destination_id,
        history=a_history(),
        read_at=None if read_at is None else Origin(*TIER, read_at),
    )
    assert doubts.cover(waiting) is is_covered
    assert not Doubts().cover(waiting)
    assert Doubts(are_general=True).cover(waiting)
