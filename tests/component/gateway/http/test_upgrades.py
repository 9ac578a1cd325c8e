"""Clients that offer an upgrade are served HTTP/1.1, and their bodies are read as usual."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from shared.event.topics import stream_topic
from tests.support.deploy.java_sources import java_program
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway
from tests.support.suite.programs import program

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
OFFER = (
    "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
)
TWO = b'{"id":"a"}\n{"id":"b"}\n'
# With default settings this client offers HTTP/2 in its first request.
SEND_TWICE = r"""
import java.net.URI;
import java.net.http.*;

class Send {
    public static void main(String[] args) throws Exception {
        var body = HttpRequest.BodyPublishers.ofString("{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
        var request = HttpRequest.newBuilder(URI.create(args[0]))
            .header("content-type", "application/x-ndjson").POST(body).build();
        var client = HttpClient.newHttpClient();
        for (int time = 0; time < 2; time++) {
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode());
        }
    }
}
"""


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config_with("orders")) as running:
        yield running


def request(body: bytes = TWO, *, is_chunked: bool = False, more: str = "") -> bytes:
    """Return a POST of NDJSON that offers HTTP/2."""
    head = f"POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/x-ndjson\r\n{more}{OFFER}"
    if not is_chunked:
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    pieces = [body[:3], body[3:]]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return f"{head}transfer-encoding: chunked\r\n\r\n".encode() + framed + b"0\r\n\r\n"


def exchange(port: int, pieces: list[bytes], *, answer_count: int = 1) -> list[tuple[int, bytes]]:
    """Send each piece in its own segment, and return the status and body of each answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            wire.sendall(piece)
        answers = wire.makefile("rb")
        return [_answer(answers) for _ in range(answer_count)]


def _answer(answers: BinaryIO) -> tuple[int, bytes]:
    status = int(answers.readline().split()[1])
    length = 0
    while (line := answers.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, answers.read(length)


def ids(publisher: FakePublisher) -> list[str]:
    return sorted(event.id for event in publisher.stored(TOPIC))


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("cut", ["whole", "head and body", "bytes"])
def test_the_body_behind_an_offer_is_read(
    gateway: RunningGateway, publisher: FakePublisher, cut: str, *, is_chunked: bool
) -> None:
    whole = request(is_chunked=is_chunked)
    end = whole.index(b"\r\n\r\n") + 4
    pieces = {
        "whole": [whole],
        "head and body": [whole[:end], whole[end:]],
        "bytes": [whole[at : at + 1] for at in range(len(whole))],
    }[cut]
    ((status, body),) = exchange(gateway.port, pieces)
    assert (status, json.loads(body)["accepted"]) == (200, 2)
    assert ids(publisher) == ["a", "b"]


def test_what_follows_on_the_connection_is_served_as_ever(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    requests = [request(b'{"id":"e%d"}\n' % number, is_chunked=number == 1) for number in range(3)]
    plain = b"GET /v1/streams/orders HTTP/1.1\r\nhost: g\r\n\r\n"
    answers = exchange(gateway.port, [b"".join([*requests, plain])], answer_count=4)
    assert [status for status, _ in answers] == [200, 200, 200, 200]
    assert ids(publisher) == ["e0", "e1", "e2"]
    assert json.loads(answers[3][1])["name"] == "orders"


@pytest.mark.parametrize("body", [b"", TWO])
def test_an_offer_without_a_body_is_answered(gateway: RunningGateway, body: bytes) -> None:
    head = f"GET /v1/streams/orders HTTP/1.1\r\nhost: g\r\n{OFFER}"
    length = f"content-length: {len(body)}\r\n" if body else ""
    ((status, answer),) = exchange(gateway.port, [f"{head}{length}\r\n".encode() + body])
    assert (status, json.loads(answer)["name"]) == (200, "orders")


def test_a_websocket_is_declined_and_its_body_read(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    offer = request().replace(b"upgrade: h2c", b"upgrade: websocket")
    assert exchange(gateway.port, [offer])[0][0] == 200
    assert ids(publisher) == ["a", "b"]


def test_a_body_that_ends_early_is_no_success(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    whole = request(more="prefer: return=minimal\r\n")
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        wire.sendall(whole[:-5])
        wire.shutdown(socket.SHUT_WR)
        assert b" 20" not in wire.recv(1_000)[:20]
    assert ids(publisher) == []


def test_a_body_that_offers_and_is_no_http_is_refused(gateway: RunningGateway) -> None:
    broken = request(is_chunked=True).replace(b"3\r\n", b"nonsense\r\n")
    ((status, body),) = exchange(gateway.port, [broken])
    assert (status, json.loads(body)["code"]) == (400, "invalid_http")


def test_head_is_answered_on_a_connection_that_stays_open(gateway: RunningGateway) -> None:
    head = b"HEAD /v1/streams/orders HTTP/1.1\r\nhost: g\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        for _ in range(2):
            wire.sendall(head)
            answer = wire.recv(4_096)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"\r\n\r\n")


def test_curl_offers_http2_and_its_events_arrive(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    command = [program("curl"), "-sS", "--http2", f"{gateway.url}{PATH}", "--data-binary", "@-"]
    ran = subprocess.run(
        [*command, "-H", "content-type: application/x-ndjson"],
        input=TWO,
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert json.loads(ran.stdout)["accepted"] == 2
    assert ids(publisher) == ["a", "b"]


def test_the_jdks_client_offers_http2_and_its_events_arrive(
    gateway: RunningGateway, publisher: FakePublisher, tmp_path: Path
) -> None:
    source = tmp_path / "Send.java"
    source.write_text(SEND_TWICE)
    ran = subprocess.run(
        [*java_program(source, tmp_path), f"{gateway.url}{PATH}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout.split() == ["200", "200"]
    assert ids(publisher) == ["a", "a", "b", "b"]
