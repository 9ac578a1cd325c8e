"""The HTTP client of commands and console: one connection, kept while it is usable."""

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

import pytest

from gateway.settings import Settings
from shared.runtime.control_client import ControlClient
from shared.runtime.http_client import HttpClient, NoHttpAnswerError
from shared.runtime.setup_error import NoAnswerError, UsageError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import config_with, running_gateway
from tests.support.servers.authority import Authority

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Name: a\r\n\r\n{}"


@contextmanager
def serving(answer: Callable[[bytes, int], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Start a server, and return its port and the heads of its requests.

    `answer` gets a head and the number of earlier requests on the connection, and returns the
    answer; an empty one closes the connection.
    """
    heads: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                with taken, taken.makefile("rb") as lines:
                    before = 0
                    while head := _head(lines):
                        heads.append(head)
                        if not (says := answer(head, before)):
                            break
                        taken.sendall(says)
                        before += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], heads
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _head(lines: BufferedReader) -> bytes:
    """Read a request and return its head, or nothing at the end; a body must be `{}`."""
    found = b""
    while (line := lines.readline()) not in {b"", b"\r\n"}:
        found += line
    if b"content-length: 2" in found.lower():
        lines.read(2)
    return found


def test_a_connection_is_kept_until_the_server_closes_it() -> None:
    with (
        serving(lambda _, before: OK if before == 0 else b"") as (port, heads),
        HttpClient(f"http://127.0.0.1:{port}/base/", timeout_s=5) as client,
    ):
        first = client.ask("GET", "/v1")
        assert (first.status, first.json(), first.headers["x-name"]) == (200, {}, "a")
        assert heads[0].startswith(b"GET /base/v1 HTTP/1.1\r\n")
        # The server takes the second request without an answer: its result is unknown.
        with pytest.raises(NoHttpAnswerError) as cut:
            client.ask("POST", "/v1", body=b"{}")
        assert not cut.value.is_unsent
        assert client.ask("GET", "/v1").is_success
    assert len(heads) == 3


def test_one_that_was_closed_meanwhile_is_made_anew() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with HttpClient(f"http://127.0.0.1:{port}", timeout_s=5) as client:
            for _ in range(2):
                threading.Timer(0, _answer_once, [listening]).start()
                assert client.ask("POST", body=b"{}").is_success
                # The server has closed the connection, which a read shows.
                connection = client._connection.sock
                assert connection is not None
                assert connection.recv(1, socket.MSG_PEEK) == b""


def _answer_once(listening: socket.socket) -> None:
    taken, _ = listening.accept()
    with taken:
        asked = b""
        # Read all of it: closing a connection with unread bytes resets it.
        while not asked.endswith(b"\r\n\r\n{}"):
            asked += taken.recv(65_536)
        taken.sendall(OK)


def test_nobody_there_is_told_from_no_answer() -> None:
    with HttpClient("http://127.0.0.1:1", timeout_s=5) as client:
        with pytest.raises(NoHttpAnswerError, match="refused") as nobody:
            client.ask("GET", "/")
        assert nobody.value.is_unsent
    with (
        serving(lambda *_: b"SSH-2.0-x\r\n\r\n") as (port, _),
        HttpClient(f"http://127.0.0.1:{port}", timeout_s=5) as client,
        pytest.raises(NoHttpAnswerError, match="SSH"),
    ):
        client.ask("GET", "/")


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "127.0.0.1", "ftp://a", "http://", "http://[::1", "http://a:b"]
)
def test_what_is_no_address_is_one_sentence(url: str) -> None:
    with pytest.raises(UsageError, match="is not an address: write it as http://127") as no:
        ControlClient(url, None).call("GET", "streams")
    assert no.value.exit_code == 2


def test_a_key_that_no_header_can_hold_is_not_shown() -> None:
    with (
        serving(lambda *_: OK) as (port, heads),
        pytest.raises(UsageError, match="A key has a character") as no,
    ):
        ControlClient(f"http://127.0.0.1:{port}", "hifisk_secret\nx").call("GET", "streams")
    assert "secret" not in str(no.value)
    assert heads == []


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, list[bytes]]]:
    """Start a proxy that the environment names."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving(lambda *_: OK) as (port, heads):
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{port}")
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", "kept.invalid")
        yield port, heads


def test_the_proxy_of_the_environment_is_used(named: tuple[int, list[bytes]]) -> None:
    _, heads = named
    with HttpClient("http://hifi.invalid:8080/base", timeout_s=5) as client:
        assert client.ask("GET", "/v1?a=b").is_success
    head = heads[0].lower()
    assert head.startswith(b"get http://hifi.invalid:8080/base/v1?a=b http/1.1\r\n")
    assert b"host: hifi.invalid:8080" in head
    assert b"basic " + base64.b64encode(b"me:p@ss").lower() in head
    with (
        HttpClient("https://hifi.invalid", timeout_s=5) as client,
        pytest.raises(NoHttpAnswerError),
    ):
        # The proxy answers CONNECT, but speaks no TLS after it.
        client.ask("GET", "/v1")
    assert heads[1].startswith(b"CONNECT hifi.invalid:443 HTTP/1.")
    for url in ("http://kept.invalid", "http://127.0.0.1:1"):
        with HttpClient(url, timeout_s=5) as client, pytest.raises(NoHttpAnswerError) as nobody:
            client.ask("GET", "/v1")
        assert nobody.value.is_unsent
    assert not any(b"kept.invalid" in head or b"127.0.0.1:1" in head for head in heads)


def test_a_certificate_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("gateway")
    settings = Settings(auth="off", tls_cert_file=cert, tls_key_file=key)
    with running_gateway(FakePublisher([]), config_with("demo"), settings) as found:
        client = ControlClient(f"https://127.0.0.1:{found.port}", None)
        with pytest.raises(
            NoAnswerError, match=r"not trusted here: .*; name a file .* SSL_CERT_FILE"
        ):
            client.call("GET", "streams")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert client.call("GET", "streams")["streams"] == ["demo"]
