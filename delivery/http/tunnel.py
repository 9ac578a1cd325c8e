"""Reaches a host through an HTTP proxy: CONNECT (RFC 9110, 9.3.6), and TLS within the tunnel.

The proxy's address is judged like a destination's. So is the destination's, if this machine can
resolve its name soon: the proxy may know names that we do not, and it gets the name itself.
A failure of the proxy is not the destination's, so that no attempt is charged for it.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from delivery.http.connection import ExchangeError, ReplyLimits, WireProtocol
from delivery.http.dialer import Dialer, connect_failure, secure
from delivery.http.outgoing_request import header_lines
from delivery.http.target import RequestTarget
from shared.retry.attempt import Failure

_Wire = TypeVar("_Wire", bound=WireProtocol)

# How long to wait for the resolver, which behind a proxy may answer for no outside name.
_LOOK_UP_S = 1.0
_HEAD_BYTES_MAX = 16_384
_HEAD_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_SUCCESSES = range(200, 300)
_SIGN_IN = 407
# Answers that are about the destination: the proxy does not reach it (RFC 9110, 15.6).
_UNREACHED = frozenset({502, 503, 504})
# Failures to reach a proxy that are not the proxy's.
_NOT_THE_PROXYS = frozenset({Failure.POLICY_BLOCKED, Failure.RESOLVER_DOWN, Failure.INTERNAL})


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A way to a host that leads through a proxy."""

    host: Dialer
    proxy: Dialer
    # TLS to the proxy itself.
    proxy_tls: ssl.SSLContext | None
    request: bytes

    async def connect(
        self, make: Callable[[], _Wire], tls: ssl.SSLContext | None, limits: ReplyLimits
    ) -> _Wire:
        """Return the protocol of a new connection, as Dialer does."""
        loop = asyncio.get_running_loop()
        until_s = min(limits.until_s, loop.time() + self.host.connect_timeout_s)
        await self._judge_host(until_s, limits.tenant)
        assert tls is not None, "settings with a proxy have an https address"
        try:
            connecting = await self.proxy.connect(ProxyConnection, self.proxy_tls, limits)
        except ExchangeError as error:
            if error.failure in _NOT_THE_PROXYS:
                raise
            said = f" ({error.detail})" if error.detail else ""
            raise _of_proxy(f"cannot be reached: {error.failure.value}{said}") from error
        try:
            return await self._secured(connecting, make(), tls, until_s)
        except BaseException:
            connecting.transport.abort()
            raise

    async def _judge_host(self, until_s: float, tenant: str) -> None:
        soon_s = asyncio.get_running_loop().time() + _LOOK_UP_S
        try:
            await self.host.addresses(min(until_s, soon_s), tenant)
        except ExchangeError as error:
            # Behind a proxy, a machine often resolves no outside name.
            if error.failure not in {Failure.DNS_FAILED, Failure.RESOLVER_DOWN}:
                raise

    async def _secured(
        self, connecting: "ProxyConnection", made: _Wire, tls: ssl.SSLContext, until_s: float
    ) -> _Wire:
        try:
            async with asyncio.timeout_at(until_s):
                check_answer(await connecting.ask(self.request))
        except TimeoutError as error:
            raise _of_proxy("does not answer CONNECT in time") from error
        if connecting.transport.is_closing():
            raise _of_proxy("closes the tunnel")
        try:
            async with asyncio.timeout_at(until_s):
                await secure(connecting.transport, made, tls, str(self.host.host))
        except TimeoutError as error:
            detail = f"no connection in {self.host.connect_timeout_s} s"
            raise ExchangeError(Failure.CONNECT_TIMEOUT, detail) from error
        except OSError as error:
            raise connect_failure(error, is_secure=True) from error
        return made


def connect_request(target: RequestTarget, headers: Mapping[str, str]) -> bytes:
    """Return the request for a tunnel; `headers` sign in with the proxy."""
    shown = f"[{target.host}]" if ":" in str(target.host) else str(target.host)
    to = f"{shown}:{target.port}"
    return f"CONNECT {to} HTTP/1.1\r\n".encode() + header_lines({"host": to, **headers}) + b"\r\n"


class ProxyConnection(WireProtocol):
    """A connection to a proxy until its tunnel is open."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._received = bytearray()
        self._done: asyncio.Future[bytes] | None = None

    async def ask(self, request: bytes) -> bytes:
        """Send a request; return its answer, as far as it came with the end of its head."""
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        if self.transport.is_closing():
            self._fail("closes the connection")
        return await self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._done is None or self._done.done():
            return
        if _HEAD_END in self._received:
            self._done.set_result(bytes(self._received))
        elif len(self._received) > _HEAD_BYTES_MAX:
            self._fail(f"answers with a head of over {_HEAD_BYTES_MAX} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"closes the connection: {exc}" if exc else "closes the connection")

    def _fail(self, detail: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(_of_proxy(detail))


def check_answer(answer: bytes) -> None:
    """Raise ExchangeError unless a proxy's answer opens the tunnel."""
    head, _, rest = answer.partition(_HEAD_END)
    found = _STATUS_LINE.match(head + b"\r")
    status = int(found[1]) if found else 0
    if status in _UNREACHED:
        detail = f"the proxy answers {status}: it does not reach the destination"
        raise ExchangeError(Failure.UNREACHABLE, detail)
    if status == _SIGN_IN:
        raise _of_proxy("answers 407: check proxy.username and proxy.password")
    if status not in _SUCCESSES:
        raise _of_proxy(f"answers {status} to CONNECT" if found else "does not speak HTTP/1.1")
    if rest:
        # It would be read as the beginning of the destination's answer.
        raise _of_proxy("sends data into the tunnel")


def _of_proxy(detail: str) -> ExchangeError:
    return ExchangeError(Failure.PROXY_FAILED, f"the proxy {detail}")
