"""Decides nothing: makes one HTTP exchange and says as an Attempt what came of it.

The only file that knows the HTTP client; every error of its becomes a value here. Redirects are
never followed, proxies and other settings of the environment are ignored, a response is read up
to a cap, and one deadline covers the whole exchange, however slowly the bytes drip.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping

import httpx

from shared.attempt import Attempt, Failed, Failure, Responded
from shared.destination import Destination

# Enough to reuse the connection after any sensible reply; more is not read.
RESPONSE_BYTES_MAX = 65_536
# What a dead letter shows of the reply: the first words of an error page.
EXCERPT_CHARS_MAX = 256
# A TCP handshake that takes longer is a host that is not there (one lost SYN is resent after 1 s,
# the second after 3 s).
CONNECT_TIMEOUT_S = 5.0
# Shorter than the idle limits of common servers (uvicorn 5 s, nginx 75 s): we close first.
KEEP_ALIVE_S = 4.0


class Sender:
    """Connection pools for as long as the worker process lives, one for each destination."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def send(
        self, destination: Destination, body: bytes, headers: Mapping[str, str]
    ) -> Attempt:
        """POST once; never raises for anything that the destination or the network does."""
        try:
            async with asyncio.timeout(destination.timeout_s):
                return await self._exchange(destination, body, headers)
        except TimeoutError:
            # The deadline may have struck at any point; we must assume that the body had arrived.
            return Failed(Failure.READ_TIMEOUT, f"no complete answer in {destination.timeout_s} s")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            return Failed(_failure_of(error), _detail_of(error))

    async def _exchange(
        self, destination: Destination, body: bytes, headers: Mapping[str, str]
    ) -> Attempt:
        client = self._client(destination)
        async with client.stream(
            "POST", destination.url, content=body, headers=dict(headers)
        ) as response:
            answered = Responded(response.status_code, response.headers.get("retry-after"))
            if response.is_success:
                # The head decides; the rest is read only so that the connection can be used again.
                await _read(response)
                return answered
            excerpt = (await _read(response)).decode(errors="replace")[:EXCERPT_CHARS_MAX]
            return Responded(answered.status, answered.retry_after, excerpt)

    def _client(self, destination: Destination) -> httpx.AsyncClient:
        if destination.id not in self._clients:
            self._clients[destination.id] = httpx.AsyncClient(
                timeout=httpx.Timeout(
                    destination.timeout_s, connect=min(CONNECT_TIMEOUT_S, destination.timeout_s)
                ),
                limits=httpx.Limits(
                    max_connections=destination.parallel_max,
                    max_keepalive_connections=destination.parallel_max,
                    keepalive_expiry=KEEP_ALIVE_S,
                ),
                follow_redirects=False,
                trust_env=False,
            )
        return self._clients[destination.id]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


async def _read(response: httpx.Response) -> bytes:
    """The body up to the cap; a body that breaks off after the head changes nothing."""
    read = bytearray()
    try:
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) >= RESPONSE_BYTES_MAX:
                break
    except httpx.HTTPError:
        pass
    return bytes(read)


def _failure_of(error: Exception) -> Failure:  # noqa: PLR0911 - one return per kind is the table
    match error:
        case httpx.ConnectTimeout():
            return Failure.CONNECT_TIMEOUT
        case httpx.ConnectError():
            return _connect_failure_of(error)
        case httpx.PoolTimeout():
            return Failure.OVER_RATE
        case httpx.WriteTimeout():
            return Failure.SEND_TIMEOUT
        case httpx.ReadTimeout():
            return Failure.READ_TIMEOUT
        case httpx.InvalidURL() | httpx.UnsupportedProtocol() | httpx.LocalProtocolError():
            return Failure.REQUEST_UNBUILDABLE
        case httpx.RemoteProtocolError() if "disconnected" not in str(error):
            return Failure.RESPONSE_UNREADABLE
        case _:
            return Failure.RESET_AFTER_SENT


def _connect_failure_of(error: httpx.ConnectError) -> Failure:
    """Why no connection was made, from the chain of causes that the client leaves behind."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case socket.gaierror():
                return Failure.DNS_FAILED
            case ssl.SSLError():
                return Failure.TLS_FAILED
            case ConnectionRefusedError():
                return Failure.CONNECT_REFUSED
            case _:
                cause = cause.__cause__ or cause.__context__
    text = str(error).lower()
    if "ssl" in text or "certificate" in text:
        return Failure.TLS_FAILED
    # asyncio folds several refused addresses into one OSError without a cause.
    return Failure.CONNECT_REFUSED if "all connection attempts" in text else Failure.UNREACHABLE


def _detail_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:EXCERPT_CHARS_MAX]
