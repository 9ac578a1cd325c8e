"""Connects to a host; every answer of the resolver is judged first.

We resolve names ourselves and connect to an address that was judged, so that no second look-up can
give another answer (DNS rebinding); TLS and the Host header keep the name. The peer's address is
checked again when connected.
"""

import asyncio
import errno
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeVar

from delivery.http.connection import ExchangeError, ReplyLimits, WireProtocol
from shared.config.addresses import Address, host_class, may_send
from shared.retry.attempt import Failure
from shared.runtime.certificates import refusal_of_ours
from shared.runtime.resolver import NoSuchHostError, Resolver, ResolverDownError, said_by

# Try at most this many addresses of a host. Two would do; some hosts have many, to spread load.
_ADDRESSES_MAX = 4
# Errors of this machine's own resources, which are not failures of the destination.
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_Wire = TypeVar("_Wire", bound=WireProtocol)


@dataclass(frozen=True, slots=True)
class Dialer:
    """Opens connections to one host and port."""

    host: Address | str
    port: int
    resolver: Resolver
    allows_private: bool
    connect_timeout_s: float

    async def connect(
        self, make: Callable[[], _Wire], tls: ssl.SSLContext | None, limits: ReplyLimits
    ) -> _Wire:
        """Return the protocol of a new connection; ExchangeError if there is none."""
        loop = asyncio.get_running_loop()
        connect_until_s = min(limits.until_s, loop.time() + self.connect_timeout_s)
        try:
            addresses = await self.addresses(connect_until_s, limits.tenant)
            for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
                share_s = (connect_until_s - loop.time()) / (left + 1)
                try:
                    async with asyncio.timeout(share_s):
                        return await self._connect_to(address, make, tls)
                except (OSError, ExchangeError):
                    self.resolver.forget(str(self.host))
                    if left == 0:
                        raise
        except TimeoutError as error:
            detail = f"no connection in {self.connect_timeout_s} s"
            raise ExchangeError(Failure.CONNECT_TIMEOUT, detail) from error
        except OSError as error:
            raise connect_failure(error, is_secure=tls is not None) from error
        raise AssertionError("the last address connects or raises")

    async def addresses(self, until_s: float, tenant: str) -> Sequence[Address]:
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

    async def _connect_to(
        self, address: Address, make: Callable[[], _Wire], tls: ssl.SSLContext | None
    ) -> _Wire:
        protocol = make()
        transport, _ = await asyncio.get_running_loop().create_connection(
            (lambda: protocol) if tls is None else asyncio.Protocol, str(address), self.port
        )
        try:
            self._check_peer(transport, address)
            if tls is not None:
                await secure(transport, protocol, tls, str(self.host))
        except BaseException:
            transport.abort()
            raise
        return protocol

    def _check_peer(self, transport: asyncio.Transport, address: Address) -> None:
        peer = transport.get_extra_info("peername")
        if peer is None:
            raise ConnectionResetError("closed as soon as it was open")
        reached = ip_address(str(peer[0]).partition("%")[0])
        if reached != address or not may_send([reached], allows_private=self.allows_private):
            raise ExchangeError(Failure.POLICY_BLOCKED)


async def secure(
    raw: asyncio.Transport, protocol: WireProtocol, tls: ssl.SSLContext, host: str
) -> None:
    """Speak TLS over a connection, and give it to its protocol; raise OSError if that fails."""
    transport = await asyncio.get_running_loop().start_tls(raw, protocol, tls, server_hostname=host)
    if transport is None:
        raise ConnectionResetError("closed in the middle of the TLS handshake")
    protocol.raw = raw
    protocol.connection_made(transport)


def connect_failure(error: OSError, *, is_secure: bool) -> ExchangeError:
    """Return the failure that an error of a connection means before it is open."""
    if isinstance(error, ssl.SSLError):
        if refused := refusal_of_ours(error):
            return ExchangeError(Failure.CLIENT_CERTIFICATE_REFUSED, refused)
        return ExchangeError(Failure.TLS_FAILED, said_by(error))
    if isinstance(error, ConnectionRefusedError):
        return ExchangeError(Failure.CONNECT_REFUSED, said_by(error))
    if isinstance(error, ConnectionError):
        failure = Failure.TLS_FAILED if is_secure else Failure.UNREACHABLE
        return ExchangeError(failure, said_by(error))
    failure = Failure.INTERNAL if error.errno in _OURS else Failure.UNREACHABLE
    return ExchangeError(failure, said_by(error))
