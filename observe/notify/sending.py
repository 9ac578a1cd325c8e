"""Posts a message to a channel: where it may go is judged as for destinations, in bounded time.

The connection goes to an address that was judged, so that no second look-up answers otherwise. No
redirect is followed, and of the answer only the status is read.
"""

import asyncio
from urllib.parse import urlsplit

from observe.notify.channels import Channel
from shared.config.addresses import host_class, may_send, read_host
from shared.config.signing import signatures, signing_key
from shared.runtime.certificates import client_context
from shared.runtime.resolver import NoSuchHostError, Resolver, ResolverDownError, ascii_host

_WITHIN_S = 10.0
_PORTS = {"http": 80, "https": 443}
_OK = range(200, 300)
_STATUS_LINE_BYTES_MAX = 4_096


async def post(
    channel: Channel, body: bytes, *, message_id: str, now_ms: int, resolver: Resolver
) -> str:
    """Empty if the channel has taken it, or else why not, without its address."""
    headers = [("content-type", "application/json"), ("user-agent", "hifi-notices")]
    if channel.secret:
        timestamp_s = str(now_ms // 1000)
        signature = signatures(
            [signing_key(channel.secret)],
            message_id=message_id,
            timestamp_s=timestamp_s,
            body=body,
        )
        headers += [("webhook-timestamp", timestamp_s), ("webhook-signature", signature)]
    headers.append(("webhook-id", message_id))
    try:
        async with asyncio.timeout(_WITHIN_S):
            status = await _exchange(channel, headers, body, resolver)
    except TimeoutError:
        return f"no answer in {_WITHIN_S:g} s"
    except PermissionError:
        return "nothing is sent to such an address"
    except (NoSuchHostError, ResolverDownError):
        return "its name has no address"
    except (
        OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
    ) as error:  # fmt: skip
        return f"the connection failed ({type(error).__name__})"
    return "" if status in _OK else f"it answered {status}"


async def _exchange(
    channel: Channel, headers: list[tuple[str, str]], body: bytes, resolver: Resolver
) -> int:
    parts = urlsplit(channel.url)
    host = read_host(ascii_host(parts.hostname or ""))
    port = parts.port or _PORTS[parts.scheme]
    until_s = asyncio.get_running_loop().time() + _WITHIN_S
    addresses = await resolver(host, until_s) if isinstance(host, str) else [host]
    is_allowed = may_send(addresses, allows_private=channel.allow_private)
    if host_class(host) == "never" or not is_allowed:
        raise PermissionError
    shown = f"[{host}]" if ":" in str(host) else str(host)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = [
        f"POST {target} HTTP/1.1",
        f"host: {shown}" if port == _PORTS[parts.scheme] else f"host: {shown}:{port}",
        *(f"{name}: {value}" for name, value in headers),
        f"content-length: {len(body)}",
        "connection: close",
    ]
    is_tls = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        str(addresses[0]),
        port,
        limit=_STATUS_LINE_BYTES_MAX,
        ssl=client_context() if is_tls else None,
        server_hostname=str(host) if is_tls else None,
    )
    try:
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        await writer.drain()
        line = await reader.readuntil(b"\n")
        version, status, *_ = line.split(maxsplit=2)
        if not version.startswith(b"HTTP/1."):
            raise ValueError("no HTTP")
        return int(status)
    finally:
        # Whatever else it would say: a peer that does not close is not waited for.
        writer.transport.abort()
