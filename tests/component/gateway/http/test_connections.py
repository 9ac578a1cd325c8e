"""Connections that stay open between requests: how long, how many, and how they end."""

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.settings import Settings
from shared.event.topics import stream_topic
from tests.support.deploy.java_sources import java_program
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway
from tests.support.servers.balancer import Backend, balanced
from tests.support.suite.programs import program

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
HEAD = f"POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n"
REQUEST = f'{HEAD}content-length: 12\r\n\r\n[{{"id":"a"}}]'.encode()
# How long the balancers of AWS and nginx keep an idle connection.
BALANCERS_S = 60
ROOM = 20
# Two requests with a pause between them.
JDK = r"""
import java.net.URI;
import java.net.http.*;

class Reuse {
    public static void main(String[] args) throws Exception {
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var request = HttpRequest.newBuilder(URI.create(args[0]))
            .header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString("[{\"id\":\"a\"}]")).build();
        for (int time = 0; time < 2; time++) {
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode());
            Thread.sleep(1_000);
        }
    }
}
"""


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


def gateway_with(publisher: FakePublisher, **more: object) -> Iterator[RunningGateway]:
    settings = Settings.model_validate({"auth": "off", **more})
    with running_gateway(publisher, config_with("orders"), settings) as running:
        yield running


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    yield from gateway_with(publisher)


@pytest.fixture
def small(publisher: FakePublisher) -> Iterator[RunningGateway]:
    yield from gateway_with(publisher, connections_max=ROOM)


def connected(gateway: RunningGateway, *, source: str = "127.0.0.1") -> socket.socket:
    address = ("127.0.0.1", gateway.port)
    return socket.create_connection(address, timeout=10, source_address=(source, 0))


def asked(wire: socket.socket) -> bytes:
    """Send a request and return its answer, which is empty if the connection had ended."""
    try:
        wire.sendall(REQUEST)
        return wire.recv(4_096)
    except ConnectionError:
        return b""


def test_an_idle_connection_outlives_a_balancers_and_no_request_meets_its_end(
    gateway: RunningGateway,
) -> None:
    assert gateway.server.config.timeout_keep_alive > BALANCERS_S


def test_what_is_idle_for_so_long_is_closed(publisher: FakePublisher) -> None:
    for gateway in gateway_with(publisher, keep_alive_s=1):
        with connected(gateway) as wire:
            began_s = time.monotonic()
            assert asked(wire).startswith(b"HTTP/1.1 200")
            assert wire.recv(1) == b""
            assert time.monotonic() - began_s > 0.9


def test_curl_uses_its_connection_again(gateway: RunningGateway) -> None:
    url = f"{gateway.url}{PATH}"
    told = ["-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", "--json", '[{"id":"a"}]']
    ran = subprocess.run(
        [program("curl"), "-sS", "--rate", "60/m", *told, url, "-o", "/dev/null", url],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ran.stdout.splitlines() == ["200 1", "200 0"]


def test_the_jdks_client_uses_its_connection_again(gateway: RunningGateway, tmp_path: Path) -> None:
    source = tmp_path / "Reuse.java"
    source.write_text(JDK)
    backend = Backend(gateway.port)
    with balanced(backend) as balancer:
        wait_until(lambda: backend.is_ready, what="the balancer has looked")
        url = f"http://127.0.0.1:{balancer.port}{PATH}"
        ran = subprocess.run(
            [*java_program(source, tmp_path), url],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert ran.stdout.split() == ["200", "200"]
    assert backend.connections == 1


def test_one_callers_idle_connections_keep_nobody_else_out(small: RunningGateway) -> None:
    other = connected(small, source="127.0.0.2")
    assert asked(other).startswith(b"HTTP/1.1 200")
    # Some have sent a request, some nothing, and some a head that does not end.
    crowd = []
    for number in range(3 * ROOM):
        wire = connected(small)
        if number % 3 == 0:
            assert asked(wire).startswith(b"HTTP/1.1 200")
        elif number % 3 == 1:
            wire.sendall(b"POST /v1")
        crowd.append(wire)
    newcomer = connected(small, source="127.0.0.3")
    assert asked(newcomer).startswith(b"HTTP/1.1 200")
    assert asked(other).startswith(b"HTTP/1.1 200"), "the other's connection was taken"
    assert len(small.connections(id)) <= ROOM
    for wire in (other, newcomer, *crowd):
        wire.close()


def test_nobody_loses_a_request_to_make_room(
    small: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.hold()
    at_work = [connected(small) for _ in range(ROOM)]
    for wire in at_work:
        wire.sendall(REQUEST)
    wait_until(
        lambda: small.connections(lambda one: one.closes_at_s) == [None] * ROOM,
        what="all requests are under way",
    )
    with connected(small) as refused:
        assert refused.recv(1) == b""
    publisher.release()
    for wire in at_work:
        assert wire.recv(4_096).startswith(b"HTTP/1.1 200")
        wire.close()
    assert len(publisher.stored(TOPIC)) == ROOM


def test_who_asks_while_we_end_is_answered_and_told_to_go(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    # RFC 9112, 9.6: a server that sends the close option MUST close after that answer.
    idle, at_work = connected(gateway), connected(gateway)
    assert b"connection: close" not in asked(idle)
    publisher.hold()
    at_work.sendall(REQUEST)
    assert publisher.published.wait(5)
    letting_go = asyncio.run_coroutine_threadsafe(gateway.server.let_go(within_s=10), gateway.loop)
    wait_until(lambda: bool(gateway.server.config.encoded_headers), what="it is ending")
    publisher.release()
    for wire in (at_work, idle, connected(gateway)):
        answer = wire.recv(4_096) if wire is at_work else asked(wire)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer
        assert wire.recv(1) == b""
        wire.close()
    # All connections are gone, so the stop does not wait.
    letting_go.result(timeout=5)
    assert len(publisher.stored(TOPIC)) == 4


def test_a_request_whose_head_is_on_its_way_is_answered_before_we_end(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    wire = connected(gateway)
    wire.sendall(REQUEST[:20])
    wait_until(lambda: any(gateway.connections(lambda one: one._head_bytes)), what="it came")
    asyncio.run_coroutine_threadsafe(gateway.server.let_go(within_s=0), gateway.loop).result(5)
    gateway.server.should_exit = True
    wire.sendall(REQUEST[20:])
    answer = wire.recv(4_096)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    wire.close()
    assert len(publisher.stored(TOPIC)) == 1
