"""A receipt of waiting or dead events counts once its lane has passed their records."""

import pytest
from msgspec.structs import replace

from observe.lag.progress import Progress
from shared.event.record import KafkaPartition, Origin
from shared.proof.balance import Balance
from shared.proof.intervals import Offsets
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.proof.unconfirmed import UnconfirmedReceipts
from tests.support.suite.samples import a_receipt

TOPIC, TIER = "hifi.stream.orders", "hifi.retry.30s"
LOG = {KafkaPartition(TOPIC, 0): (0, 10)}


def dead(first: int, end: int, read_at: Origin | None = None) -> Receipt:
    return a_receipt(ReceiptOutcome.DEAD, (first, end), reason="status_400", read_at=read_at)


@pytest.mark.parametrize(
    ("position", "is_sure"),
    [
        # The lane never reported, or Kafka has forgotten its report: only the receipt is known.
        ({}, True),
        ({(TIER, 0): 99}, True),
        # The lane reported, but not for this Kafka partition, which it therefore has not passed.
        ({KafkaPartition(TOPIC, 1): 99}, False),
        ({KafkaPartition(TOPIC, 0): 3}, False),
        ({KafkaPartition(TOPIC, 0): 4}, True),
    ],
)
def test_a_receipt_counts_once_its_lane_has_passed_what_it_read(
    position: dict[KafkaPartition, int],
    is_sure: bool,  # noqa: FBT001 - a row of the table
) -> None:
    unsure = UnconfirmedReceipts()
    assert unsure.reached(position) == []
    assert unsure.admit(dead(3, 9, Origin(TOPIC, 0, 3))) is is_sure
    assert unsure.offsets() == ({} if is_sure else {(TOPIC, 0): Offsets.of([(3, 9)])})


def test_nothing_counts_before_the_lanes_were_asked() -> None:
    unsure = UnconfirmedReceipts()
    receipt = dead(3, 9, Origin(TOPIC, 0, 3))
    assert not unsure.admit(receipt)
    assert unsure.reached({}) == [receipt]


def test_a_receipt_of_no_lane_counts_at_once() -> None:
    unsure = UnconfirmedReceipts()
    unsure.reached({KafkaPartition(TOPIC, 0): 0})
    assert unsure.admit(dead(3, 9))


def test_a_repeat_says_the_same_once() -> None:
    unsure = UnconfirmedReceipts()
    unsure.reached({KafkaPartition(TOPIC, 0): 0})
    first = dead(3, 9, Origin(TOPIC, 0, 3))
    again = replace(first, started_at_ms=7)
    other = dead(9, 10, Origin(TOPIC, 0, 3))
    for one in (first, again, other):
        assert not unsure.admit(one)
    assert unsure.reached({KafkaPartition(TOPIC, 0): 3}) == []
    assert unsure.reached({KafkaPartition(TOPIC, 0): 10}) == [again, other]
    assert unsure.reached({KafkaPartition(TOPIC, 0): 10}) == []


def test_what_is_not_sure_is_on_its_way_and_not_lost() -> None:
    progress = Progress("orders/shop")
    progress.reached({KafkaPartition(TOPIC, 0): 0, KafkaPartition(TIER, 0): 0})
    for receipt in (
        a_receipt(ReceiptOutcome.DELIVERED, (0, 2)),
        dead(2, 4, Origin(TOPIC, 0, 0)),
        a_receipt(ReceiptOutcome.DELIVERED, (4, 6)),
    ):
        progress.take(receipt, now_ms=0)
    confirmed = [progress.is_confirmed]
    assert progress.balance(LOG) == Balance(10, 4, 0, 0, 6, 0)
    progress.reached({KafkaPartition(TOPIC, 0): 6})
    assert [*confirmed, progress.is_confirmed] == [False, True]
    assert progress.balance(LOG) == Balance(10, 4, 0, 2, 4, 0)


def test_what_is_not_sure_is_not_lost_where_the_lane_has_passed_it() -> None:
    progress = Progress("orders/shop")
    progress.take(dead(2, 4, Origin(TOPIC, 1, 0)), now_ms=0)
    progress.reached({KafkaPartition(TOPIC, 0): 6, KafkaPartition(TOPIC, 1): 0})
    assert progress.balance(LOG) == Balance(10, 0, 0, 0, 6, 4)


def test_what_the_retrier_gives_up_waits_until_its_dead_letter_is_stored() -> None:
    progress = Progress("orders/shop")
    progress.reached({KafkaPartition(TOPIC, 0): 10, KafkaPartition(TIER, 1): 5})
    progress.take(a_receipt(ReceiptOutcome.WAITING, (0, 10), read_at=Origin(TOPIC, 0, 0)), now_ms=0)
    progress.take(dead(0, 10, Origin(TIER, 1, 5)), now_ms=0)
    assert progress.balance(LOG) == Balance(10, 0, 10, 0, 0, 0)
    progress.reached({KafkaPartition(TIER, 1): 6})
    assert progress.balance(LOG) == Balance(10, 0, 0, 10, 0, 0)
