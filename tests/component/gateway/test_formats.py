"""Every format and encoding over real HTTP, and what a sender may ask for besides."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import httpx
import pytest
from backports import zstd

from gateway.publish.report import Fate
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway_fixtures import (
    FakePublisher,
    FixedConfig,
    RunningGateway,
    running_gateway,
)

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
STRICT = stream_topic("typed")
SCHEMA = '{"type":"object","required":["price"],"properties":{"price":{"type":"number"}}}'
STREAMS = (
    Stream("orders"),
    Stream("keyed", key_pointer="/user/id"),
    Stream("typed", json_schema=SCHEMA),
)
EVENT = b'{"specversion":"1.0","id":"c-1","source":"/s","type":"t","partitionkey":"p","data":1}'

CE = {"ce_specversion": "1.0", "ce_id": "b-1", "ce_source": "/s", "ce_type": "t"}


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


def test_a_structured_cloud_event_is_stored_as_it_came(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    assert post(gateway, EVENT, content_type="application/cloudevents+json").status_code == 200
    (event,) = publisher.stored(TOPIC)
    assert (event.id, event.key, event.value) == ("c-1", b"p", EVENT)


def test_in_a_batch_of_cloud_events_one_that_is_none_is_rejected_alone(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    wrong = [b'{"id":"x"}', EVENT.replace(b'"1.0"', b'"0.3"'), EVENT.replace(b'"/s"', b'""'), b"5"]
    body = b"[" + b",".join([EVENT, *wrong]) + b"]"
    response = post(gateway, body, content_type="application/cloudevents-batch+json")
    assert response.status_code == 207
    assert values(publisher) == [EVENT]
    found = [(e["code"], e["pointer"]) for e in response.json()["results"]]
    assert found[1:] == [
        ("bad_cloud_event", "/2/specversion"),
        ("bad_cloud_event", "/3/source"),
        ("not_an_object", "/4"),
    ]
    assert found[0][0] == "bad_cloud_event"


@pytest.mark.parametrize(
    ("content_type", "body", "stored"),
    [
        ("application/json", b' {"n": 1.50} ', {"data": {"n": 1.5}}),
        ("text/plain; charset=utf-8", b"hello", {"data_base64": "aGVsbG8="}),
        ("application/json", b"", {}),
    ],
)
def test_a_binary_cloud_event_is_stored_as_the_structured_one_it_is(
    gateway: RunningGateway,
    publisher: FakePublisher,
    content_type: str,
    body: bytes,
    stored: dict[str, Any],
) -> None:
    attributes = {"ce_specversion": "1.0", "ce_id": "b-1", "ce_source": "/s", "ce_type": "t"}
    more = {"ce_partitionkey": "p", "ce_subject": "caf%C3%A9"}
    response = post(gateway, body, content_type=content_type, **attributes, **more)
    assert response.status_code == 200, response.text
    (event,) = publisher.stored(TOPIC)
    assert (event.id, event.key) == ("b-1", b"p")
    found = json.loads(event.value)
    assert found.pop("datacontenttype") == content_type
    assert found.pop("subject") == "caf\u00e9"
    assert {name: found.pop(name) for name in stored} == stored
    assert set(found) == {"specversion", "id", "source", "type", "partitionkey"}
    assert b'{"n": 1.50}' in event.value or content_type != "application/json" or not body


def test_a_binary_cloud_event_needs_its_attributes(gateway: RunningGateway) -> None:
    response = post(gateway, b"{}", ce_specversion="1.0", ce_id="x")
    assert response.status_code == 422
    assert response.json()["results"][0]["code"] == "bad_cloud_event"
    assert post(gateway, b"{", ce_specversion="1.0").json()["code"] == "invalid_json"
    assert post(gateway, b"{}", ce_specversion="1.0", ce_data="x").status_code == 400


def with_subject(gateway: RunningGateway, sent: bytes) -> httpx.Response:
    headers = {name.replace("_", "-").encode(): value.encode() for name, value in CE.items()}
    named = headers | {b"content-type": b"application/json", b"ce-subject": sent}
    return gateway.client.post(PATH, content=b"{}", headers=named)


@pytest.mark.parametrize(
    ("sent", "subject"),
    [
        ("caf\u00e9 \u20ac".encode(), "caf\u00e9 \u20ac"),
        ("caf\u00e9".encode("latin-1"), "caf\u00e9"),
        (b"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro \u20ac \U0001f600"),
        # Percent-encoded twice is decoded once; one sign of percent is itself.
        (b"50%2525 100% %zz", "50%25 100% %zz"),
        (b'"quoted"', "quoted"),
        (rb'"a \"b\" \\ %22c%22"', 'a "b" \\ "c"'),
        (b'half "quoted"', 'half "quoted"'),
        (b'"', '"'),
    ],
)
def test_attributes_in_headers_are_decoded_as_the_binding_says(
    gateway: RunningGateway, publisher: FakePublisher, sent: bytes, subject: str
) -> None:
    # HTTP binding 1.0.2, 3.1.3.2: double-quoted values MUST be unquoted, with their backslashes,
    # then percent-decoded once. Raw UTF-8 is what senders write who do neither.
    assert with_subject(gateway, sent).status_code == 200
    (value,) = values(publisher)
    assert json.loads(value)["subject"] == subject


@pytest.mark.parametrize("sent", [b"a%FF", b"%C0%A0", b"%ED%A0%80", b'"%80"'])
def test_what_is_no_utf8_once_decoded_is_refused(
    gateway: RunningGateway, publisher: FakePublisher, sent: bytes
) -> None:
    # 3.1.3.2: "encoded byte sequences which are invalid in UTF-8 MUST be rejected".
    answer = with_subject(gateway, sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_header")
    assert "ce-subject" in answer.json()["detail"]
    assert values(publisher) == []


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


@pytest.mark.parametrize(
    "other",
    [
        {"ce_id": "b-2"},
        {"ce_source": "/other"},
        {"ce_subject": "new"},
        {"content_type": "application/other+json"},
        {"x_partition_key": "k"},
    ],
)
def test_an_idempotency_key_covers_all_that_becomes_the_event(
    gateway: RunningGateway, publisher: FakePublisher, other: dict[str, str]
) -> None:
    name = {"idempotency_key": f"key-{other}"}
    assert post(gateway, b"{}", **CE, **name).status_code == 200
    again = post(gateway, b"{}", **CE, **name, traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
    # A sender's tracer gives each try a span of its own.
    assert again.headers["idempotency-replayed"] == "true"
    changed = post(gateway, b"{}", **(CE | other), **name)
    assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")
    assert len(values(publisher)) == 1


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
    # What was sent is stored byte for byte.
    assert sorted(event.value for event in publisher.stored(TOPIC)) == sorted(WELL)


def test_halves_without_end_are_refused_at_once(gateway: RunningGateway) -> None:
    body = b"[%b]" % b",".join([b'{"says":"%b"}' % (b"\\ud83d" * 10_000)] * 50)
    begun_s = time.monotonic()
    assert post(gateway, body).status_code == 400
    assert time.monotonic() - begun_s < 0.5


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
