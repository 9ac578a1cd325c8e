"""One HTTP exchange over real sockets: whatever the other side does becomes an Attempt."""

import asyncio
import socket
import struct
import threading
import time
from types import SimpleNamespace

import pytest

from delivery.http.connection import REPLY_BYTES_MAX, Connection
from delivery.http.request_builder import RequestBuilder
from delivery.http.sender import Sender
from shared.config.destination import Destination
from shared.proof.last_answer import ANSWER_BYTES_MAX
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from shared.runtime.secret_box import SecretBox
from tests.support.servers.raw_server import raw_server, read_request
from tests.support.servers.scripted_destination import Reply, always, scripted_destination

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def send(url: str, *, timeout_s: float = 5.0, body: bytes = b"[1]") -> Attempt:
    return send_times(url, 1, timeout_s=timeout_s, body=body)[0]


def send_times(
    url: str, times: int, *, timeout_s: float = 5.0, body: bytes = b"[1]"
) -> list[Attempt]:
    async def in_turn() -> list[Attempt]:
        sender = Sender(box=SecretBox([]), allows_private=True)
        to = Destination(stream="demo", name="to", url=url, timeout_s=timeout_s)
        try:
            return [
                await sender.post(to, body, {"content-type": "application/json"})
                for _ in range(times)
            ]
        finally:
            await sender.close()

    return asyncio.run(in_turn())


def failure(attempt: Attempt) -> Failure:
    assert isinstance(attempt, NoResponse), attempt
    return attempt.failure


def test_a_success_is_its_status() -> None:
    with scripted_destination() as destination:
        assert send(destination.url) == Response(200)


@pytest.mark.parametrize("status", [201, 204, 299])
def test_every_2xx_is_a_status_as_well(status: int) -> None:
    with scripted_destination(always(status)) as destination:
        assert send(destination.url) == Response(status)


def test_a_refusal_brings_its_retry_after_and_its_first_words() -> None:
    headers = {"retry-after": "7", "set-cookie": "secret=1"}
    reply = Reply(503, headers, b"we are closed" + b"!" * 5_000)
    with scripted_destination(lambda _, __: reply) as destination:
        attempt = send(destination.url)
    assert isinstance(attempt, Response)
    assert (attempt.status, attempt.retry_after) == (503, "7")
    assert attempt.detail.startswith("we are closed")
    assert len(attempt.detail) == ANSWER_BYTES_MAX
    assert attempt.headers["retry-after"] == "7"
    assert "set-cookie" not in attempt.headers


def test_a_redirect_is_not_followed() -> None:
    with scripted_destination() as elsewhere:
        with scripted_destination(always(302, location=elsewhere.url)) as destination:
            attempt = send(destination.url)
        assert elsewhere.requests == []
    assert isinstance(attempt, Response)
    assert attempt.status == 302


def test_nobody_listening_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert failure(send(f"http://127.0.0.1:{port}/")) is Failure.CONNECT_REFUSED


def test_a_name_that_does_not_exist_is_dns() -> None:
    # RFC 6761 reserves .invalid permanently. If no resolver answers at all, we say that.
    found = failure(send("http://nowhere.invalid/"))
    assert found in {Failure.DNS_FAILED, Failure.RESOLVER_DOWN}


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
        assert time.monotonic() - started_s < 4
        released.set()


def test_a_dripping_head_ends_at_the_deadline_too() -> None:
    """Each byte comes in time; the whole does not. A timeout per read would never expire."""
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
        assert time.monotonic() - started_s < 4
        released.set()


def test_a_body_that_breaks_off_changes_nothing() -> None:
    def half(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this")

    with raw_server(half) as url:
        assert send(url) == Response(200)


def test_an_endless_body_is_read_up_to_the_cap() -> None:
    sent = []

    def pour(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        while True:
            sent.append(connection.send(b"x" * 65_536))

    with raw_server(pour) as url:
        started_s = time.monotonic()
        assert send(url) == Response(200)
        assert time.monotonic() - started_s < 10
    # Socket buffers hold some megabytes; a gigabyte was never read.
    assert sum(sent) < 100 * REPLY_BYTES_MAX * 16


def test_a_connection_is_used_again() -> None:
    connections = []

    def serve_two(connection: socket.socket) -> None:
        connections.append(connection)
        for _ in range(2):
            read_request(connection)
            connection.sendall(OK)

    with raw_server(serve_two) as url:
        assert send_times(url, 2) == [Response(200), Response(200)]
    assert len(connections) == 1


def test_an_idle_connection_does_not_keep_its_last_request() -> None:
    async def rest_of_one(url: str) -> object:
        sender = Sender(box=SecretBox([]), allows_private=True)
        to = Destination(stream="demo", name="to", url=url)
        await sender.post(to, b"x" * 1_000_000, {})
        (waiting,) = sender._builders[to.id]._endpoint._waiting
        assert isinstance(waiting, Connection)
        rest: object = waiting._rest.obj
        await sender.close()
        return rest

    with scripted_destination() as destination:
        assert asyncio.run(rest_of_one(destination.url)) == b""


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with scripted_destination() as destination:
        assert send(destination.url) == Response(200)


def test_a_connection_given_up_while_it_waited_is_replaced() -> None:
    """The server closed an idle connection: that is no failure and makes no duplicate."""
    connections = []

    def serve_one(connection: socket.socket) -> None:
        connections.append(connection)
        read_request(connection)
        connection.sendall(OK)

    async def send_twice(url: str) -> list[Attempt]:
        sender = Sender(box=SecretBox([]), allows_private=True)
        to = Destination(stream="demo", name="to", url=url)
        first = await sender.post(to, b"[1]", {})
        (waiting,) = sender._builders[to.id]._endpoint._waiting
        until_s = time.monotonic() + 5
        # The loop is blocked meanwhile, as between two tasks, and does not see the close.
        while waiting.is_usable and time.monotonic() < until_s:
            time.sleep(0.001)  # noqa: ASYNC251
        second = await sender.post(to, b"[1]", {})
        await sender.close()
        return [first, second]

    with raw_server(serve_one) as url:
        assert asyncio.run(send_twice(url)) == [Response(200), Response(200)]
    assert len(connections) == 2


def test_a_request_lost_with_an_old_connection_is_sent_again_and_says_so() -> None:
    heads = []

    def serve_once_then_drop(connection: socket.socket) -> None:
        heads.append(read_request(connection))
        connection.sendall(OK)
        if len(heads) == 1:
            # The second request arrives, but the connection is closed without an answer.
            heads.append(read_request(connection))

    with raw_server(serve_once_then_drop) as url:
        assert send_times(url, 2) == [Response(200), Response(200, is_resent=True)]
    labels = [b"hifi-maybe-duplicate: 1" in head for head in heads]
    assert labels == [False, False, True]


def test_a_request_that_never_left_is_not_ambiguous() -> None:
    def take_nothing(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.recv(10)

    with raw_server(take_nothing) as url:
        attempt = send(url, body=b"x" * 50_000_000)
    assert failure(attempt) is Failure.RESET_BEFORE_SENT


def test_a_request_that_is_not_taken_ends_at_the_deadline() -> None:
    released = threading.Event()

    def take_nothing(_: socket.socket) -> None:
        released.wait(5)

    with raw_server(take_nothing) as url:
        attempt = send(url, timeout_s=0.3, body=b"x" * 50_000_000)
        released.set()
    assert failure(attempt) is Failure.SEND_TIMEOUT


@pytest.mark.parametrize("fold", [b" ", b"\t", b"   "])
def test_a_folded_header_is_read_with_blanks_in_place_of_the_fold(fold: bytes) -> None:
    """RFC 9112, 5.2: a user agent MUST replace each obs-fold in a response with SP."""

    def answer(connection: socket.socket) -> None:
        fields = b"x-note: a\r\n" + fold + b"b\r\nretry-after:\r\n" + fold + b"7\r\n"
        for _ in range(2):
            read_request(connection)
            connection.sendall(b"HTTP/1.1 503 No\r\n" + fields + b"content-length: 0\r\n\r\n")

    with raw_server(answer) as url:
        told = Response(503, retry_after="7", headers={"retry-after": "7"})
        assert send_times(url, 2) == [told] * 2


@pytest.mark.parametrize(
    "fields",
    [
        b"content-length: 2\r\ncontent-length: 3\r\n",
        b"content-length: 2\r\n 3\r\n",
        b"content-length: x\r\n",
        b"no colon\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 2\r\n",
    ],
)
def test_a_head_that_frames_a_body_in_two_ways_is_still_unreadable(fields: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\nok")

    with raw_server(answer) as url:
        assert failure(send(url)) is Failure.RESPONSE_UNREADABLE


def test_an_answer_may_come_before_the_request_is_through() -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        while connection.recv(1_000_000):
            pass

    with raw_server(refuse) as url:
        assert send(url, body=b"x" * 50_000_000) == Response(413)


def test_what_comes_before_the_answer_is_not_the_answer() -> None:
    def hint(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nretry-after: 5\r\n\r\n" + OK)

    with raw_server(hint) as url:
        assert send(url) == Response(200)


def test_an_endless_head_is_unreadable() -> None:
    def pour(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"x-more: " + b"x" * 8_000 + b"\r\n")

    with raw_server(pour) as url:
        assert failure(send(url)) is Failure.RESPONSE_UNREADABLE


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.0 400 No\r\n\r\nnot like this")

    with raw_server(answer) as url:
        assert send(url) == Response(400, detail="not like this")


def test_a_body_that_never_ends_is_decided_by_its_status() -> None:
    released = threading.Event()

    def stall(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")
        released.wait(5)

    with raw_server(stall) as url:
        assert send(url, timeout_s=1.0) == Response(200)
        released.set()


def test_a_dripping_body_ends_at_the_deadline_with_what_its_head_has_said() -> None:
    released = threading.Event()

    def drip(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not released.wait(0.02):
            connection.sendall(b"x")

    with raw_server(drip) as url:
        started_s = time.monotonic()
        assert send(url, timeout_s=1.0) == Response(200)
        assert 1.0 <= time.monotonic() - started_s < 10
        released.set()


def test_a_peer_that_resets_as_soon_as_it_is_connected_is_a_failure_like_others() -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with raw_server(hang_up) as url:
        attempts = send_times(url, 300)
    failures = {failure(attempt) for attempt in attempts}
    resets = {Failure.UNREACHABLE, Failure.RESET_AFTER_SENT, Failure.RESET_BEFORE_SENT}
    assert failures <= resets | {Failure.CONNECT_REFUSED}


def test_a_fault_of_ours_is_a_value_and_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    lines: list[tuple[str, str]] = []
    log = SimpleNamespace(exception=lambda event, destination: lines.append((event, destination)))
    monkeypatch.setattr(RequestBuilder, "post", fail)
    monkeypatch.setattr("delivery.http.sender.log", log)
    assert send("http://127.0.0.1:9/") == NoResponse(Failure.INTERNAL, "RuntimeError")
    assert lines == [("delivery.exchange_failed", "demo/to")]
