"""A request is followed through pipelines, as far as the caller may see."""

from dataclasses import replace

from msgspec import structs

from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.config.pipeline import Pipeline
from shared.event.record import Origin
from shared.event.topics import stream_topic
from shared.proof.receipt import Receipt, ReceiptOutcome, facts_of
from shared.proof.restored import RestoredEvents, Restores
from tests.component.gateway.control.test_receipts import a_key, a_receipt, an_event, an_id
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeReceipts,
    FixedConfig,
    a_ledger_row,
    running_gateway,
)


def pipelines_of(*drawn: tuple[str, str, str]) -> dict[str, Pipeline]:
    """Return pipelines by name; each is given as name, source stream and output stream."""
    return {
        name: Pipeline.of({"name": name, "from": {"stream": reads}, "to": [{"stream": writes}]})
        for name, reads, writes in drawn
    }


def a_place(stream: str, offset: int) -> Origin:
    return Origin(stream_topic(stream), 2, offset)


def done(who: str, offset: int) -> Receipt:
    """Return the receipt of a pipeline or destination for an event of its stream."""
    stream = who.split("/", maxsplit=1)[0]
    event = replace(an_event(offset), origin=a_place(stream, offset), stream=stream)
    receipt = a_receipt(offset, ReceiptOutcome.DELIVERED, "status_200")
    return structs.replace(receipt, destination_id=who, covered=facts_of([event]).covered)


def test_events_are_followed_through_pipelines_to_the_destinations_beyond() -> None:
    kept = FakeReceipts()
    pipelines = pipelines_of(
        ("one", "orders", "eu"), ("two", "eu", "eu-sums"), ("secret", "orders", "hidden")
    )
    shop = Destination("eu-sums", "shop", "https://shop.example/")
    reader, reads_all = a_key("all", "default", "read")
    some, reads_some = a_key("some", "default", "read", streams=frozenset({"orders"}))
    streams = {name: Stream(name) for name in ("orders", "eu", "eu-sums")}
    known = Configuration(
        streams={**streams, "hidden": Stream("hidden", tenant="other")},
        destinations={shop.id: shop},
        pipelines=pipelines,
        keys={reader.id: reader, some.id: some},
    )
    request_id = an_id()
    kept.ledger = [a_ledger_row(request_id)]
    kept.receipts = [
        done("orders/pipeline:one", 10),
        done("orders/pipeline:secret", 10),
        done("eu/pipeline:two", 40),
        done("eu-sums/shop", 70),
    ]
    of = a_place("orders", 10)
    kept.derived = [
        ("one", a_place("eu", 40), "d-1", of, 2_005),
        ("one", a_place("eu", 41), "d-2", of, 2_006),
        ("two", a_place("eu-sums", 70), "s-1", a_place("eu", 40), 2_007),
        ("secret", a_place("hidden", 1), "h-1", of, 2_007),
        # Too old: an earlier event had this place.
        ("one", a_place("eu", 5), "old", of, 900_000),
    ]
    publisher = FakePublisher([stream_topic("orders")])
    settings = Settings(auth="keys")
    with running_gateway(publisher, FixedConfig(known), settings, receipts=kept) as gateway:
        path = f"/v1/receipts/{request_id}"
        said = gateway.client.get(path, headers=reads_all).json()
        first, second = said["derived"]
        assert (first["pipeline"], first["reads"], first["stream"]) == ("one", "orders", "eu")
        assert [(one["id"], one["of"]) for one in first["events"]] == [
            ("d-1", "2:10"),
            ("d-2", "2:10"),
        ]
        assert first["destinations"]["pipeline:two"]["delivered"] == 1
        assert first["destinations"]["pipeline:two"]["queued"] == 1
        assert (second["pipeline"], second["stream"], second["count"]) == ("two", "eu-sums", 1)
        assert second["events"][0]["destinations"]["shop"]["state"] == "delivered"
        assert said["is_complete"] is True
        # Streams that a key may not read are left out.
        assert gateway.client.get(path, headers=reads_some).json()["derived"] == []
        # The search ends with a full page.
        page = gateway.client.get(path, params={"limit": 1}, headers=reads_all).json()
        assert [one["count"] for one in page["derived"]] == [1]
        assert page["is_complete"] is False


def test_who_may_see_the_stream_is_told_by_which_restore_events_came_there_again() -> None:
    kept = FakeReceipts(restored=Restores())
    some, reads_some = a_key("some", "default", "read", streams=frozenset({"orders"}))
    reader, reads_all = a_key("all", "default", "read")
    streams = {name: Stream(name) for name in ("orders", "again")}
    known = Configuration(
        streams={**streams, "hidden": Stream("hidden", tenant="other")},
        keys={reader.id: reader, some.id: some},
    )
    request_id = an_id()
    kept.ledger = [a_ledger_row(request_id)]
    for restore, to_stream, offsets in (
        ("spring", "again", (10, 12)),
        ("summer", "orders", (11,)),
        ("secret", "hidden", (10,)),
        ("other", "again", (9, 13)),
    ):
        assert kept.restored is not None
        kept.restored.take(a_restore(restore, to_stream, *offsets).to_json())
    publisher = FakePublisher([stream_topic("orders")])
    with running_gateway(
        publisher, FixedConfig(known), Settings(auth="keys"), receipts=kept
    ) as gateway:
        path = f"/v1/receipts/{request_id}"
        said = gateway.client.get(path, headers=reads_all).json()
        again = {"began_at_ms": 1_500, "last_at_ms": 1_600}
        assert said["restored"] == [
            {"restore": "spring", "stream": "again", "events": ["e-1", "e-3"], **again},
            {"restore": "summer", "stream": "orders", "events": ["e-2"], **again},
        ]
        told = gateway.client.get(path, headers=reads_some).json()["restored"]
        assert [each["restore"] for each in told] == ["summer"]
        only = gateway.client.get(path, params={"event": "e-3"}, headers=reads_all).json()
        assert [each["events"] for each in only["restored"]] == [["e-3"]]
        # Unread restores may hold more.
        kept.restored = None
        untold = gateway.client.get(path, headers=reads_all).json()
        assert (untold["restored"], untold["is_complete"]) == ([], False)


def a_restore(restore: str, to_stream: str, *offsets: int) -> RestoredEvents:
    """Return a restore of the events at these offsets."""
    return RestoredEvents(
        id=restore,
        tenant="default",
        stream="orders",
        to_stream=to_stream,
        count=len(offsets),
        began_ms=1_500,
        last_ms=1_600,
        begins={2: 0},
        from_ms=1_000,
        to_ms=1_100,
        spans={2: [(offset, offset + 1) for offset in offsets]},
    )
