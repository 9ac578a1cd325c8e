"""Positions are fetched first, so that events that arrive meanwhile never look lost."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from observe.lag.live_books import LiveBooks
from observe.metrics import ObserveMetrics
from shared.config.configuration import Configuration, RemovedDestination
from shared.config.destination import Destination
from shared.event.topics import RECEIPTS, RETRIER
from shared.proof.balance import Balance
from shared.proof.overview import AuditHealth, Overview, RemovedView, UnknownView
from shared.proof.receipt import Receipt, ReceiptOutcome
from tests.support.suite.samples import a_receipt

TOPIC, TO = "hifi.stream.orders", "orders/shop"


class BusyLane:
    """A Kafka whose lane delivers one more event at each look."""

    def __init__(self) -> None:
        self.delivered = 0
        self.read_until = 0

    async def position(self, lane: str) -> Mapping[tuple[str, int], int]:
        self.delivered += 1
        return {} if lane == RETRIER else {(TOPIC, 0): self.delivered}

    async def ends(self) -> int:
        self.delivered += 1
        return self.delivered

    async def has_reached(self, end: int) -> bool:
        return self.read_until >= end

    async def values(self, *, wait_s: float) -> dict[str, list[bytes]]:
        """Return one receipt at a time."""
        assert wait_s
        at = self.read_until
        self.read_until += 1
        return {RECEIPTS: [a_receipt(ReceiptOutcome.DELIVERED, (at, at + 1)).to_json(), b"torn"]}

    async def spans(self, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        assert topics == [TOPIC]
        return {(TOPIC, 0): (0, 20)}


def test_what_a_busy_lane_delivers_meanwhile_is_not_lost() -> None:
    lane = BusyLane()
    kafka: Any = lane
    books = LiveBooks(kafka, kafka, kafka, Configuration)
    for _ in range(4):
        asyncio.run(books.refresh(["orders"], [TO]))
        read = lane.read_until
        assert books.balance(TO) == Balance(20, read, 0, 0, 20 - read, 0)
    assert books.acked_count("orders") == 20
    # Once the destination is removed, no event is on its way to it.
    gone = books.left_of(RemovedDestination("orders", "shop", "acme", 17))
    assert gone == RemovedView("orders", "shop", 17, Balance(read, read))


class Following:
    """A Kafka that has these receipts, and lanes that have passed them."""

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self.receipts = [receipt.to_json() for receipt in receipts]

    async def position(self, lane: str) -> Mapping[tuple[str, int], int]:
        return {} if lane == RETRIER else {(TOPIC, 0): 20}

    async def ends(self) -> int:
        return len(self.receipts)

    async def has_reached(self, end: int) -> bool:
        return not end or not self.receipts

    async def values(self, *, wait_s: float) -> dict[str, list[bytes]]:
        assert wait_s
        read, self.receipts = self.receipts, []
        return {RECEIPTS: read}

    async def spans(self, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        assert topics == [TOPIC]
        return {(TOPIC, 0): (0, 20)}


def test_what_waits_for_a_destination_that_nobody_knows_is_counted() -> None:
    names = ("orders/shop", "orders/gone", "orders/newer", "orders/done")
    waiting = [
        a_receipt(ReceiptOutcome.WAITING, (0, 7), destination_id=name, reason="status_503")
        for name in names
    ]
    done = a_receipt(ReceiptOutcome.DELIVERED, (0, 7), destination_id="orders/done", is_retry=True)
    kafka: Any = Following([*waiting, done])
    books = LiveBooks(kafka, kafka, kafka, Configuration)
    asyncio.run(books.refresh(["orders"], names))
    gone = RemovedDestination("orders", "gone", "acme", 17)
    known = Configuration(
        destinations={TO: Destination("orders", "shop", "https://shop.example/in")},
        removed_destinations={gone.id: gone},
    )
    unknown = tuple(books.unknown_of(known))
    assert unknown == (UnknownView("orders", "newer", 7),)
    metrics = ObserveMetrics()
    told = ("hifi_observe_unknown_waiting_events", {"destination": "orders/newer"})
    metrics.show(Overview(17, (), AuditHealth(), unknown=unknown))
    assert metrics.registry.get_sample_value(*told) == 7
    metrics.show(Overview(18, (), AuditHealth()))
    assert metrics.registry.get_sample_value(*told) is None
