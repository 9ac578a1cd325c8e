"""A gateway that requires no key: only programs that reach it directly may use it.

Requests from web pages, and those that a proxy forwards, are refused: both would let strangers act
as any tenant.
"""

from collections.abc import Iterator

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

PATH = "/v1/streams/orders/events"
OURS = "https://shop.example"
TEXT = new_text(kind="browser", key_id="web", entropy=bytes(20))
# Kinds of requests: send events, send without a preflight, change, act, and read.
DOORS = [
    ("POST", PATH),
    ("POST", "/v1/streams/orders/beacon"),
    ("PUT", "/v1/streams/more"),
    ("POST", "/v1/streams/orders/dead-letters:redrive"),
    ("GET", "/v1/streams"),
]


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([stream_topic("orders")])


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    web = ApiKey(
        "web", (secret_from(TEXT, signs=False),), kind="browser", origins=frozenset({OURS})
    )
    configuration = Configuration(streams={"orders": Stream("orders")}, keys={"web": web})
    settings = Settings(auth="off", hosts="hifi.example, gateway.internal")
    with running_gateway(publisher, FixedConfig(configuration), settings) as running:
        yield running


def call(
    gateway: RunningGateway, method: str, path: str, headers: dict[str, str]
) -> httpx.Response:
    body = b"" if method == "GET" else b"{}"
    given = {"content-type": "text/plain" if "beacon" in path else "application/json"}
    return gateway.client.request(method, path, content=body, headers=given | headers)


@pytest.mark.parametrize(("method", "path"), DOORS)
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"x-forwarded-for": "203.0.113.9"}, 403, "proxied_without_keys"),
        ({"forwarded": "for=203.0.113.9"}, 403, "proxied_without_keys"),
        ({"host": "rebound.example:8080"}, 421, "misdirected"),
        (
            {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
            403,
            "origin_forbidden",
        ),
        ({"origin": "null"}, 403, "origin_forbidden"),
    ],
)
def test_strangers_do_nothing(
    gateway: RunningGateway,
    publisher: FakePublisher,
    *,
    method: str,
    path: str,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    response = call(gateway, method, path, headers)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert not publisher.stored(stream_topic("orders"))
    assert "more" not in gateway.store.config.configuration.streams


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "gateway:8080"},
        {"host": "10.0.0.7"},
        {"host": "HIFI.example"},
        {"host": "gateway.internal:1"},
        {"origin": OURS, "sec-fetch-site": "cross-site"},
        {"host": "localhost:8088", "origin": "http://localhost:8088"},
    ],
)
def test_programs_and_pages_that_are_meant_to_are_served(
    gateway: RunningGateway, headers: dict[str, str]
) -> None:
    for method, path in DOORS[:2]:
        assert call(gateway, method, path, headers).is_success, (method, path)
