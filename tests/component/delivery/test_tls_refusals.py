"""Refused certificates: we refuse servers' with a wrong name; servers refuse ours by an alert."""

import asyncio
import select
import socket
import ssl
import struct
import threading
from pathlib import Path

import pytest

from delivery.http.connection import Connection, ExchangeError, ReplyLimits
from shared.config.credentials import ClientCertificate
from shared.retry.attempt import Attempt, Failure, NoResponse, classify
from tests.support.delivery.egress_sends import a_destination, answering, seal, send
from tests.support.servers.authority import Authority
from tests.support.servers.raw_server import raw_server


def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def refuse(connection: socket.socket, context: ssl.SSLContext) -> None:
    """Run a handshake, send an alert when it fails, and read all that comes after it.

    A server that closes at once with something unread resets the connection; its alert may be lost.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            connection.sendall(outgoing.read())
            received = connection.recv(65_536)
            if not received:
                return
            incoming.write(received)
            continue
        except ssl.SSLError:
            connection.sendall(outgoing.read())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
        return


def test_a_common_name_is_no_name(authority: Authority) -> None:
    """RFC 9110, 4.3.4: "A reference identity of type CN-ID MUST NOT be used by clients."."""
    context = server_context(authority.sign("shop.example", has_names=False))
    with raw_server(lambda connection: refuse(connection, context)) as url:
        to = a_destination(url.replace("http://127.0.0.1", "https://shop.example"))
        (attempt,) = send(to, look_up=answering("127.0.0.1"))
    assert isinstance(attempt, NoResponse)
    assert attempt.failure is Failure.TLS_FAILED
    assert "not valid for 'shop.example'" in attempt.detail


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_does_not_take_our_certificate_is_told_apart(
    authority: Authority, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    certificate, key = Authority(elsewhere).sign("stranger")
    attempt = ask_of_a_server_that_asks(
        authority,
        version,
        client_certificate=ClientCertificate(certificate.read_text(), seal(key.read_text())),
    )
    assert attempt == NoResponse(
        Failure.CLIENT_CERTIFICATE_REFUSED,
        "the destination refuses our client certificate: unknown ca",
    )


def test_a_client_certificate_that_is_missing_is_asked_for_in_words(authority: Authority) -> None:
    """RFC 8446, 4.4.2.4: a server that gets none may abort with `certificate_required`."""
    attempt = ask_of_a_server_that_asks(authority, ssl.TLSVersion.TLSv1_3)
    assert attempt == NoResponse(
        Failure.CLIENT_CERTIFICATE_REFUSED,
        "the destination asks for a client certificate: set client_certificate",
    )
    verdict = classify(attempt)
    # The handshake failed, so nobody has read the request.
    assert not verdict.is_ambiguous
    assert verdict.is_config_fault


def ask_of_a_server_that_asks(
    authority: Authority, version: ssl.TLSVersion, **settings: ClientCertificate
) -> Attempt:
    context = server_context(authority.sign("server"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = version
    with raw_server(lambda connection: refuse(connection, context)) as url:
        (attempt,) = send(a_destination(url.replace("http:", "https:"), **settings))
    return attempt


class WatchedSender(Connection):
    def __init__(self) -> None:
        super().__init__()
        self.is_lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_lost.set()


@pytest.mark.parametrize("sees", ["a goodbye", "nothing yet"])
def test_a_connection_lost_before_the_request_has_sent_nothing(sees: str) -> None:
    """A server may refuse our certificate by closing with our handshake unread."""

    is_connected = threading.Event()

    def reset(connection: socket.socket) -> None:
        is_connected.wait(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def ask(url: str) -> None:
        loop = asyncio.get_running_loop()
        port = int(url.rpartition(":")[2].strip("/"))
        transport, connection = await loop.create_connection(WatchedSender, "127.0.0.1", port)
        is_connected.set()
        poller = select.poll()
        poller.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        # The loop is blocked meanwhile, so only the kernel knows of the close.
        assert poller.poll(10_000)
        if sees == "a goodbye":
            await connection.is_lost.wait()
        await connection.exchange(b"POST / HTTP/1.1\r\n\r\n", ReplyLimits(loop.time() + 20))

    with raw_server(reset) as url, pytest.raises(ExchangeError) as lost:
        asyncio.run(asyncio.wait_for(ask(url), 10))
    assert lost.value.failure is Failure.RESET_BEFORE_SENT
