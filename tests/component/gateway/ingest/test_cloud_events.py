"""CloudEvents over real HTTP, in structured, batched and binary mode: how each is stored."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
EVENT = b'{"specversion":"1.0","id":"c-1","source":"/s","type":"t","partitionkey":"p","data":1}'
CE = {"ce_specversion": "1.0", "ce_id": "b-1", "ce_source": "/s", "ce_type": "t"}


@pytest.fixture(scope="module")
def published() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture(scope="module")
def gateway(published: FakePublisher) -> Iterator[RunningGateway]:
    with running_gateway(published, config_with("orders")) as running:
        yield running


@pytest.fixture
def publisher(published: FakePublisher) -> FakePublisher:
    for log in published.logs[TOPIC]:
        log.clear()
    return published


def post(gateway: RunningGateway, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.client.post(
        PATH, content=body, headers={"content-type": "application/json"} | named
    )


def values(publisher: FakePublisher) -> list[bytes]:
    return [event.value for event in publisher.stored(TOPIC)]


def test_a_structured_cloud_event_is_stored_as_it_came(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    assert post(gateway, EVENT, content_type="application/cloudevents+json").status_code == 200
    (event,) = publisher.stored(TOPIC)
    assert (event.id, event.key, event.value) == ("c-1", b"p", EVENT)


NO_CLOUD_EVENTS = [
    # CloudEvents 1.0.2, Required Attributes: present, and not empty.
    ({"id": None}, "/id"),
    ({"source": ""}, "/source"),
    ({"type": 5}, "/type"),
    ({"specversion": "0.3"}, "/specversion"),
    # Optional Attributes: if present, MUST be a non-empty string, or follow their format.
    ({"subject": ""}, "/subject"),
    ({"dataschema": ""}, "/dataschema"),
    ({"datacontenttype": ""}, "/datacontenttype"),
    # "MUST adhere to the format specified in RFC 2046".
    ({"datacontenttype": "json"}, "/datacontenttype"),
    ({"datacontenttype": "application/"}, "/datacontenttype"),
    # "MUST adhere to the format specified in RFC 3339".
    ({"time": "yesterday"}, "/time"),
    ({"time": "2026-02-30T00:00:00Z"}, "/time"),
    ({"time": "2026-01-01T00:00:00"}, "/time"),
    ({"time": 1_700_000_000}, "/time"),
    # Attribute Naming: "MUST consist of lower-case letters ('a' to 'z') or digits".
    ({"traceId": "x"}, "/traceId"),
    ({"trace.id": "x"}, "/trace.id"),
    ({"a/b~c": "x"}, "/a~1b~0c"),
    # JSON format 1.0.2, 3.1: the two "MUST NOT both be present".
    ({"data_base64": "YQ=="}, "/data_base64"),
    ({"data": None, "data_base64": 5}, "/data_base64"),
]


@pytest.mark.parametrize(("wrong", "pointer"), NO_CLOUD_EVENTS)
def test_in_a_batch_one_that_is_no_cloud_event_is_rejected_alone(
    gateway: RunningGateway, publisher: FakePublisher, wrong: dict[str, Any], pointer: str
) -> None:
    members = {**json.loads(EVENT), "data": 1, **wrong}
    given = {name: value for name, value in members.items() if value is not None}
    body = b"[%b,%b,%b]" % (EVENT, json.dumps(given).encode(), EVENT)
    response = post(gateway, body, content_type="application/cloudevents-batch+json")
    assert response.status_code == 207
    assert values(publisher) == [EVENT, EVENT]
    (rejected,) = response.json()["results"]
    assert (rejected["code"], rejected["pointer"]) == ("bad_cloud_event", f"/1{pointer}")


@pytest.mark.parametrize(
    "more",
    [
        {"time": "2026-01-01T00:00:00.123456789+05:30", "datacontenttype": "text/plain;a=b"},
        # RFC 3339, 5.6: the second 60 is a leap second's.
        {"time": "2016-12-31T23:59:60Z"},
        {"subject": "a", "dataschema": "https://a.example/s", "ext1": True, "data": {"Any": 1}},
        # JSON format 1.0.2, 2.2: an attribute that is null is not set.
        {"subject": None, "time": None, "datacontenttype": None, "dataschema": None},
    ],
)
def test_what_the_specification_allows_is_taken(
    gateway: RunningGateway, publisher: FakePublisher, more: dict[str, Any]
) -> None:
    body = json.dumps({**json.loads(EVENT), **more}).encode()
    assert post(gateway, body, content_type="application/cloudevents+json").status_code == 200
    assert values(publisher) == [body]


def test_what_is_no_object_is_rejected_alone(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    body = b"[%b,5]" % EVENT
    response = post(gateway, body, content_type="application/cloudevents-batch+json")
    assert values(publisher) == [EVENT]
    found = [(e["code"], e["pointer"]) for e in response.json()["results"]]
    assert found == [("not_an_object", "/1")]


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
        # A text encoded twice is decoded once; a single percent sign stays.
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
    # then percent-decoded once. Some senders do neither, and write raw UTF-8.
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
    # A sender's tracer gives each attempt its own span, so the headers differ.
    assert again.headers["idempotency-replayed"] == "true"
    changed = post(gateway, b"{}", **(CE | other), **name)
    assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")
    assert len(values(publisher)) == 1
