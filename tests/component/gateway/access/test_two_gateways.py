"""An Idempotency-Key at two gateways that share one Kafka: its events are stored once."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from gateway.publish.report import Fate
from gateway.settings import Settings
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway

TOPIC = stream_topic("orders")
SETTINGS = Settings(auth="off")
# Longer than a claim lasts.
LATER_MS = 3 * round(SETTINGS.ack_deadline_s * 1000) + 1

Two = tuple[RunningGateway, RunningGateway]


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def two(publisher: FakePublisher) -> Iterator[Two]:
    config = config_with("orders")
    with (
        running_gateway(publisher, config, SETTINGS) as one,
        running_gateway(publisher, config, SETTINGS) as other,
    ):
        yield one, other


def post(gateway: RunningGateway, key: str, body: bytes = b"[{},{}]") -> httpx.Response:
    headers = {"content-type": "application/json", "idempotency-key": key}
    return gateway.client.post("/v1/streams/orders/events", content=body, headers=headers)


def test_the_other_gateway_repeats_the_first_answer(publisher: FakePublisher, two: Two) -> None:
    first, again = post(two[0], "key"), post(two[1], "key")
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.content == again.content
    assert again.headers["idempotency-replayed"] == "true"
    assert len(publisher.stored(TOPIC)) == 2
    other = post(two[1], "key", b"[{}]")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def test_a_key_that_one_gateway_is_busy_with_is_409_at_the_other(
    publisher: FakePublisher, two: Two
) -> None:
    publisher.hold()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(post, two[0], "key")
        assert publisher.published.wait(10)
        second = post(two[1], "key")
        publisher.release()
        assert first.result().status_code == 200
    assert (second.status_code, second.json()["code"]) == (409, "idempotency_key_in_use")
    assert post(two[1], "key").json() == first.result().json()


def test_of_many_senders_at_once_one_stores(publisher: FakePublisher, two: Two) -> None:
    for n in range(10):
        start = threading.Barrier(6)

        def send(nth: int, key: str = f"key-{n}", start: threading.Barrier = start) -> int:
            start.wait(10)
            answer = post(two[nth % 2], key)
            return (
                -answer.status_code
                if "idempotency-replayed" in answer.headers
                else (answer.status_code)
            )

        with ThreadPoolExecutor(6) as threads:
            statuses = Counter(threads.map(send, range(6)))
        assert statuses[200] == 1, statuses
        assert set(statuses) <= {200, -200, 409}
    assert len(publisher.stored(TOPIC)) == 20


def test_after_a_death_between_stored_and_answered_the_other_gateway_stores_nothing_twice(
    publisher: FakePublisher, two: Two
) -> None:
    publisher.hold()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(post, two[0], "key")
        assert publisher.published.wait(10)
        # The first gateway is as good as dead: nobody will learn the result.
        publisher.told.is_dying = True
        publisher.release()
        assert first.result().status_code == 200
    publisher.told.is_dying = False
    assert post(two[1], "key").status_code == 409, "the first gateway might still be alive"
    publisher.told.ahead_ms = LATER_MS
    again = post(two[1], "key")
    assert (again.status_code, again.json()["accepted"]) == (200, 2)
    assert "idempotency-replayed" not in again.headers, "the key must be judged again"
    assert len(publisher.stored(TOPIC)) == 2
    assert post(two[0], "key").json() == again.json(), "later repeats must get this answer"


def test_what_one_gateway_stored_in_part_the_other_completes(
    publisher: FakePublisher, two: Two
) -> None:
    body = b'[{"id":"first"},{"id":"late"}]'
    publisher.fates["late"] = Fate.NOT_STORED
    assert post(two[0], "key", body).status_code == 207
    publisher.fates.clear()
    again = post(two[1], "key", body)
    assert (again.status_code, again.json()["accepted"]) == (200, 2)
    assert sorted(event.id for event in publisher.stored(TOPIC)) == ["first", "late"]


def test_without_news_of_keys_nothing_is_stored_under_one_and_the_rest_goes_on(
    publisher: FakePublisher, two: Two
) -> None:
    publisher.told.fate = Fate.NOT_STORED
    refused = post(two[0], "key")
    assert (refused.status_code, refused.json()["code"]) == (503, "not_stored")
    assert "Idempotency-Key" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "1"
    assert publisher.stored(TOPIC) == []
    keyless = {"content-type": "application/json"}
    sent = two[0].client.post("/v1/streams/orders/events", content=b"[{}]", headers=keyless)
    assert sent.status_code == 200
    publisher.told.fate = Fate.STORED
    assert post(two[1], "key").status_code == 200
