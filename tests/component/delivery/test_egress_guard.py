"""Requests go to checked addresses only, and over TLS to trusted servers only."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from delivery.http.sender import Sender
from shared.config.addresses import Address
from shared.config.credentials import ClientCertificate, OAuth2
from shared.config.destination import Destination
from shared.retry.attempt import Failure, NoResponse, Response
from tests.support.delivery.egress_sends import BOX, a_destination, answering, failure, seal, send
from tests.support.servers.authority import Authority
from tests.support.servers.scripted_destination import (
    always,
    scripted_destination,
)

# TLS


class TlsDestination:
    def __init__(self, context: ssl.SSLContext) -> None:
        self.clients: list[str] = []
        self.connections: list[object] = []
        clients, connections = self.clients, self.connections

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                connections.append(self.client_address)
                super().setup()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                assert isinstance(self.connection, ssl.SSLSocket)
                subject: Any = (self.connection.getpeercert() or {}).get("subject", ())
                clients.extend(pair[0][1] for pair in subject)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Ignore it: a client that does not trust the server ends the handshake."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self.server.server_address[1]


@pytest.fixture
def tls_destination(authority: Authority) -> Iterator[TlsDestination]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_OPTIONAL
    destination = TlsDestination(context)
    thread = threading.Thread(target=destination.server.serve_forever, args=(0.05,))
    thread.start()
    yield destination
    destination.server.shutdown()
    destination.server.server_close()
    thread.join(5)


def test_a_certificate_is_checked_against_the_name(tls_destination: TlsDestination) -> None:
    look_up = answering("127.0.0.1")
    right = a_destination(f"https://shop.example:{tls_destination.port}/")
    assert send(right, times=3, look_up=look_up) == [Response(200)] * 3
    # A handshake costs more than a request, so three requests share one.
    assert len(tls_destination.connections) == 1
    wrong = a_destination(f"https://other.example:{tls_destination.port}/")
    assert failure(send(wrong, look_up=look_up)) is Failure.TLS_FAILED


def test_a_certificate_of_nobody_is_not_trusted(
    tls_destination: TlsDestination, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(other).file))
    to = a_destination(f"https://127.0.0.1:{tls_destination.port}/")
    assert failure(send(to)) is Failure.TLS_FAILED


def test_a_client_certificate_says_who_we_are(
    tls_destination: TlsDestination, authority: Authority
) -> None:
    certificate, key = authority.sign("hifi-sender")
    to = a_destination(
        f"https://127.0.0.1:{tls_destination.port}/",
        client_certificate=ClientCertificate(certificate.read_text(), seal(key.read_text())),
    )
    assert send(to) == [Response(200)]
    assert tls_destination.clients == ["hifi-sender"]
    _, others_key = authority.sign("other")
    wrong = replace(
        to,
        client_certificate=ClientCertificate(certificate.read_text(), seal(others_key.read_text())),
    )
    assert failure(send(wrong)) is Failure.REQUEST_UNBUILDABLE


# Where a request may go


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "localhost"],
)
def test_no_spelling_of_a_private_address_is_sent_to(host: str) -> None:
    with scripted_destination() as destination:
        url = destination.url.replace("127.0.0.1", host)
        attempts = send(a_destination(url), allows_private=False)
        assert destination.requests == []
    assert attempts == [NoResponse(Failure.POLICY_BLOCKED)]


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "0xa9fea9fe", "metadata.google.internal", "[fd00:ec2::254]"],
)
def test_metadata_is_never_asked_whatever_is_allowed(host: str) -> None:
    to = a_destination(f"http://{host}/latest/meta-data/")
    assert send(to, allows_private=True) == [NoResponse(Failure.POLICY_BLOCKED)]


def test_every_answer_of_the_resolver_is_judged() -> None:
    with scripted_destination() as destination:
        url = destination.url.replace("127.0.0.1", "rebind.example")
        for answers in (["127.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "1.1.1.1"]):
            attempts = send(a_destination(url), allows_private=False, look_up=answering(*answers))
            assert attempts == [NoResponse(Failure.POLICY_BLOCKED)]
        assert destination.requests == []


def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    asked: list[str] = []

    def rebind(host: str) -> Sequence[Address]:
        """Answer the first question truly, and later ones with a forbidden address."""
        asked.append(host)
        return [ip_address("127.0.0.1" if len(asked) == 1 else "127.0.0.99")]

    with scripted_destination() as destination:
        url = destination.url.replace("127.0.0.1", "rebind.example")
        assert send(a_destination(url), look_up=rebind) == [Response(200)]
        (request,) = destination.requests
    assert asked == ["rebind.example"]
    assert request.headers["host"].startswith("rebind.example:")


def test_a_redirect_into_our_network_is_not_followed() -> None:
    with scripted_destination() as inside:
        with scripted_destination(always(307, location=inside.url)) as destination:
            (attempt,) = send(a_destination(destination.url))
        assert inside.requests == []
    assert isinstance(attempt, Response)
    assert attempt.status == 307


def test_a_token_service_is_judged_as_well() -> None:
    with scripted_destination() as inside, scripted_destination() as destination:
        url = destination.url.replace("127.0.0.1", "shop.example")
        to = a_destination(url, auth=OAuth2("http://169.254.169.254/token", "me", seal("s")))
        attempts = send(to, look_up=answering("127.0.0.1"))
        assert failure(attempts) is Failure.TOKEN_UNAVAILABLE
        assert (inside.requests, destination.requests) == ([], [])


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    with scripted_destination() as destination:
        url = destination.url.replace("127.0.0.1", "two.example")
        look_up = answering("127.0.0.2", "127.0.0.1")
        assert send(a_destination(url), look_up=look_up) == [Response(200)]


def test_no_resolver_is_our_fault_and_no_such_name_is_theirs() -> None:
    def down(_: str) -> Sequence[Address]:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    def unknown(_: str) -> Sequence[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    to = a_destination("http://shop.example/")
    assert failure(send(to, look_up=down)) is Failure.RESOLVER_DOWN
    assert failure(send(to, look_up=unknown)) is Failure.DNS_FAILED


def test_settings_that_change_are_used_at_once() -> None:
    async def change(first: Destination, second: Destination) -> None:
        sender = Sender(allows_private=True, box=BOX)
        for to in (first, second):
            assert await sender.post(to, b"[1]", {}) == Response(200)
        await sender.close()

    with scripted_destination() as one, scripted_destination() as other:
        to = a_destination(one.url)
        asyncio.run(change(to, replace(to, url=other.url, headers={"x-new": "1"})))
        assert [len(one.requests), len(other.requests)] == [1, 1]
        assert other.requests[0].headers["x-new"] == "1"
