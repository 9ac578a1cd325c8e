"""The gateway's HTTP, with a real server and Kafka in memory: statuses, answers, limits."""

import gc
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.publish.report import Fate
from gateway.settings import Settings
from shared.event.envelope import open_stream_record
from shared.event.record import Origin, RecordIn
from shared.event.topics import stream_topic
from tests.support.delivery.record_headers import headers_of
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
JSON = {"content-type": "application/json"}
SETTINGS = Settings(
    auth="off",
    body_bytes_max=20_000,
    event_bytes_max=1_000,
    events_max=10,
    in_flight_bytes_max=60_000,
    receive_deadline_s=0.3,
)


@pytest.fixture(scope="module")
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture(scope="module")
def served(publisher: FakePublisher) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config_with("orders", "topicless"), SETTINGS) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: RunningGateway, publisher: FakePublisher) -> RunningGateway:
    publisher.fate = Fate.STORED
    publisher.fates.clear()
    publisher.release()
    for log in publisher.logs[TOPIC]:
        log.clear()
    return served


def post(gateway: RunningGateway, body: bytes, **headers: str) -> httpx.Response:
    sent = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.client.post(PATH, content=body, headers=sent)


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["code"] == code
    assert found["status"] == status
    assert found["type"] == f"urn:hifi:problem:{code}"
    assert found["request_id"]
    return found


def test_a_batch_is_accepted_and_its_bytes_are_untouched(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    response = post(gateway, b'[ {"id":"a", "n": 1.50} , {"id":"b","n":"\\u00e9"}]')
    assert response.status_code == 200
    body = response.json()
    assert (body["accepted"], body["rejected"]) == (2, 0)
    values = [event.value for event in publisher.stored(TOPIC)]
    assert values == [b'{"id":"a", "n": 1.50}', b'{"id":"b","n":"\\u00e9"}']


def test_the_stored_record_opens_as_an_envelope(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    post(gateway, b'{"id":"a","time":"1970-01-01T00:00:01.5Z"}', traceparent=parent)
    (event,) = publisher.stored(TOPIC)
    envelope = open_stream_record(
        RecordIn(Origin(TOPIC, 0, 0), 0, event.key, event.value, headers_of(event))
    )
    assert (envelope.event_id, envelope.event_time_ms) == ("a", 1500)
    assert envelope.traceparent == parent
    assert envelope.accepted_at_ms > 1_700_000_000_000


def test_an_event_without_an_id_gets_one_that_the_answer_gives_away(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    body = post(gateway, b"[{},{}]").json()
    ids = {event.id for event in publisher.stored(TOPIC)}
    assert ids == {f"{body['request_id']}-0", f"{body['request_id']}-1"}


def test_results_all_lists_every_event_with_where_it_rests(gateway: RunningGateway) -> None:
    response = gateway.client.post(f"{PATH}?results=all", content=b'[{"id":"a"}]', headers=JSON)
    assert response.status_code == 200
    (entry,) = response.json()["results"]
    assert entry["offset"] == 0
    assert (entry["index"], entry["id"], entry["status"]) == (0, "a", "accepted")


def test_an_empty_batch_is_accepted(gateway: RunningGateway) -> None:
    response = post(gateway, b"[]")
    assert response.status_code == 200
    assert response.json()["accepted"] == 0


def test_the_ordering_key_comes_from_the_event_or_else_from_the_header(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    post(gateway, b'[{"id":"a","partitionkey":"own"},{"id":"b"}]', x_partition_key="all")
    assert {e.id: e.key for e in publisher.stored(TOPIC)} == {"a": b"own", "b": b"all"}


def test_a_mixed_outcome_is_207_and_lists_what_was_not_accepted(gateway: RunningGateway) -> None:
    response = post(gateway, b'[{"id":"a"},7,{"id":"c"}]')
    assert response.status_code == 207
    body = response.json()
    assert (body["accepted"], body["rejected"]) == (2, 1)
    (entry,) = body["results"]
    assert entry["index"] == 1
    assert entry["code"] == "not_an_object"
    assert entry["pointer"] == "/1"
    assert entry["retryable"] is False


def test_an_event_that_kafka_did_not_take_is_retryable(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.fates["b"] = Fate.NOT_STORED
    response = post(gateway, b'[{"id":"a"},{"id":"b"}]')
    assert response.status_code == 207
    body = response.json()
    assert (body["accepted"], body["retry"]) == (1, 1)
    (entry,) = body["results"]
    assert (entry["index"], entry["id"], entry["status"]) == (1, "b", "retry")
    assert entry["retryable"] is True


def test_nothing_stored_is_503(gateway: RunningGateway, publisher: FakePublisher) -> None:
    publisher.fate = Fate.NOT_STORED
    response = post(gateway, b'[{"id":"a"},7]')
    found = problem(response, 503, "not_stored")
    assert response.headers["retry-after"]
    assert (found["accepted"], found["retry"], found["rejected"]) == (0, 1, 1)
    assert [entry["status"] for entry in found["results"]] == ["retry", "rejected"]


def test_anything_unknown_is_504_even_beside_accepted_events(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.fates["b"] = Fate.UNKNOWN
    found = problem(post(gateway, b'[{"id":"a"},{"id":"b"}]'), 504, "outcome_unknown")
    assert (found["accepted"], found["unknown"]) == (1, 1)
    assert [(e["id"], e["status"]) for e in found["results"]] == [("b", "unknown")]


def test_a_configured_stream_without_a_topic_is_503_and_not_a_bug(gateway: RunningGateway) -> None:
    response = gateway.client.post("/v1/streams/topicless/events", content=b"{}", headers=JSON)
    problem(response, 503, "not_stored")


def test_all_rejected_is_422(gateway: RunningGateway) -> None:
    found = problem(post(gateway, b"[1,2]"), 422, "all_rejected")
    assert found["rejected"] == 2
    assert [entry["pointer"] for entry in found["results"]] == ["/0", "/1"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"[", "invalid_json"),
        (b'[{"a":NaN}]', "invalid_json"),
        (b'[{"a":"\xff"}]', "invalid_utf8"),
        (b'"text"', "not_events"),
        (b'{"events":[],"sent":1}', "ambiguous_body"),
        (b'[{"a":' + b"[" * 15_000, "too_deep"),
    ],
)
def test_a_body_that_cannot_be_read_is_400(gateway: RunningGateway, body: bytes, code: str) -> None:
    problem(post(gateway, body), 400, code)


def test_too_many_events_is_413_and_names_the_limit(gateway: RunningGateway) -> None:
    found = problem(post(gateway, b"[" + b",".join([b"{}"] * 11) + b"]"), 413, "too_many_events")
    assert (found["limit"], found["limit_value"]) == ("events_max", 10)


def test_an_event_that_is_too_large_is_rejected_alone(gateway: RunningGateway) -> None:
    response = post(gateway, b'[{"id":"a"},{"x":"' + b"x" * 1_000 + b'"}]')
    assert response.status_code == 207
    assert response.json()["results"][0]["code"] == "event_too_large"


def test_a_body_that_is_announced_too_large_is_413(gateway: RunningGateway) -> None:
    found = problem(post(gateway, b" " * 20_001), 413, "body_too_large")
    assert found["limit_value"] == 20_000


def test_a_chunked_body_is_cut_off_at_the_limit(gateway: RunningGateway) -> None:
    response = gateway.client.post(PATH, content=iter([b" " * 9_000] * 3), headers=JSON)
    problem(response, 413, "body_too_large")


def test_a_chunked_body_within_the_limit_is_read_whole(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    response = gateway.client.post(PATH, content=iter([b'[{"id"', b':"a"}', b"]"]), headers=JSON)
    assert response.status_code == 200
    assert [event.value for event in publisher.stored(TOPIC)] == [b'{"id":"a"}']


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/json; charset=latin-1", "application/xml"]
)
def test_other_content_types_are_415(gateway: RunningGateway, content_type: str) -> None:
    response = post(gateway, b"[]", content_type=content_type)
    problem(response, 415, "unsupported_media_type")
    assert "application/x-ndjson" in response.headers["accept-post"]


def test_an_encoding_that_is_not_known_is_415_and_says_what_is_taken(
    gateway: RunningGateway,
) -> None:
    response = post(gateway, b"[]", content_encoding="compress")
    problem(response, 415, "unsupported_encoding")
    assert response.headers["accept-encoding"] == "gzip, zstd, br, identity"


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=UTF-8", "application/json;"]
)
def test_json_in_utf8_is_taken(gateway: RunningGateway, content_type: str) -> None:
    assert post(gateway, b"[]", content_type=content_type).status_code == 200


def test_an_unknown_stream_is_404(gateway: RunningGateway) -> None:
    response = gateway.client.post("/v1/streams/nope/events", content=b"[]", headers=JSON)
    found = problem(response, 404, "unknown_stream")
    assert "GET /v1/streams" in found["detail"]


def test_a_path_that_is_not_ours_is_404(gateway: RunningGateway) -> None:
    problem(gateway.client.get("/nope"), 404, "not_found")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_other_methods_are_405_and_say_which_is_allowed(
    gateway: RunningGateway, method: str
) -> None:
    response = gateway.client.request(method, PATH)
    problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "GET, POST, OPTIONS"
    problem(gateway.client.delete("/v1/streams"), 405, "method_not_allowed")


def test_streams_are_listed(gateway: RunningGateway) -> None:
    assert gateway.client.get("/v1/streams").json() == {
        "streams": ["orders", "topicless"],
        "removed": [],
    }


def test_the_callers_request_id_is_echoed(gateway: RunningGateway) -> None:
    assert post(gateway, b"[]", x_request_id="mine-1").headers["x-request-id"] == "mine-1"
    response = post(gateway, b"[]")
    assert response.headers["x-request-id"] == response.json()["request_id"]


def test_a_body_that_stalls_is_408(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        wire.sendall(_head(content_length=10) + b"[")
        answer = wire.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "body_timeout"


def test_a_request_beyond_the_in_flight_budget_is_503_before_its_body_is_read(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.overdue_bytes = 50_000
    try:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
            wire.sendall(_head(content_length=15_000))
            status = wire.makefile("rb").readline()
    finally:
        publisher.overdue_bytes = 0
    assert status.startswith(b"HTTP/1.1 503 ")


def test_a_client_that_leaves_does_not_stop_its_events(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    before = gateway.sample("hifi_gateway_requests_total", route="events", status="200")
    publisher.hold()
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        body = b'[{"id":"left"}]'
        wire.sendall(_head(content_length=len(body)) + body)
        assert publisher.published.wait(5)
    publisher.release()
    # The next answer comes over another connection, so it proves nothing about the first one:
    # read the count of answers, which rises when the first request has been served.
    for _ in range(1_000):
        if gateway.sample("hifi_gateway_requests_total", route="events", status="200") > before:
            break
        gateway.client.get("/v1/streams")
    assert [event.id for event in publisher.stored(TOPIC)] == ["left"]


def test_an_answered_request_leaves_nothing_to_the_garbage_collector(
    gateway: RunningGateway,
) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            assert post(gateway, b'{"a": 1}').status_code == 200
            assert gateway.client.get("/v1/limits").status_code == 200
        left = sum(isinstance(one, RequestResponseCycle) for one in gc.get_objects())
    finally:
        gc.enable()
    # Each open connection still holds its last request.
    assert left <= 5


def test_the_metrics_say_what_callers_were_told(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    def told(result: str) -> float:
        return gateway.sample("hifi_gateway_events_total", stream="orders", result=result)

    before = {word: told(word) for word in ("accepted", "rejected", "retry", "unknown")}
    body_bytes = gateway.sample("hifi_gateway_body_bytes_total", stream="orders")
    reports = gateway.sample("hifi_gateway_ack_seconds_count", stream="orders")
    publisher.fates |= {"b": Fate.NOT_STORED, "c": Fate.UNKNOWN}
    body = b'[{"id":"a"},{"id":"b"},{"id":"c"},7]'
    post(gateway, body)
    # The gateway counts after it has answered.
    wait_until(
        lambda: {word: told(word) - before[word] for word in before} == dict.fromkeys(before, 1),
        what=lambda: f"each is reported once more than {before}",
        timeout_s=10,
    )
    assert gateway.sample("hifi_gateway_body_bytes_total", stream="orders") - body_bytes == len(
        body
    )
    assert gateway.sample("hifi_gateway_ack_seconds_count", stream="orders") - reports == 1
    assert gateway.sample("hifi_gateway_in_flight_bytes") == 0


def _head(*, content_length: int) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % (PATH.encode(), content_length)
    )
