"""One HTTP exchange in all four ways: directly or through Squid, over HTTP/1.1 or HTTP/2.

An Attempt says the same about a destination in each of them.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delivery.http.connection import REPLY_BYTES_MAX
from delivery.http.sender import Sender
from shared.config.credentials import Proxy
from shared.config.destination import Destination
from shared.proof.last_answer import ANSWER_BYTES_MAX
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from shared.runtime.resolver import Resolver
from shared.runtime.secret_box import SecretBox
from tests.support.delivery.egress_sends import answering
from tests.support.servers.authority import Authority
from tests.support.servers.scripted_https import (
    Behaviour,
    HttpsServer,
    ServedExchange,
    scripted_https,
)
from tests.support.servers.squid import Squid, running_squid

LARGE = b"x" * 50_000_000


@dataclass
class Way:
    """How requests reach the destination."""

    settings: dict[str, Any]
    certificate: tuple[Path, Path]
    protocol: str

    @contextmanager
    def server(self, behave: Behaviour) -> Iterator[HttpsServer]:
        """Run a destination, and check afterwards that requests came in the way's protocol."""
        with scripted_https(self.certificate, behave, offers=(self.protocol,)) as server:
            yield server
        assert set(server.protocols) <= {self.protocol}

    def send(self, url: str, times: int = 1, **settings: Any) -> list[Attempt]:
        """Send a request several times, one after the other."""

        async def in_turn(post: Callable[..., Any]) -> list[Attempt]:
            return [await post() for _ in range(times)]

        attempts: list[Attempt] = self.using(url, in_turn, **settings)
        return attempts

    def using(
        self,
        url: str,
        use: Callable[[Callable[..., Any]], Any],
        *,
        body: bytes = b"[1]",
        allows_private: bool = True,
        resolver: Resolver | None = None,
        **settings: Any,
    ) -> Any:
        """Call `use` with a function that sends a request."""
        to = Destination(stream="demo", name="to", url=url, **(self.settings | settings))

        async def run() -> Any:
            sender = Sender(box=SecretBox([]), allows_private=allows_private, resolver=resolver)
            headers = {"content-type": "application/json"}
            try:
                return await use(lambda: sender.post(to, body, headers))
            finally:
                await sender.close()

        return asyncio.run(run())


@pytest.fixture(scope="module")
def squid() -> Iterator[Squid]:
    with running_squid() as squid:
        yield squid


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


WAYS = [
    pytest.param((False, "http/1.1"), id="direct-http1"),
    pytest.param((False, "h2"), id="direct-http2"),
    pytest.param((True, "http/1.1"), id="squid-http1"),
    pytest.param((True, "h2"), id="squid-http2"),
]


@pytest.fixture(params=WAYS)
def way(
    request: pytest.FixtureRequest, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Way:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    has_proxy, protocol = request.param
    settings: dict[str, Any] = {"http2": protocol == "h2"}
    if has_proxy:
        settings["proxy"] = Proxy(request.getfixturevalue("squid").url)
    return Way(settings, authority.sign("server"), protocol)


def failure(attempts: list[Attempt]) -> Failure:
    (attempt,) = attempts
    assert isinstance(attempt, NoResponse), attempt
    return attempt.failure


def ok(exchange: ServedExchange) -> None:
    exchange.read()
    exchange.answer(200, b"ok")


def test_a_request_arrives_whole_and_a_success_is_its_status(way: Way) -> None:
    seen = []

    def take(exchange: ServedExchange) -> None:
        seen.append((exchange.headers["content-type"], exchange.read()))
        exchange.answer(204)

    body = b"[" + b"1," * 300_000 + b"1]"
    with way.server(take) as server:
        assert way.send(server.url, body=body) == [Response(204)]
    assert seen == [("application/json", body)]


def test_a_refusal_brings_its_retry_after_and_its_first_words(way: Way) -> None:
    def refuse(exchange: ServedExchange) -> None:
        exchange.read()
        exchange.answer(503, b"we are closed" + b"!" * 5_000, retry_after="7", set_cookie="a=1")

    with way.server(refuse) as server:
        (attempt,) = way.send(server.url)
    assert isinstance(attempt, Response)
    assert (attempt.status, attempt.retry_after) == (503, "7")
    assert attempt.detail.startswith("we are closed")
    assert len(attempt.detail) == ANSWER_BYTES_MAX
    assert dict(attempt.headers) == {"retry-after": "7"}


def test_a_redirect_is_not_followed(way: Way) -> None:
    requests = []

    def redirect(exchange: ServedExchange) -> None:
        requests.append(exchange.read())
        exchange.answer(302, location="/elsewhere")

    with way.server(redirect) as server:
        (attempt,) = way.send(server.url)
    assert isinstance(attempt, Response)
    assert attempt.status == 302
    assert len(requests) == 1


def test_a_hint_before_the_answer_is_not_the_answer(way: Way) -> None:
    def hint(exchange: ServedExchange) -> None:
        exchange.read()
        exchange.hint()
        exchange.answer(200)

    with way.server(hint) as server:
        assert way.send(server.url) == [Response(200)]


def test_a_connection_is_used_again(way: Way) -> None:
    with way.server(ok) as server:
        assert way.send(server.url, 3) == [Response(200)] * 3
    assert len(server.protocols) == 1


def test_a_connection_closed_while_it_waited_is_replaced_without_a_label(way: Way) -> None:
    labels = []

    def serve_one(exchange: ServedExchange) -> None:
        labels.append("hifi-maybe-duplicate" in exchange.headers)
        ok(exchange)
        exchange.close()

    async def twice(post: Callable[..., Any]) -> list[Attempt]:
        first = await post()
        # The loop is blocked meanwhile, as between two tasks, and does not see the close.
        time.sleep(0.5)  # noqa: ASYNC251
        return [first, await post()]

    with way.server(serve_one) as server:
        assert way.using(server.url, twice) == [Response(200), Response(200)]
    assert labels == [False, False]
    assert len(server.protocols) == 2


def test_a_request_lost_with_an_old_connection_is_sent_again_and_says_so(way: Way) -> None:
    labels = []

    def drop_the_second(exchange: ServedExchange) -> None:
        labels.append("hifi-maybe-duplicate" in exchange.headers)
        if len(labels) == 2:
            exchange.read()
            exchange.close()
        else:
            ok(exchange)

    with way.server(drop_the_second) as server:
        attempts = way.send(server.url, 2)
    assert attempts == [Response(200), Response(200, is_resent=True)]
    assert labels == [False, False, True]


def test_a_connection_cut_after_the_request_may_have_delivered_it(way: Way) -> None:
    def cut(exchange: ServedExchange) -> None:
        exchange.read()
        exchange.close()

    with way.server(cut) as server:
        assert failure(way.send(server.url)) is Failure.RESET_AFTER_SENT


def test_a_connection_cut_within_the_request_has_not_delivered_it(way: Way) -> None:
    with way.server(ServedExchange.reset) as server:
        assert failure(way.send(server.url, body=LARGE)) is Failure.RESET_BEFORE_SENT


def test_silence_ends_at_the_deadline(way: Way) -> None:
    released = threading.Event()

    def be_silent(exchange: ServedExchange) -> None:
        exchange.read()
        released.wait(10)

    with way.server(be_silent) as server:
        began_s = time.monotonic()
        assert failure(way.send(server.url, timeout_s=1.0)) is Failure.READ_TIMEOUT
        assert time.monotonic() - began_s < 8
        released.set()


def test_a_request_that_is_not_taken_ends_at_the_deadline(way: Way) -> None:
    released = threading.Event()
    with way.server(lambda _: released.wait(10)) as server:
        attempts = way.send(server.url, timeout_s=1.0, body=LARGE)
        released.set()
    assert failure(attempts) is Failure.SEND_TIMEOUT


def test_an_answer_may_come_before_the_request_is_through(way: Way) -> None:
    def refuse(exchange: ServedExchange) -> None:
        exchange.answer(413)
        exchange.read()

    with way.server(refuse) as server:
        assert way.send(server.url, body=LARGE) == [Response(413)]


def test_a_success_before_the_request_is_through_is_none(way: Way) -> None:
    def accept(exchange: ServedExchange) -> None:
        exchange.answer(200)
        exchange.read()

    with way.server(accept) as server:
        assert failure(way.send(server.url, body=LARGE)) is Failure.RESPONSE_UNREADABLE


def test_a_body_that_breaks_off_changes_nothing(way: Way) -> None:
    def half(exchange: ServedExchange) -> None:
        exchange.read()
        exchange.begin(200, content_length="1000")
        exchange.part(b"only this")
        exchange.close()

    with way.server(half) as server:
        assert way.send(server.url) == [Response(200)]


def test_a_dripping_body_ends_at_the_deadline_with_its_status(way: Way) -> None:
    released = threading.Event()

    def drip(exchange: ServedExchange) -> None:
        exchange.read()
        exchange.begin(200, content_length="1000")
        while not released.wait(0.02):
            exchange.part(b"x")

    with way.server(drip) as server:
        began_s = time.monotonic()
        assert way.send(server.url, timeout_s=1.0) == [Response(200)]
        assert 1.0 <= time.monotonic() - began_s < 8
        released.set()


def test_an_endless_body_is_read_up_to_the_cap(way: Way) -> None:
    sent = []

    def pour(exchange: ServedExchange) -> None:
        exchange.read()
        exchange.begin(200, content_length="1000000000")
        while True:
            exchange.part(b"x" * 65_536)
            sent.append(65_536)

    with way.server(pour) as server:
        assert way.send(server.url) == [Response(200)]
    # Socket buffers and the proxy hold some megabytes.
    assert sum(sent) < 400 * REPLY_BYTES_MAX


def test_a_server_that_is_not_trusted_gets_no_request(way: Way, tmp_path: Path) -> None:
    requests: list[ServedExchange] = []
    way.certificate = Authority(tmp_path).sign("server")
    with way.server(requests.append) as server:
        assert failure(way.send(server.url)) is Failure.TLS_FAILED
    assert requests == []


@pytest.mark.parametrize(
    ("host", "found", "expected"),
    [
        ("127.0.0.1", (), Failure.POLICY_BLOCKED),
        ("[::ffff:127.0.0.1]", (), Failure.POLICY_BLOCKED),
        ("2130706433", (), Failure.POLICY_BLOCKED),
        ("metadata.google.internal", (), Failure.POLICY_BLOCKED),
        ("shop.example", ("10.0.0.1",), Failure.POLICY_BLOCKED),
        ("shop.example", ("93.184.216.34", "169.254.169.254"), Failure.POLICY_BLOCKED),
    ],
)
def test_no_request_goes_to_a_private_address(
    way: Way, host: str, found: tuple[str, ...], expected: Failure
) -> None:
    requests: list[ServedExchange] = []
    with way.server(requests.append) as server:
        url = f"https://{host}:{server.port}/"
        attempts = way.send(
            url, allows_private=False, resolver=Resolver(answering(*found)), timeout_s=5.0
        )
    assert failure(attempts) is expected
    assert server.protocols == []
