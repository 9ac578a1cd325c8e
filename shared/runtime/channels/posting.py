"""Posts messages to channels' addresses, in bounded time, with the address rules of destinations.

The connection goes to the checked address itself, so a second look-up cannot return another one.
Redirects are not followed, and only the status of the answer is read.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from string import printable
from urllib.parse import quote, urlsplit

from shared.config.addresses import Address, host_class, may_send, read_host
from shared.config.signing import signatures
from shared.runtime.certificates import client_context
from shared.runtime.channels.message import Message
from shared.runtime.resolver import NoSuchHostError, Resolver, ResolverDownError, ascii_host

_WITHIN_S = 10.0
# Try this many addresses of a name, each but the last for this long, as one may be down.
_ADDRESSES_MAX = 3
_CONNECT_WITHIN_S = 2.0
_PORTS = {"http": 80, "https": 443}
_OK = range(200, 300)
_STATUS_LINE_BYTES_MAX = 4_096


class PostError(Exception):
    """A message was not accepted; the text says why, without its address."""


@dataclass(frozen=True, slots=True)
class ChannelPoster:
    """Posts messages to allowed addresses."""

    resolver: Resolver
    allow_private: bool

    async def post(
        self, url: str, message: Message, keys: Sequence[bytes], *, tenant: str, now_ms: int
    ) -> str:
        """Post a message; return the answer if it is a success, and raise PostError otherwise."""
        headers = [("content-type", "application/json"), ("user-agent", "hifi-notices")]
        if keys:
            timestamp_s = str(now_ms // 1000)
            signed = signatures(
                keys, message_id=message.id, timestamp_s=timestamp_s, body=message.body
            )
            headers += [("webhook-timestamp", timestamp_s), ("webhook-signature", signed)]
        headers.append(("webhook-id", message.id))
        try:
            async with asyncio.timeout(_WITHIN_S):
                status = await self._exchange(url, headers, message.body, tenant)
        except TimeoutError:
            raise PostError(f"no answer in {_WITHIN_S:g} s") from None
        except PermissionError:
            raise PostError("Hifi may not send to this address") from None
        except (NoSuchHostError, ResolverDownError):
            raise PostError("its name has no address") from None
        except (
            OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ) as error:  # fmt: skip
            raise PostError(f"the connection failed ({type(error).__name__})") from None
        if status not in _OK:
            raise PostError(f"it answered {status}")
        return f"it answered {status}"

    async def _exchange(
        self, url: str, headers: list[tuple[str, str]], body: bytes, tenant: str
    ) -> int:
        parts = urlsplit(url)
        host = read_host(ascii_host(parts.hostname or ""))
        port = parts.port or _PORTS[parts.scheme]
        until_s = asyncio.get_running_loop().time() + _WITHIN_S
        if isinstance(host, str):
            addresses = await self.resolver(host, until_s, tenant)
        else:
            addresses = [host]
        is_allowed = may_send(addresses, allows_private=self.allow_private)
        if host_class(host) == "never" or not is_allowed:
            raise PermissionError
        shown = f"[{host}]" if ":" in str(host) else str(host)
        target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), printable)
        head = [
            f"POST {target} HTTP/1.1",
            f"host: {shown}" if port == _PORTS[parts.scheme] else f"host: {shown}:{port}",
            *(f"{name}: {value}" for name, value in headers),
            f"content-length: {len(body)}",
            "connection: close",
        ]
        tls_name = str(host) if parts.scheme == "https" else None
        reader, writer = await _connect(addresses[:_ADDRESSES_MAX], port, tls_name)
        try:
            writer.write("\r\n".join([*head, "", ""]).encode("ascii") + body)
            await writer.drain()
            line = await reader.readuntil(b"\n")
            version, status, *_ = line.split(maxsplit=2)
            if not version.startswith(b"HTTP/1."):
                raise ValueError("not HTTP")
            return int(status)
        finally:
            # Drop the rest of the answer: do not wait for a peer that does not close.
            writer.transport.abort()


async def _connect(
    addresses: Sequence[Address], port: int, tls_name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers."""
    *others, last = addresses
    for address in others:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                return await _connect_to(address, port, tls_name)
    return await _connect_to(last, port, tls_name)


async def _connect_to(
    address: Address, port: int, tls_name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        str(address),
        port,
        limit=_STATUS_LINE_BYTES_MAX,
        ssl=client_context() if tls_name else None,
        server_hostname=tls_name,
    )
