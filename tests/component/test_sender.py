"""One HTTP exchange over real sockets: whatever the other side does becomes an Attempt."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from delivery.sender import EXCERPT_CHARS_MAX, RESPONSE_BYTES_MAX, Sender
from shared.attempt import Attempt, Failed, Failure, Responded
from shared.destination import Destination
from tests.scripted_destination import Reply, always, scripted_destination

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@contextmanager
def raw_server(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request and then does with the connection what it is told."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    behave(connection)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        # A blocked accept is woken only by a shutdown, not by a close.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def send(url: str, *, timeout_s: float = 5.0) -> Attempt:
    async def once() -> Attempt:
        sender = Sender()
        to = Destination(stream="demo", name="to", url=url, timeout_s=timeout_s)
        try:
            return await sender.send(to, b"[1]", {"content-type": "application/json"})
        finally:
            await sender.close()

    return asyncio.run(once())


def failure(attempt: Attempt) -> Failure:
    assert isinstance(attempt, Failed), attempt
    return attempt.failure


def read_request(connection: socket.socket) -> None:
    received = b""
    while not received.endswith(b"[1]"):
        received += connection.recv(65_536)


def test_a_success_is_its_status() -> None:
    with scripted_destination() as destination:
        assert send(destination.url) == Responded(200)


@pytest.mark.parametrize("status", [201, 204, 299])
def test_every_2xx_is_a_status_as_well(status: int) -> None:
    with scripted_destination(always(status)) as destination:
        assert send(destination.url) == Responded(status)


def test_a_refusal_brings_its_retry_after_and_its_first_words() -> None:
    reply = Reply(503, {"retry-after": "7"}, b"we are closed" + b"!" * 1_000)
    with scripted_destination(lambda _, __: reply) as destination:
        attempt = send(destination.url)
    assert isinstance(attempt, Responded)
    assert (attempt.status, attempt.retry_after) == (503, "7")
    assert attempt.excerpt.startswith("we are closed")
    assert len(attempt.excerpt) == EXCERPT_CHARS_MAX


def test_a_redirect_is_not_followed() -> None:
    with scripted_destination() as elsewhere:
        with scripted_destination(always(302, location=elsewhere.url)) as destination:
            attempt = send(destination.url)
        assert elsewhere.requests == []
    assert isinstance(attempt, Responded)
    assert attempt.status == 302


def test_nobody_listening_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert failure(send(f"http://127.0.0.1:{port}/")) is Failure.CONNECT_REFUSED


def test_a_name_that_does_not_exist_is_dns() -> None:
    # RFC 6761 keeps .invalid free for ever, so no network is asked for long.
    assert failure(send("http://nowhere.invalid/")) is Failure.DNS_FAILED


def test_a_server_without_tls_is_tls_failed() -> None:
    with raw_server(lambda connection: connection.sendall(b"HTTP/1.1 400 what\r\n\r\n")) as url:
        assert failure(send(url.replace("http:", "https:"))) is Failure.TLS_FAILED


def test_a_connection_cut_after_the_request_is_ambiguous_to_the_core() -> None:
    with raw_server(read_request) as url:
        assert failure(send(url)) is Failure.RESET_AFTER_SENT


def test_an_answer_that_is_not_http_is_unreadable() -> None:
    def gibber(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"220 mail.example ESMTP\r\n\r\n")

    with raw_server(gibber) as url:
        assert failure(send(url)) is Failure.RESPONSE_UNREADABLE


def test_silence_ends_at_the_deadline() -> None:
    released = threading.Event()

    def be_silent(connection: socket.socket) -> None:
        read_request(connection)
        released.wait(5)

    with raw_server(be_silent) as url:
        started_s = time.monotonic()
        assert failure(send(url, timeout_s=0.2)) is Failure.READ_TIMEOUT
        assert time.monotonic() - started_s < 2
        released.set()


def test_a_dripping_head_ends_at_the_deadline_too() -> None:
    """Each byte comes in time; the whole does not. A timeout per read would wait for ever."""
    released = threading.Event()

    def drip(connection: socket.socket) -> None:
        read_request(connection)
        for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"a" * 500:
            connection.sendall(bytes([byte]))
            if released.wait(0.02):
                return

    with raw_server(drip) as url:
        started_s = time.monotonic()
        assert failure(send(url, timeout_s=0.3)) is Failure.READ_TIMEOUT
        assert time.monotonic() - started_s < 2
        released.set()


def test_a_body_that_breaks_off_changes_nothing() -> None:
    def half(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this")

    with raw_server(half) as url:
        assert send(url) == Responded(200)


def test_an_endless_body_is_read_up_to_the_cap() -> None:
    sent = []

    def pour(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        while True:
            sent.append(connection.send(b"x" * 65_536))

    with raw_server(pour) as url:
        started_s = time.monotonic()
        assert send(url) == Responded(200)
        assert time.monotonic() - started_s < 3
    # Socket buffers hold some megabytes; a gigabyte was never read.
    assert sum(sent) < 100 * RESPONSE_BYTES_MAX * 16


def test_a_connection_is_used_again() -> None:
    connections = []

    def serve_two(connection: socket.socket) -> None:
        connections.append(connection)
        for _ in range(2):
            read_request(connection)
            connection.sendall(OK)

    async def twice(url: str) -> list[Attempt]:
        sender = Sender()
        to = Destination(stream="demo", name="to", url=url)
        try:
            return [await sender.send(to, b"[1]", {}) for _ in range(2)]
        finally:
            await sender.close()

    with raw_server(serve_two) as url:
        assert asyncio.run(twice(url)) == [Responded(200), Responded(200)]
    assert len(connections) == 1


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with scripted_destination() as destination:
        assert send(destination.url) == Responded(200)
