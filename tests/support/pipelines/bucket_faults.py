"""Stands before an object server, and is slow, full, away or refusing as a test wants."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

Manner = Literal["well", "slow", "away", "full", "denied"]

_ERRORS = {"full": (507, "InsufficientStorage"), "denied": (403, "AccessDenied")}


@dataclass
class FaultyBucket:
    """Takes the requests of S3's clients, and passes them on unchanged while it is well."""

    upstream: str
    manner: Manner = "well"
    # A slow bucket takes this long for each answer.
    slow_s: float = 1.0
    port: int = 0
    requests: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request per connection, so that each request meets the present manner."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if self.manner != "away":
                self.requests += 1
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                writer.write(await self._answer(head, body))
                await writer.drain()
        writer.close()

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        if self.manner in _ERRORS:
            status, code = _ERRORS[self.manner]
            said = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
            return _whole(f"HTTP/1.1 {status} {code}", said)
        if self.manner == "slow":
            await asyncio.sleep(self.slow_s)
        place = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            writer.write(_for_once(head) + body)
            await writer.drain()
            return await reader.read(-1)
        finally:
            writer.close()


def _length(head: bytes) -> int:
    lines = head.decode("latin-1").lower().split("\r\n")
    return next((int(line.split(":")[1]) for line in lines if line.startswith("content-length")), 0)


def _for_once(head: bytes) -> bytes:
    """Return the head with "Connection: close"; keep the host, as the client has signed it."""
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([lines[0], b"Connection: close", *lines[1:]])


def _whole(status: str, body: bytes) -> bytes:
    lines = [status, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


@contextmanager
def faulty_bucket(upstream: str) -> Iterator[FaultyBucket]:
    """Run a bucket that is well until a test changes its manner."""
    bucket, started, stop = FaultyBucket(upstream), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with await asyncio.start_server(bucket.take, "127.0.0.1", 0) as server:
            bucket.port = server.sockets[0].getsockname()[1]
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10)
        yield bucket
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(timeout=10)
        assert not thread.is_alive()
