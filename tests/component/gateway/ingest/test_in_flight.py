"""A tenant's unanswered requests take room only for the bytes that have arrived."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

PATH = "/v1/streams/orders/events"
ORIGIN = "https://shop.example"
KEY = new_text(kind="browser", key_id="web", entropy=bytes(20))
HEADERS = {
    "content-type": "application/json",
    "origin": ORIGIN,
    "authorization": f"Bearer {KEY}",
}


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    web = ApiKey(
        "web", (secret_from(KEY, signs=False),), kind="browser", origins=frozenset({ORIGIN})
    )
    configuration = Configuration(streams={"orders": Stream("orders")}, keys={"web": web})
    settings = Settings(auth="keys", body_bytes_max=900_000, in_flight_bytes_max=1_000_000)
    publisher = FakePublisher([stream_topic("orders")])
    with running_gateway(publisher, FixedConfig(configuration), settings) as running:
        yield running


def announce(wire: socket.socket, byte_count: int) -> bytes:
    """Send the head of a request, and return the first line of the answer."""
    lines = [f"POST {PATH} HTTP/1.1", "host: a", *(": ".join(each) for each in HEADERS.items())]
    lines += ["expect: 100-continue", f"content-length: {byte_count}", "\r\n"]
    wire.sendall("\r\n".join(lines).encode())
    return wire.makefile("rb").readline()


def test_what_is_announced_and_does_not_come_takes_no_room(gateway: RunningGateway) -> None:
    with ExitStack() as idle:
        for _ in range(10):
            wire = socket.create_connection(("127.0.0.1", gateway.port), timeout=5)
            # Now the gateway waits for the body.
            assert announce(idle.enter_context(wire), 700_000) == b"HTTP/1.1 100 Continue\r\n"
        response = gateway.client.post(PATH, content=b"[{}]", headers=HEADERS)
    assert response.status_code == 200


def test_a_body_that_there_is_no_room_for_is_refused_before_it_is_sent(
    gateway: RunningGateway,
) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        assert announce(wire, 800_000) == b"HTTP/1.1 429 Too Many Requests\r\n"


def test_a_body_that_outgrows_the_room_is_refused_on_the_way(gateway: RunningGateway) -> None:
    def pieces() -> Iterator[bytes]:
        yield from [b" " * 100_000] * 8

    response = gateway.client.post(PATH, content=pieces(), headers=HEADERS)
    assert response.status_code == 429
    assert response.json()["code"] == "tenant_in_flight"
