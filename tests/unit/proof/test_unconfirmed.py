"""What a receipt says of waiting and dead events counts once its lane has passed what it read."""

from dataclasses import replace

import pytest

from observe.lag.progress import Progress
from shared.event.record import Origin
from shared.proof.balance import Balance, Coverage
from shared.proof.intervals import Offsets
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.proof.unconfirmed import UnconfirmedReceipts
from tests.support.samples import a_receipt

TOPIC, TIER = "hifi.stream.orders", "hifi.retry.30s"
LOG = {(TOPIC, 0): (0, 10)}


def dead(first: int, end: int, read_at: Origin | None = None) -> Receipt:
    return a_receipt(ReceiptOutcome.DEAD, (first, end), reason="status_400", read_at=read_at)


@pytest.mark.parametrize(
    ("position", "is_sure"),
    [
        # The lane never said anything, or Kafka has forgotten it: its receipt is all there is.
        ({}, True),
        ({(TIER, 0): 99}, True),
        # It has, but not of this Kafka partition, which it therefore has not passed.
        ({(TOPIC, 1): 99}, False),
        ({(TOPIC, 0): 3}, False),
        ({(TOPIC, 0): 4}, True),
    ],
)
def test_a_receipt_counts_once_its_lane_has_passed_what_it_read(
    position: dict[tuple[str, int], int],
    is_sure: bool,  # noqa: FBT001 - a row of the table
) -> None:
    unsure = UnconfirmedReceipts()
    assert unsure.reached(position) == []
    assert unsure.admit(dead(3, 9, Origin(TOPIC, 0, 3))) is is_sure
    assert list(unsure.offsets()) == ([] if is_sure else [((TOPIC, 0), Offsets.of([(3, 9)]))])


def test_nothing_counts_before_the_lanes_were_asked() -> None:
    unsure = UnconfirmedReceipts()
    receipt = dead(3, 9, Origin(TOPIC, 0, 3))
    assert not unsure.admit(receipt)
    assert unsure.reached({}) == [receipt]


def test_a_receipt_of_no_lane_counts_at_once() -> None:
    unsure = UnconfirmedReceipts()
    unsure.reached({(TOPIC, 0): 0})
    assert unsure.admit(dead(3, 9))


def test_a_repeat_says_the_same_once() -> None:
    unsure = UnconfirmedReceipts()
    unsure.reached({(TOPIC, 0): 0})
    first = dead(3, 9, Origin(TOPIC, 0, 3))
    again = replace(first, started_at_ms=7)
    other = dead(9, 10, Origin(TOPIC, 0, 3))
    for one in (first, again, other):
        assert not unsure.admit(one)
    assert unsure.reached({(TOPIC, 0): 3}) == []
    assert unsure.reached({(TOPIC, 0): 10}) == [again, other]
    assert unsure.reached({(TOPIC, 0): 10}) == []


def test_what_is_not_sure_is_on_its_way_and_not_lost() -> None:
    coverage, progress = Coverage("orders/shop"), Progress("orders/shop")
    for books in (coverage, progress):
        books.reached({(TOPIC, 0): 0, (TIER, 0): 0})
    for receipt in (
        a_receipt(ReceiptOutcome.DELIVERED, (0, 2)),
        dead(2, 4, Origin(TOPIC, 0, 0)),
        a_receipt(ReceiptOutcome.DELIVERED, (4, 6)),
    ):
        coverage.take(receipt)
        progress.take(receipt, now_ms=0)
    sure = [progress.is_sure]
    before = Balance(10, 4, 0, 0, 6, 0)
    assert coverage.balance(LOG) == progress.balance(LOG, {}) == before
    assert progress.balance(LOG, {(TOPIC, 0): 0}) == before
    for books in (coverage, progress):
        books.reached({(TOPIC, 0): 6})
    assert [*sure, progress.is_sure] == [False, True]
    after = Balance(10, 4, 0, 2, 4, 0)
    assert coverage.balance(LOG) == progress.balance(LOG, {(TOPIC, 0): 6}) == after


def test_what_the_retrier_gives_up_waits_until_its_dead_letter_is_stored() -> None:
    coverage = Coverage("orders/shop")
    coverage.reached({(TOPIC, 0): 10, (TIER, 1): 5})
    coverage.take(a_receipt(ReceiptOutcome.WAITING, (0, 10), read_at=Origin(TOPIC, 0, 0)))
    coverage.take(dead(0, 10, Origin(TIER, 1, 5)))
    assert coverage.balance(LOG) == Balance(10, 0, 10, 0, 0, 0)
    coverage.reached({(TIER, 1): 6})
    assert coverage.balance(LOG) == Balance(10, 0, 0, 10, 0, 0)
