"""Chooses the address that a connection goes to; every answer of the resolver is judged first.

We resolve names ourselves and connect to an address that was judged, so that no second look-up can
give another answer (DNS rebinding); TLS and the Host header keep the name. The peer's address is
checked again when connected.
"""

import asyncio
import errno
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from delivery.http.connection import Connection, ExchangeError, Reply, ReplyLimits
from delivery.http.idle import IdleConnections
from shared.config.addresses import Address, host_class, may_send, read_host
from shared.retry.attempt import Failure
from shared.runtime.certificates import refusal_of_ours
from shared.runtime.resolver import (
    NoSuchHostError,
    Resolver,
    ResolverDownError,
    ascii_host,
    said_by,
)

# Try at most this many addresses of a host. Two would do; some hosts have many, to spread load.
_ADDRESSES_MAX = 4
_PORTS = {"http": 80, "https": 443}
# Errors of this machine's own resources, which are not failures of the destination.
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# The characters that are kept in a path and a query (RFC 3986), and in existing escapes.
_TARGET_SAFE = "/?:@!$&'()*+,;=-._~%[]"

# Returns the request's bytes, given whether it may have been sent before.
Build = Callable[[bool], bytes]


@dataclass(slots=True)
class Endpoint:
    """The target of an URL, and the open connections to it."""

    host: Address | str
    port: int
    authority: str
    target: str
    tls: ssl.SSLContext | None
    resolver: Resolver
    allows_private: bool
    connect_timeout_s: float
    idle: IdleConnections
    _waiting: list[Connection] = field(default_factory=list)
    _is_closed: bool = False

    async def post(self, build: Build, limits: ReplyLimits) -> tuple[Reply, bool]:
        """Send a request; return the answer, and whether it answers a second copy.

        A connection that the other side closed while it was idle is nobody's failure: the request
        is sent again over a new one, and says that it may be a repeat.
        """
        connection = self.idle.take(self._waiting)
        if connection is not None:
            try:
                return await self._exchange(connection, build(False), limits), False
            except ExchangeError as error:
                if not error.is_stale:
                    raise
                return await self._post_again(build, error, limits)
        connection = await self._connect(limits)
        return await self._exchange(connection, build(False), limits), False

    def close(self) -> None:
        self._is_closed = True
        self.idle.close(self._waiting)

    async def _post_again(
        self, build: Build, first: ExchangeError, limits: ReplyLimits
    ) -> tuple[Reply, bool]:
        may_be_duplicate = first.failure is not Failure.RESET_BEFORE_SENT
        try:
            connection = await self._connect(limits)
            request = build(may_be_duplicate)
            return await self._exchange(connection, request, limits), may_be_duplicate
        except ExchangeError as error:
            # The first copy may have arrived: a later error must not hide that.
            raise (first if may_be_duplicate else error) from error

    async def _exchange(self, connection: Connection, request: bytes, limits: ReplyLimits) -> Reply:
        reply = await connection.exchange(request, limits)
        if self._is_closed:
            connection.abort()
        else:
            self.idle.put(connection, self._waiting)
        return reply

    async def _connect(self, limits: ReplyLimits) -> Connection:
        loop = asyncio.get_running_loop()
        connect_until_s = min(limits.until_s, loop.time() + self.connect_timeout_s)
        try:
            addresses = await self._addresses(connect_until_s, limits.tenant)
            for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
                share_s = (connect_until_s - loop.time()) / (left + 1)
                try:
                    async with asyncio.timeout(share_s):
                        return await self._connect_to(address)
                except (OSError, ExchangeError):
                    self.resolver.forget(str(self.host))
                    if left == 0:
                        raise
        except ssl.SSLError as error:
            if refused := refusal_of_ours(error):
                raise ExchangeError(Failure.CLIENT_CERTIFICATE_REFUSED, refused) from error
            raise ExchangeError(Failure.TLS_FAILED, said_by(error)) from error
        except TimeoutError as error:
            detail = f"no connection in {self.connect_timeout_s} s"
            raise ExchangeError(Failure.CONNECT_TIMEOUT, detail) from error
        except ConnectionRefusedError as error:
            raise ExchangeError(Failure.CONNECT_REFUSED, said_by(error)) from error
        except ConnectionError as error:
            failure = Failure.TLS_FAILED if self.tls else Failure.UNREACHABLE
            raise ExchangeError(failure, said_by(error)) from error
        except OSError as error:
            failure = Failure.INTERNAL if error.errno in _OURS else Failure.UNREACHABLE
            raise ExchangeError(failure, said_by(error)) from error
        raise AssertionError("the last address connects or raises")

    async def _addresses(self, until_s: float, tenant: str) -> Sequence[Address]:
        """Return the host's addresses, each of them judged."""
        if host_class(self.host) == "never":
            raise ExchangeError(Failure.POLICY_BLOCKED)
        if isinstance(self.host, str):
            try:
                addresses = await self.resolver(self.host, until_s, tenant)
            except ResolverDownError as error:
                raise ExchangeError(Failure.RESOLVER_DOWN, str(error)) from error
            except NoSuchHostError as error:
                raise ExchangeError(Failure.DNS_FAILED, str(error)) from error
        else:
            addresses = [self.host]
        if not addresses:
            raise ExchangeError(Failure.DNS_FAILED, "the name has no address")
        if not may_send(addresses, allows_private=self.allows_private):
            # Do not say which addresses were found: that would reveal our network.
            raise ExchangeError(Failure.POLICY_BLOCKED)
        return addresses[:_ADDRESSES_MAX]

    async def _connect_to(self, address: Address) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            str(address),
            self.port,
            ssl=self.tls,
            server_hostname=str(self.host) if self.tls else None,
        )
        peer = ip_address(connection.peer.partition("%")[0])
        if peer != address or not may_send([peer], allows_private=self.allows_private):
            connection.abort()
            raise ExchangeError(Failure.POLICY_BLOCKED)
        return connection


def endpoint_of(
    url: str,
    *,
    tls: Callable[[], ssl.SSLContext],
    resolver: Resolver,
    allows_private: bool,
    connect_timeout_s: float,
    idle: IdleConnections,
) -> Endpoint:
    """Return the endpoint of an URL; ExchangeError if no request can be made for it."""
    try:
        parts = urlsplit(url)
        host = read_host(ascii_host(parts.hostname or ""))
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        raise ExchangeError(Failure.REQUEST_UNBUILDABLE, said_by(error)) from error
    shown = f"[{host}]" if ":" in str(host) else str(host)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return Endpoint(
        host=host,
        port=port,
        authority=shown if port == _PORTS[parts.scheme] else f"{shown}:{port}",
        target=quote(path, safe=_TARGET_SAFE),
        tls=tls() if parts.scheme == "https" else None,
        resolver=resolver,
        allows_private=allows_private,
        connect_timeout_s=connect_timeout_s,
        idle=idle,
    )
