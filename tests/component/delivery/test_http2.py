"""HTTP/2 as servers really use it: shared connections, announced ends, refused streams, floods."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from h2.errors import ErrorCodes

from delivery.http.partial_reply import PARTIAL_TYPE
from delivery.http.sender import Sender
from deploy.local.ports import pick_free
from shared.config.destination import Destination
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from shared.runtime.secret_box import SecretBox
from tests.support.servers.authority import Authority
from tests.support.servers.foreign import running
from tests.support.servers.scripted_https import (
    Behaviour,
    HttpsServer,
    ServedHttp2,
    scripted_https,
)
from tests.support.suite.programs import program


def at_once(url: str, *counts: int, **settings: Any) -> list[Attempt]:
    """Send the given numbers of requests: those of one number at once."""
    event_count = settings.pop("event_count", 1)
    to = Destination(stream="demo", name="to", url=url, **({"http2": True} | settings))

    async def send() -> list[Attempt]:
        sender = Sender(box=SecretBox([]), allows_private=True)
        try:
            return [
                attempt
                for count in counts
                for attempt in await asyncio.gather(
                    *(sender.post(to, b"[1]", {}, event_count=event_count) for _ in range(count))
                )
            ]
        finally:
            await sender.close()

    return asyncio.run(send())


@contextmanager
def serving(authority: Authority, behave: Behaviour) -> Iterator[HttpsServer]:
    with scripted_https(authority.sign("server"), behave, offers=("h2",)) as server:
        yield server


def test_requests_share_a_connection(authority: Authority) -> None:
    def take(exchange: ServedHttp2) -> None:
        exchange.read()
        exchange.answer(200)

    with serving(authority, take) as server:
        assert at_once(server.url, 1, 50) == [Response(200)] * 51
    assert len(server.protocols) == 1


def test_a_connection_gets_no_more_streams_than_its_server_allows(authority: Authority) -> None:
    def take(exchange: ServedHttp2) -> None:
        exchange.read()
        exchange.answer(200)

    # The server's parser ends a connection with too many streams.
    certificate = authority.sign("server")
    with scripted_https(certificate, take, offers=("h2",), streams_max=3) as server:
        assert at_once(server.url, 1, 12) == [Response(200)] * 13
    assert len(server.protocols) > 1


def test_a_server_without_http2_gets_http1(authority: Authority) -> None:
    certificate = authority.sign("server")

    def take(exchange: ServedHttp2) -> None:
        exchange.read()
        exchange.answer(200)

    with scripted_https(certificate, take, offers=("http/1.1",)) as server:
        assert at_once(server.url, 1, 1) == [Response(200)] * 2
    assert server.protocols == ["http/1.1"]


def test_only_destinations_that_ask_for_it_get_http2(authority: Authority) -> None:
    def take(exchange: ServedHttp2) -> None:
        exchange.read()
        exchange.answer(200)

    async def both(url: str) -> list[Attempt]:
        sender = Sender(box=SecretBox([]), allows_private=True)
        names = {"new": True, "old": False, "newer": True}
        try:
            return [
                await sender.post(Destination("demo", name, url, http2=http2), b"[1]", {})
                for name, http2 in names.items()
            ]
        finally:
            await sender.close()

    with scripted_https(authority.sign("server"), take, offers=("h2", "http/1.1")) as server:
        assert asyncio.run(both(server.url)) == [Response(200)] * 3
    assert server.protocols == ["h2", "http/1.1", "h2"]


def test_an_announced_end_fails_no_request(authority: Authority) -> None:
    """The server takes the streams up to the one that it names; the others go elsewhere."""
    labels = []
    connections = []

    def take(exchange: ServedHttp2) -> None:
        exchange.read()
        labels.append("hifi-maybe-duplicate" in exchange.headers)
        connections.append(exchange.connection)
        if exchange.connection is not connections[0]:
            exchange.answer(201)
            return
        if exchange.stream == 3:
            # It takes one more stream.
            exchange.say_goodbye(last_stream=5)
            time.sleep(0.1)
        exchange.answer(200)
        if exchange.stream == 5:
            exchange.close()

    with serving(authority, take) as server:
        attempts = at_once(server.url, 1, 6)
    assert sorted(attempt.status for attempt in attempts if isinstance(attempt, Response)) == (
        [200] * 3 + [201] * 4
    )
    assert labels == [False] * 7
    assert len(server.protocols) > 1


def test_a_refused_stream_is_sent_again_without_a_label(authority: Authority) -> None:
    labels = []

    def take(exchange: ServedHttp2) -> None:
        exchange.read()
        labels.append("hifi-maybe-duplicate" in exchange.headers)
        if len(labels) == 2:
            exchange.refuse(ErrorCodes.REFUSED_STREAM)
        else:
            exchange.answer(200)

    with serving(authority, take) as server:
        assert at_once(server.url, 1, 1) == [Response(200), Response(200)]
    assert labels == [False] * 3


def test_a_reset_stream_may_have_been_delivered_and_others_go_on(authority: Authority) -> None:
    seen = []

    def take(exchange: ServedHttp2) -> None:
        exchange.read()
        seen.append(exchange.stream)
        if len(seen) == 2:
            exchange.refuse(ErrorCodes.INTERNAL_ERROR)
        else:
            exchange.answer(200)

    with serving(authority, take) as server:
        attempts = at_once(server.url, 1, 3)
    failed = [each for each in attempts if isinstance(each, NoResponse)]
    assert [each.failure for each in failed] == [Failure.RESET_AFTER_SENT]
    assert attempts.count(Response(200)) == 3
    assert len(server.protocols) == 1


def test_a_server_that_speaks_nonsense_is_unreadable(authority: Authority) -> None:
    def gibber(exchange: ServedHttp2) -> None:
        exchange.read()
        exchange.connection.sendall(b"\xff" * 1_000)

    with serving(authority, gibber) as server:
        (attempt,) = at_once(server.url, 1)
    assert isinstance(attempt, NoResponse)
    assert attempt.failure is Failure.RESPONSE_UNREADABLE


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\0\0\x08\x06\0\0\0\0\0" + b"12345678", id="ping"),
        pytest.param(b"\0\0\x04\x08\0\0\0\0\0" + b"\0\0\0\x01", id="window-update"),
        pytest.param(b"\0\0\0\x04\0\0\0\0\0", id="settings"),
    ],
)
def test_a_flood_of_frames_is_ended(authority: Authority, frame: bytes) -> None:
    """Each costs the worker time, and some an answer that nobody reads."""
    sent = [0]

    def flood(exchange: ServedHttp2) -> None:
        exchange.read()
        while True:
            exchange.connection.sendall(frame * 1_000)
            sent[0] += 1_000

    with serving(authority, flood) as server:
        (attempt,) = at_once(server.url, 1, timeout_s=30.0)
    assert attempt == NoResponse(
        Failure.RESPONSE_UNREADABLE, "not HTTP/2: more frames than an answer needs"
    )
    # The socket's buffers hold some megabytes.
    assert sent[0] * len(frame) < 20_000_000


def test_a_long_report_is_read_whole(authority: Authority) -> None:
    report = json.dumps({"failed": [{"index": 1, "status": 503, "why": "x" * 300_000}]}).encode()

    def tell(exchange: ServedHttp2) -> None:
        exchange.read()
        exchange.answer(207, report, content_type=PARTIAL_TYPE)

    with serving(authority, tell) as server:
        (attempt,) = at_once(server.url, 1, event_count=500)
    assert isinstance(attempt, Response)
    assert (attempt.status, attempt.is_report, attempt.report) == (207, True, report)


def test_nghttpd_takes_requests(authority: Authority, tmp_path: Path) -> None:
    nghttpd = program("nghttpd")
    certificate, key = map(str, authority.sign("server"))
    (port,) = pick_free(1)
    words = (nghttpd, "--echo-upload", f"--htdocs={tmp_path}", str(port), key, certificate)
    with running(*words, port=port):
        url = f"https://127.0.0.1:{port}/"
        assert at_once(url, 20, 200) == [Response(200)] * 220


def test_nginx_ends_connections_again_and_again_and_fails_no_request(
    authority: Authority, tmp_path: Path
) -> None:
    """It announces an end with GOAWAY after each ten requests of a connection."""
    nginx = program("nginx")
    certificate, key = authority.sign("server")
    (port,) = pick_free(1)
    log = tmp_path / "requests"
    (tmp_path / "nginx.conf").write_text(
        f"""
        daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/errors;
        events {{}}
        http {{
          log_format labels "$server_protocol $http_hifi_maybe_duplicate";
          access_log {log} labels;
          client_body_temp_path {tmp_path}/bodies; proxy_temp_path {tmp_path}/proxied;
          fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
          keepalive_requests 10;
          server {{
            listen 127.0.0.1:{port} ssl http2;
            ssl_certificate {certificate}; ssl_certificate_key {key};
            location / {{ return 200 "ok"; }}
          }}
        }}
        """
    )
    with running(nginx, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), port=port):
        url = f"https://127.0.0.1:{port}/"
        assert at_once(url, *[8] * 40) == [Response(200)] * 320
    # None was sent twice.
    assert log.read_text().splitlines() == ["HTTP/2.0 -"] * 320
