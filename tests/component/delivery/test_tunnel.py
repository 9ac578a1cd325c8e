"""Requests through a proxy: its own failures charge the destination nothing."""

import socket
import threading
from collections.abc import Sequence

import pytest

from shared.config.addresses import Address
from shared.config.credentials import Proxy
from shared.config.destination import Destination
from shared.retry.attempt import Failure, NoResponse, Outcome, Response, classify
from tests.support.delivery.egress_sends import a_destination, answering, failure, seal, send
from tests.support.servers.authority import Authority
from tests.support.servers.raw_server import raw_server
from tests.support.servers.scripted_https import HttpsServer, ServedExchange, scripted_https
from tests.support.servers.squid import running_squid

PUBLIC = "93.184.216.34"
NOWHERE = "https://shop.example/"


def behind(proxy: str, url: str = NOWHERE, **settings: object) -> Destination:
    return a_destination(url, proxy=Proxy(proxy.rstrip("/")), **settings)


def ok(exchange: ServedExchange) -> None:
    exchange.read()
    exchange.answer(200)


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    return head


@pytest.mark.parametrize(
    ("answer", "expected", "detail"),
    [
        (b"HTTP/1.1 407 Sign in\r\n\r\n", Failure.PROXY_FAILED, "proxy.password"),
        (b"HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno", Failure.PROXY_FAILED, "403"),
        (b"HTTP/1.1 500 Oh\r\n\r\n", Failure.PROXY_FAILED, "500"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Failure.PROXY_FAILED, "data"),
        (b"SSH-2.0-x\r\n\r\n", Failure.PROXY_FAILED, "HTTP/1.1"),
        (b"HTTP/1.1 200", Failure.PROXY_FAILED, "closes"),
        (b"", Failure.PROXY_FAILED, "closes"),
        (b"HTTP/1.1 200 " + b"x" * 20_000, Failure.PROXY_FAILED, "bytes"),
        (b"HTTP/1.1 502 Bad\r\n\r\n", Failure.UNREACHABLE, "502"),
        (b"HTTP/1.1 503 Not now\r\n\r\n", Failure.UNREACHABLE, "503"),
        (b"HTTP/1.1 504 Late\r\n\r\n", Failure.UNREACHABLE, "504"),
        # The tunnel is open, and then nobody speaks TLS in it.
        (b"HTTP/1.1 200 OK\r\n\r\n", Failure.TLS_FAILED, ""),
    ],
)
def test_the_answer_of_a_proxy_says_whose_failure_it_is(
    answer: bytes, expected: Failure, detail: str
) -> None:
    def say(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(answer)

    with raw_server(say) as proxy:
        (attempt,) = send(behind(proxy), look_up=answering(PUBLIC))
    assert isinstance(attempt, NoResponse)
    assert (attempt.failure, detail in attempt.detail) == (expected, True), attempt
    is_charged = classify(attempt).outcome is not Outcome.PARK
    assert is_charged == (expected is not Failure.PROXY_FAILED)


def test_a_proxy_that_is_not_there_or_says_nothing_has_failed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (refused,) = send(behind(f"http://127.0.0.1:{port}"), look_up=answering(PUBLIC))
    assert isinstance(refused, NoResponse)
    assert refused.failure is Failure.PROXY_FAILED
    assert "connect_refused" in refused.detail
    released = threading.Event()
    with raw_server(lambda _: released.wait(10)) as proxy:
        to = behind(proxy, connect_timeout_s=0.3)
        (silent,) = send(to, look_up=answering(PUBLIC))
        released.set()
    assert silent == NoResponse(Failure.PROXY_FAILED, "the proxy does not answer CONNECT in time")


def test_the_proxy_gets_the_name_and_the_sign_in() -> None:
    heads = []

    def note(connection: socket.socket) -> None:
        heads.append(read_head(connection))

    with raw_server(note) as proxy:
        access = Proxy(proxy.rstrip("/"), username="me", password=seal("p@ss"))
        send(a_destination("https://shop.example:8443/a", proxy=access), look_up=answering(PUBLIC))
    expected = (
        b"CONNECT shop.example:8443 HTTP/1.1\r\n"
        b"host: shop.example:8443\r\n"
        b"proxy-authorization: Basic bWU6cEBzcw==\r\n\r\n"
    )
    assert heads == [expected]


@pytest.mark.parametrize("found", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "fd00:ec2::254"])
def test_a_private_address_is_refused_behind_a_proxy_too(found: str) -> None:
    def look_up(host: str) -> Sequence[Address]:
        return answering(PUBLIC if host == "proxy.example" else found)(host)

    to = behind("http://proxy.example:3128")
    assert failure(send(to, look_up=look_up, allows_private=False)) is Failure.POLICY_BLOCKED


@pytest.mark.parametrize("found", ["10.0.0.1", "127.0.0.1", "169.254.169.254"])
def test_a_private_proxy_is_refused(found: str) -> None:
    def look_up(host: str) -> Sequence[Address]:
        return answering(found if host == "proxy.example" else PUBLIC)(host)

    to = behind("http://proxy.example:3128")
    assert failure(send(to, look_up=look_up, allows_private=False)) is Failure.POLICY_BLOCKED


def test_a_name_that_only_the_proxy_knows_goes_to_the_proxy() -> None:
    heads = []

    def note(connection: socket.socket) -> None:
        heads.append(read_head(connection))

    def unknown(host: str) -> Sequence[Address]:
        raise socket.gaierror(socket.EAI_NONAME, host)

    with raw_server(note) as proxy:
        send(behind(proxy, "https://inside.example/"), look_up=unknown)
    assert heads[0].startswith(b"CONNECT inside.example:443 ")


def test_squid_asks_for_a_sign_in_and_takes_it(authority: Authority) -> None:
    certificate = authority.sign("server")
    with (
        running_squid(password="s3cret") as squid,
        scripted_https(certificate, ok, offers=("http/1.1",)) as server,
    ):
        right = Proxy(squid.url, username="hifi", password=seal("s3cret"))
        assert send(a_destination(server.url, proxy=right)) == [Response(200)]
        wrong = Proxy(squid.url, username="hifi", password=seal("guess"))
        (attempt,) = send(a_destination(server.url, proxy=wrong))
    assert isinstance(attempt, NoResponse)
    assert (attempt.failure, "407" in attempt.detail) == (Failure.PROXY_FAILED, True)


def test_squids_own_refusal_is_told_from_a_destination_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        away = f"https://127.0.0.1:{server.getsockname()[1]}/"
    with running_squid(allows=False) as squid:
        assert failure(send(behind(squid.url, away))) is Failure.PROXY_FAILED
    with running_squid() as squid:
        assert failure(send(behind(squid.url, away))) is Failure.UNREACHABLE


def test_an_open_tunnel_is_used_again(authority: Authority) -> None:
    tunnels: list[str] = []

    def serve(server: HttpsServer) -> None:
        with running_squid() as squid:
            assert send(behind(squid.url, server.url), times=3) == [Response(200)] * 3
        tunnels.extend(server.protocols)

    with scripted_https(authority.sign("server"), ok, offers=("http/1.1",)) as server:
        serve(server)
    assert tunnels == ["http/1.1"]
