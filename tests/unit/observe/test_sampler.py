"""The sampler asks Kafka no more than necessary, however many destinations there are."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from observe.audit.status import AuditStatus
from observe.lag.sampler import Sampler
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.record import Origin

if TYPE_CHECKING:
    from observe.lag.live_books import LiveBooks

FIRST, LATER = Origin("hifi.stream.orders", 0, 7), Origin("hifi.stream.orders", 0, 9)


class OpenBooks:
    """Books with the oldest open events of each destination, and whether it owes a confirmation."""

    def __init__(self, waits: dict[str, list[Origin]], *, owes: Iterable[str] = ()) -> None:
        self.waits, self.owes = waits, set(owes)
        self.asked = Counter[Origin]()
        self.destination_ids = [*waits, "orders/gone"]

    def of(self, lane: str) -> Any:
        return SimpleNamespace(
            is_confirmed=lane not in self.owes, oldest_open=lambda _: self.waits.get(lane, ())
        )

    def log_of(self, _: str) -> dict[Any, Any]:
        return {}

    async def stored_at_ms(self, place: Origin) -> int | None:
        self.asked[place] += 1
        return place.offset


def sampler(*names: str) -> Sampler:
    configuration = Configuration()
    for item in (Stream("orders"), *(Destination("orders", name, "http://to") for name in names)):
        configuration = configuration.apply(item.config_key, item.to_json())
    return Sampler(
        "nowhere",
        lambda: configuration,
        dict,
        dict,
        AuditStatus(started_ms=0, interval_s=60, overdue_after_s=600),
        30,
        lambda _: None,
    )


def test_the_time_of_an_event_is_asked_once_for_all_that_wait_at_it() -> None:
    looking = sampler("shop", "crm", "lake")
    books = OpenBooks({"orders/shop": [FIRST], "orders/crm": [FIRST], "orders/lake": [LATER]})
    for _ in range(2):
        asyncio.run(looking._look_for_oldest(cast("LiveBooks", books)))
        assert books.asked == {FIRST: 1, LATER: 1}
    assert looking._oldest["orders/shop"] == looking._oldest["orders/crm"] == {FIRST: 7}
    # Once an event is no destination's oldest open one, its time is forgotten.
    books.waits = {"orders/shop": [LATER]}
    asyncio.run(looking._look_for_oldest(cast("LiveBooks", books)))
    assert looking._oldest == {"orders/shop": {LATER: 9}}
    assert books.asked == {FIRST: 1, LATER: 1}


def test_lanes_that_owe_nothing_are_seldom_asked_where_they_are() -> None:
    looking = sampler("shop", "crm")
    books = cast("LiveBooks", OpenBooks({"orders/shop": []}, owes=["orders/shop", "orders/gone"]))

    def asked(*, with_gone: bool, with_confirmed: bool) -> set[str]:
        return {*looking._to_ask(books, with_gone=with_gone, with_confirmed=with_confirmed)}

    assert asked(with_gone=False, with_confirmed=False) == {"orders/shop"}
    assert asked(with_gone=True, with_confirmed=False) == {"orders/shop", "orders/gone"}
    assert asked(with_gone=True, with_confirmed=True) == {
        "orders/shop",
        "orders/crm",
        "orders/gone",
    }
