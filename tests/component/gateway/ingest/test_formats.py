"""Every format and encoding over real HTTP, and the other options of senders."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator

import brotli
import httpx
import pytest
from backports import zstd

from gateway.publish.report import Fate
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
STRICT = stream_topic("typed")
SCHEMA = '{"type":"object","required":["price"],"properties":{"price":{"type":"number"}}}'
STREAMS = (
    Stream("orders"),
    Stream("keyed", key_pointer="/user/id"),
    Stream("typed", json_schema=SCHEMA),
)


@pytest.fixture(scope="module")
def publisher() -> FakePublisher:
    return FakePublisher([stream_topic(stream.name) for stream in STREAMS])


@pytest.fixture(scope="module")
def served(publisher: FakePublisher) -> Iterator[RunningGateway]:
    config = FixedConfig(Configuration(streams={stream.name: stream for stream in STREAMS}))
    with running_gateway(publisher, config, Settings(auth="off", events_max=100)) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: RunningGateway, publisher: FakePublisher) -> RunningGateway:
    publisher.fate = Fate.STORED
    publisher.fates.clear()
    publisher.release()
    for logs in publisher.logs.values():
        for log in logs:
            log.clear()
    return served


def post(gateway: RunningGateway, body: bytes, path: str = PATH, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.client.post(
        path, content=body, headers={"content-type": "application/json"} | named
    )


def values(publisher: FakePublisher, topic: str = TOPIC) -> list[bytes]:
    return [event.value for event in publisher.stored(topic)]


def test_ndjson_is_one_event_a_line_and_a_bad_line_is_alone(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    body = b'{"id":"a"}\r\n {"id":"b"} \nnot json\n[1]\n\n'
    response = post(gateway, body, content_type="application/x-ndjson")
    assert response.status_code == 207
    assert values(publisher) == [b'{"id":"a"}', b'{"id":"b"}']
    found = [(e["index"], e["code"], e["pointer"]) for e in response.json()["results"]]
    assert found == [(2, "invalid_json", "/2"), (3, "not_an_object", "/3")]


def test_too_many_lines_are_413(gateway: RunningGateway) -> None:
    response = post(gateway, b"{}\n" * 101, content_type="application/x-ndjson")
    assert response.json()["code"] == "too_many_events"


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("zstd", zstd.compress), ("br", brotli.compress)],
)
def test_a_compressed_body_is_opened(
    gateway: RunningGateway,
    publisher: FakePublisher,
    encoding: str,
    pack: Callable[[bytes], bytes],
) -> None:
    body = b'[{"id":"a","text":"' + b"ab" * 3_000 + b'"}]'
    assert post(gateway, pack(body), content_encoding=encoding).status_code == 200
    assert values(publisher) == [body[1:-1]]
    broken = post(gateway, pack(body)[:-3], content_encoding=encoding)
    assert (broken.status_code, broken.json()["code"]) == (400, "invalid_encoding")
    bomb = post(gateway, pack(b" " * 30_000_000), content_encoding=encoding)
    assert (bomb.status_code, bomb.json()["code"]) == (413, "decompressed_too_large")
    assert gateway.sample("hifi_gateway_in_flight_bytes") == 0


def test_the_key_is_where_the_stream_says_unless_event_or_request_have_one(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    path = "/v1/streams/keyed/events"
    body = (
        b'[{"id":"a","user":{"id":"u1"}},{"id":"b","user":{"id":7}},{"id":"c","user":5},{"id":"d"}]'
    )
    post(gateway, body, path)
    keys = {event.id: event.key for event in publisher.stored(stream_topic("keyed"))}
    assert keys == {"a": b"u1", "b": b"7", "c": None, "d": None}
    post(gateway, b'{"id":"e","user":{"id":"u1"},"partitionkey":"own"}', path)
    post(gateway, b'{"id":"f","user":{"id":"u1"}}', path, x_partition_key="asked")
    keys = {event.id: event.key for event in publisher.stored(stream_topic("keyed"))}
    assert (keys["e"], keys["f"]) == (b"own", b"asked")


def test_events_that_do_not_fit_the_schema_are_rejected_with_a_pointer(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    body = b'[{"id":"a","price":1},{"id":"b","price":"x"},{"id":"c"},{"id":"d","price":1e999}]'
    response = post(gateway, body, "/v1/streams/typed/events")
    assert response.status_code == 207
    assert [event.id for event in publisher.stored(STRICT)] == ["a"]
    found = [(e["id"], e["code"], e["pointer"]) for e in response.json()["results"]]
    assert found == [
        ("b", "schema_violation", "/1/price"),
        ("c", "schema_violation", "/2"),
        ("d", "schema_violation", "/3"),
    ]


def test_strict_stores_all_or_nothing(gateway: RunningGateway, publisher: FakePublisher) -> None:
    response = post(gateway, b'[{"id":"a"},7]', prefer="handling=strict")
    assert (response.status_code, response.json()["code"]) == (422, "strict_rejected")
    assert (response.json()["rejected"], response.json()["aborted"]) == (1, 1)
    assert values(publisher) == []
    good = post(gateway, b'[{"id":"a"}]', prefer="handling=strict")
    assert good.status_code == 200
    assert good.headers["preference-applied"] == "handling=strict"


def test_minimal_is_204_for_a_whole_success_only(gateway: RunningGateway) -> None:
    response = post(gateway, b"[{}]", prefer="return=minimal")
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["preference-applied"] == "return=minimal"
    assert post(gateway, b"[{},7]", prefer="return=minimal").status_code == 207


def test_a_dry_run_shows_key_and_partition_and_stores_nothing(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    response = post(gateway, b'[{"id":"a","partitionkey":"k"},7]', f"{PATH}?dry_run=true")
    assert response.status_code == 200
    body = response.json()
    assert (body["dry_run"], body["accepted"], body["valid"], body["rejected"]) == (True, 0, 1, 1)
    assert body["results"][0] == {
        "index": 0,
        "id": "a",
        "status": "valid",
        "key": "k",
        "partition": 0,
    }
    assert values(publisher) == []


def test_a_repeated_idempotency_key_gets_the_first_answer_and_stores_once(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    first = post(gateway, b"[{},7]", idempotency_key="key-1")
    again = post(gateway, b"[{},7]", idempotency_key='"key-1"')
    assert first.status_code == again.status_code == 207
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(values(publisher)) == 1
    other = post(gateway, b"[{}]", idempotency_key="key-1")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    strict = post(gateway, b"[{},7]", idempotency_key="key-1", prefer="handling=strict")
    assert (strict.status_code, strict.json()["code"]) == (422, "idempotency_key_reused")


def test_after_an_unknown_outcome_the_same_key_sends_again_with_the_same_ids(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.fate = Fate.UNKNOWN
    first = post(gateway, b"[{}]", idempotency_key="key-2")
    assert first.status_code == 504
    publisher.fate = Fate.STORED
    assert post(gateway, b"[{}]", idempotency_key="key-2").status_code == 200
    assert [event.id for event in publisher.stored(TOPIC)] == [first.json()["results"][0]["id"]]


def test_after_a_part_was_not_stored_the_same_key_sends_again(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.fates["late"] = Fate.NOT_STORED
    body = b'[{"id":"first"},{"id":"late"}]'
    assert post(gateway, body, idempotency_key="key-9").status_code == 207
    publisher.fates.clear()
    again = post(gateway, body, idempotency_key="key-9")
    assert again.status_code == 200
    assert "idempotency-replayed" not in again.headers
    assert {event.id for event in publisher.stored(TOPIC)} == {"first", "late"}
    replayed = post(gateway, body, idempotency_key="key-9")
    assert replayed.headers["idempotency-replayed"] == "true"


HALF = b'{"id":"half","says":"\\ud83d and \\\\ud83d"}'
WELL = [b'{"id":"a","says":"\\ud83d\\ude00 \\\\ud83d"}', b'{ "id": "b" }']


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[%b ,\n%b, %b]" % (WELL[0], HALF, WELL[1]), "application/json"),
        (b'{"events": [%b,%b,%b]}' % (WELL[0], HALF, WELL[1]), "application/json"),
        (b"\n".join((WELL[0], HALF, WELL[1])), "application/x-ndjson"),
    ],
)
def test_half_a_surrogate_pair_spoils_its_own_event_and_no_other(
    gateway: RunningGateway, publisher: FakePublisher, body: bytes, content_type: str
) -> None:
    answer = post(gateway, body, content_type=content_type)
    assert answer.status_code == 207, answer.text
    (rejected,) = answer.json()["results"]
    assert (rejected["index"], rejected["code"]) == (1, "invalid_json")
    # The other events are stored byte for byte.
    assert sorted(event.value for event in publisher.stored(TOPIC)) == sorted(WELL)


def test_halves_without_end_are_refused_at_once(gateway: RunningGateway) -> None:
    body = b"[%b]" % b",".join([b'{"says":"%b"}' % (b"\\ud83d" * 10_000)] * 50)
    begun_s = time.monotonic()
    assert post(gateway, body).status_code == 400
    assert time.monotonic() - begun_s < 5


def test_a_key_whose_first_request_is_under_way_is_409(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.hold()
    answers: list[int] = []
    thread = threading.Thread(
        target=lambda: answers.append(post(gateway, b"[{}]", idempotency_key="key-3").status_code)
    )
    thread.start()
    assert publisher.published.wait(5)
    response = post(gateway, b"[{}]", idempotency_key="key-3")
    publisher.release()
    thread.join(timeout=10)
    assert (response.status_code, response.json()["code"]) == (409, "idempotency_key_in_use")
    assert response.headers["retry-after"]
    assert answers == [200]


def test_limits_are_shown(gateway: RunningGateway) -> None:
    found = gateway.client.get("/v1/limits").json()
    assert found["events_max"] == 100
    assert found["content_encodings"] == ["gzip", "zstd", "br", "identity"]
    assert "application/x-ndjson" in found["content_types"]
    assert found["quotas"] is None
