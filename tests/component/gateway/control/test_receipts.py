"""A request is found by its id, by its own tenant only, and is never wrongly called missing."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from gateway.publish.ledger import AckLedger
from gateway.routes import request_ids
from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, ApiKey, Scope, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.envelope import Envelope, History
from shared.event.record import Origin
from shared.event.times import DAY_MS
from shared.event.topics import ACKED, stream_topic
from shared.proof.acked import AckedRow, request_time_ms
from shared.proof.last_answer import SHOWN_CHARS_MAX, FailedTry
from shared.proof.receipt import Receipt, ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import DeadLetter
from shared.retry.routing import route
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeReceipts,
    FixedConfig,
    RunningGateway,
    a_ledger_row,
    running_gateway,
)


def an_id(*, age_ms: int = 0) -> str:
    """Return an id that the gateway could have made `age_ms` ago."""
    made = next(request_ids())
    came_ms = (request_time_ms(made) or 0) - age_ms
    head = f"{came_ms:012x}"
    return f"{head[:8]}-{head[8:]}{made[13:]}"


def an_event(offset: int) -> Envelope:
    return Envelope(
        origin=Origin(stream_topic("orders"), 2, offset),
        value=b"{}",
        key=None,
        stream="orders",
        event_id="e",
        event_time_ms=0,
        accepted_at_ms=0,
    )


def a_receipt(offset: int, outcome: ReceiptOutcome, reason: str) -> Receipt:
    return make_receipt(
        facts_of([an_event(offset)]),
        destination_id="orders/crm",
        outcome=outcome,
        reason=reason,
        batch_id="b",
        attempt=1,
        started_at_ms=2_000,
        ended_at_ms=2_010,
    )


def a_config() -> FixedConfig:
    crm = Destination("orders", "crm", "https://crm.example/")
    return FixedConfig(
        Configuration(streams={"orders": Stream("orders")}, destinations={crm.id: crm})
    )


@pytest.fixture
def kept() -> FakeReceipts:
    return FakeReceipts()


@pytest.fixture
def gateway(kept: FakeReceipts) -> Iterator[RunningGateway]:
    publisher = FakePublisher([stream_topic("orders")])
    with running_gateway(publisher, a_config(), receipts=kept) as running:
        yield running


def a_key(name: str, tenant: str, scope: Scope, **more: Any) -> tuple[ApiKey, dict[str, str]]:
    text = new_text(kind="secret", key_id=name, entropy=bytes(ENTROPY_BYTES))
    secrets = (secret_from(text, signs=False),)
    made = ApiKey(name, secrets, tenant=tenant, scopes=frozenset({scope}), **more)
    return made, {"authorization": f"Bearer {text}"}


def get(gateway: RunningGateway, request_id: str, **query: str) -> httpx.Response:
    return gateway.client.get(f"/v1/receipts/{request_id}", params=query)


def refused(gateway: RunningGateway, request_id: str, **query: str) -> tuple[int, str]:
    answer = get(gateway, request_id, **query)
    return answer.status_code, answer.json()["code"]


def test_each_event_is_told_with_its_place_and_what_became_of_it(
    gateway: RunningGateway, kept: FakeReceipts
) -> None:
    request_id = an_id()
    kept.ledger = [a_ledger_row(an_id(), "other"), a_ledger_row(request_id)]
    kept.receipts = [
        a_receipt(10, ReceiptOutcome.DELIVERED, "status_200"),
        a_receipt(11, ReceiptOutcome.DEAD, "status_400"),
    ]
    given_up = DeadLetter("status_400", History.fresh(now_ms=0, deadline_s=1))
    kept.dead = [route(given_up, an_event(11), "orders/crm", now_ms=0)]
    said = get(gateway, request_id).json()
    events = said.pop("events")
    assert said == {
        "request_id": request_id,
        "stream": "orders",
        "accepted_at_ms": 1_000,
        "count": 3,
        "is_complete": True,
        "destinations": {
            "crm": {"delivered": 1, "waiting": 0, "dead": 1, "queued": 1, "unknown": 0}
        },
        "failed_tries": [],
        "failed_try_count": 0,
        "derived": [],
        "restored": [],
        "next": None,
    }
    assert [(one["id"], one["partition"], one["offset"]) for one in events] == [
        ("e-1", 2, 10),
        ("e-2", 2, 11),
        ("e-3", 2, 12),
    ]
    told = {"at_ms": 2_010, "attempts": 1}
    letter = {"place": "0:17", "last_status": None, "last_detail": ""}
    assert [one["destinations"]["crm"] for one in events] == [
        {**told, "state": "delivered", "reason": "status_200"},
        {**told, **letter, "state": "dead", "reason": "status_400"},
        {"state": "queued"},
    ]


def test_each_request_that_was_not_taken_is_told_with_its_answer_and_its_company(
    gateway: RunningGateway, kept: FakeReceipts
) -> None:
    request_id = an_id()
    kept.ledger = [a_ledger_row(request_id)]
    said = FailedTry(2_000, "status_503", 12, 503, "no healthy upstream" + "!" * 300)
    earlier = FailedTry(1_500, "connect_refused", 3, text="nobody listens")
    together = make_receipt(
        facts_of([an_event(10), an_event(11), an_event(13)]),
        destination_id="orders/crm",
        outcome=ReceiptOutcome.WAITING,
        reason="status_503",
        batch_id="msg_1",
        attempt=1,
        started_at_ms=1_000,
        ended_at_ms=2_000,
        failed_tries=(earlier, said),
    )
    alone = replace(a_receipt(12, ReceiptOutcome.WAITING, "status_500"), failed_tries=(earlier,))
    kept.receipts = [together, alone]
    answer = get(gateway, request_id, event="e-2").json()
    assert answer["failed_try_count"] == 2
    first, second = answer["failed_tries"]
    assert (first["reason"], first["status"], first["took_ms"]) == ("connect_refused", 0, 3)
    assert (second["status"], second["text"][:23]) == (503, "no healthy upstream!!!!")
    assert len(second["text"]) == SHOWN_CHARS_MAX
    assert (second["batch_id"], second["batch_events"]) == ("msg_1", 3)
    # The third belongs to another request.
    assert second["events"] == ["e-1", "e-2"]
    assert get(gateway, request_id).json()["failed_try_count"] == 3
    many = replace(together, failed_tries=tuple(replace(said, at_ms=n) for n in range(300)))
    kept.receipts = [many]
    answer = get(gateway, request_id).json()
    assert answer["failed_try_count"] == 300
    assert [each["at_ms"] for each in answer["failed_tries"]] == [*range(100, 300)]


def test_a_request_can_be_followed_after_stream_and_destination_were_removed(
    gateway: RunningGateway, kept: FakeReceipts
) -> None:
    request_id = an_id()
    kept.ledger = [a_ledger_row(request_id)]
    kept.receipts = [a_receipt(10, ReceiptOutcome.DELIVERED, "status_200")]
    for path in ("/v1/streams/orders/destinations/crm", "/v1/streams/orders"):
        assert gateway.client.delete(path).status_code == 204
    said = get(gateway, request_id).json()
    assert (said["stream"], said["destinations"]["crm"]["delivered"]) == ("orders", 1)


def test_one_event_or_some_of_many_are_shown_and_all_are_counted(
    gateway: RunningGateway, kept: FakeReceipts
) -> None:
    request_id = an_id()
    kept.ledger = [a_ledger_row(request_id, *(f"e-{n}" for n in range(25)))]
    one = get(gateway, request_id, event="e-7").json()
    assert [(event["id"], event["offset"]) for event in one["events"]] == [("e-7", 17)]
    assert one["destinations"]["crm"]["queued"] == 25
    assert get(gateway, request_id, event="nobody").json()["events"] == []
    ids: list[str] = []
    after: str | None = "0:0"
    pages = 0
    while after is not None:
        page = get(gateway, request_id, limit="10", after=after).json()
        ids += [event["id"] for event in page["events"]]
        after, pages = page["next"], pages + 1
    assert (ids, pages) == ([f"e-{n}" for n in range(25)], 3)


def test_what_was_just_accepted_is_waited_for(gateway: RunningGateway, kept: FakeReceipts) -> None:
    request_id = an_id()
    kept.late = [a_ledger_row(request_id)]
    assert get(gateway, request_id).json()["count"] == 3
    # The search does not wait for late rows of an old request.
    old_id = an_id(age_ms=DAY_MS)
    kept.late = [a_ledger_row(old_id)]
    assert refused(gateway, old_id) == (404, "unknown_receipt")
    assert kept.asked[-1] == (request_time_ms(old_id), 0.0)


def test_an_id_that_is_nowhere_is_unknown_only_when_nothing_can_be_on_its_way(
    gateway: RunningGateway, kept: FakeReceipts
) -> None:
    answer = get(gateway, an_id())
    assert (answer.status_code, answer.json()["code"]) == (404, "receipt_not_yet")
    assert answer.headers["retry-after"] == "1"
    assert refused(gateway, an_id(age_ms=3_600_000)) == (404, "unknown_receipt")
    asked = len(kept.asked)
    assert refused(gateway, an_id(age_ms=7 * DAY_MS + 1_000)) == (404, "unknown_receipt")
    assert refused(gateway, an_id(age_ms=-DAY_MS)) == (404, "unknown_receipt")
    assert len(kept.asked) == asked, "an impossible request must not be searched for"


def test_a_search_that_did_not_end_is_no_unknown_and_can_be_gone_on_with(
    gateway: RunningGateway, kept: FakeReceipts
) -> None:
    request_id = an_id(age_ms=DAY_MS)
    came_ms = request_time_ms(request_id) or 0
    kept.read_until_ms = came_ms + 1_000
    answer = get(gateway, request_id)
    assert (answer.status_code, answer.json()["code"]) == (503, "search_unfinished")
    assert answer.headers["retry-after"] == "1"
    until = datetime.fromisoformat(answer.json()["read_until"])
    assert round(1_000 * until.timestamp()) == kept.read_until_ms
    get(gateway, request_id, **{"from": answer.json()["read_until"]})
    assert kept.asked[-1][0] == kept.read_until_ms
    # A time before the first possible date does no harm: the search begins at the request.
    refused(gateway, request_id, **{"from": "0001-01-01T00:00:00+14:00"})
    assert kept.asked[-1][0] == came_ms


def test_what_is_not_all_there_or_not_all_read_says_so(
    gateway: RunningGateway, kept: FakeReceipts
) -> None:
    request_id, other_id = an_id(), an_id()
    kept.ledger = [a_ledger_row(request_id, count=5), a_ledger_row(other_id)]
    some = get(gateway, request_id).json()
    assert (some["count"], len(some["events"]), some["is_complete"]) == (5, 3, False)
    assert get(gateway, other_id).json()["is_complete"] is True
    kept.is_whole = False
    unread = get(gateway, other_id).json()
    assert unread["is_complete"] is False
    assert unread["destinations"]["crm"]["unknown"] == 3


@pytest.mark.parametrize("request_id", ["x", "e-1", "01a1ff25-35c5-4a5b-b0e6-761692f0e9b6"])
def test_what_is_no_id_is_400(gateway: RunningGateway, request_id: str) -> None:
    assert refused(gateway, request_id) == (400, "bad_request_id")


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "5001"}, {"after": "x"}, {"from": "then"}, {"id": "e-1"}]
)
def test_a_query_that_makes_no_sense_is_400(gateway: RunningGateway, query: dict[str, str]) -> None:
    assert refused(gateway, an_id(), **query) == (400, "bad_query")


def test_a_kafka_that_is_away_is_503(gateway: RunningGateway, kept: FakeReceipts) -> None:
    kept.error = KafkaUnavailableError("Kafka is away")
    answer = get(gateway, an_id())
    assert (answer.status_code, answer.json()["code"]) == (503, "kafka_unavailable")
    assert answer.headers["retry-after"] == "2"


def test_a_key_follows_what_its_tenant_has_sent_and_nobody_elses(kept: FakeReceipts) -> None:
    reader, as_reader = a_key("reader", "shop", "read")
    writer, as_writer = a_key("writer", "shop", "write")
    narrow, as_narrow = a_key("narrow", "shop", "read", streams=frozenset({"others"}))
    other, as_other = a_key("other", "bank", "read")
    configuration = Configuration(
        streams={name: Stream(name, tenant="shop") for name in ("orders", "others")},
        keys={one.id: one for one in (reader, writer, narrow, other)},
    )
    request_id, gone_id = an_id(), an_id()
    kept.ledger = [a_ledger_row(request_id), a_ledger_row(gone_id, stream="gone")]
    publisher, settings = FakePublisher([stream_topic("orders")]), Settings(auth="keys")
    with running_gateway(publisher, FixedConfig(configuration), settings, receipts=kept) as running:

        def answered(headers: dict[str, str], asked_id: str = request_id) -> tuple[int, str]:
            answer = running.client.get(f"/v1/receipts/{asked_id}", headers=headers)
            return answer.status_code, answer.json().get("code", "")

        assert answered({}) == (401, "unauthenticated")
        assert answered(as_reader) == answered(as_writer) == (200, "")
        assert answered(as_narrow) == (403, "stream_forbidden")
        assert answered(as_other) == (404, "unknown_receipt")
        assert answered(as_reader, gone_id) == (404, "unknown_receipt")


def test_a_tenant_that_searches_much_leaves_room_for_others(kept: FakeReceipts) -> None:
    reader, as_reader = a_key("reader", "shop", "read")
    other, as_other = a_key("other", "bank", "read")
    configuration = Configuration(
        streams={"orders": Stream("orders", tenant="shop")},
        keys={one.id: one for one in (reader, other)},
    )
    slow_id, released = an_id(), threading.Event()
    kept.ledger, kept.holds = [a_ledger_row(slow_id)], {slow_id: released}
    publisher, settings = FakePublisher([stream_topic("orders")]), Settings(auth="keys")
    with (
        running_gateway(publisher, FixedConfig(configuration), settings, receipts=kept) as running,
        ThreadPoolExecutor(4) as pool,
    ):

        def answered(headers: dict[str, str], asked_id: str) -> int:
            return running.client.get(f"/v1/receipts/{asked_id}", headers=headers).status_code

        slow = [pool.submit(answered, as_reader, slow_id) for _ in range(3)]
        try:
            deadline_s = monotonic() + 5
            while not kept.asked and monotonic() < deadline_s:
                sleep(0.01)
            assert answered(as_other, an_id()) == 404
            assert len(kept.asked) == 2, "one search of each tenant must have begun"
        finally:
            released.set()
        assert [one.result(timeout=10) for one in slow] == [200] * 3


def test_the_id_of_an_answer_is_the_id_in_the_ledger(kept: FakeReceipts) -> None:
    publisher = FakePublisher([stream_topic("orders"), ACKED])
    ledger = AckLedger(publisher)
    with running_gateway(publisher, a_config(), ledger=ledger, receipts=kept) as running:
        body = b'[{"id":"a"},{"id":"b"},7]'
        sent = running.client.post(
            "/v1/streams/orders/events",
            content=body,
            headers={"content-type": "application/json"},
        ).json()

        def is_noted() -> bool:
            # The gateway writes its ledger a moment after its answer.
            asyncio.run(ledger.flush())
            return bool(publisher.stored(ACKED))

        wait_until(is_noted, what="the ledger has the events")
        kept.ledger = [AckedRow.from_bytes(event.value) for event in publisher.stored(ACKED)]
        said = get(running, sent["request_id"]).json()
    assert (said["count"], said["is_complete"]) == (2, True)
    assert [event["id"] for event in said["events"]] == ["a", "b"]
    assert abs(said["accepted_at_ms"] - (request_time_ms(sent["request_id"]) or 0)) < 10_000
