"""Asks over HTTP at a tenth of a full client's cost, so that it can measure."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

_CONNECT_S, _ANSWER_S = 10.0, 30.0
_LENGTH = b"content-length:"


class QuickClient:
    """A client of one server; it keeps connections, and opens one more when all are in use."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        lines = [f"host: {self._host}:{self._port}", *(f"{n}: {v}" for n, v in headers.items())]
        self._headers = "".join(f"{line}\r\n" for line in lines)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, method: str, path: str, body: bytes = b"") -> int:
        """Return the answer's status; raise OSError, EOFError or TimeoutError if there is none."""
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}content-length: {len(body)}\r\n"
        if body:
            head += "content-type: application/json\r\n"
        request = head.encode() + b"\r\n" + body
        async with asyncio.timeout(_ANSWER_S):
            while self._idle:
                kept = self._idle.pop()
                # The server may just have closed the connection.
                with suppress(OSError, EOFError):
                    return await self._exchange(kept, request)
            return await self._exchange(await self._connect(), request)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_connection(self._host, self._port)

    async def _exchange(
        self, wire: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes
    ) -> int:
        reader, writer = wire
        is_whole = False
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(_LENGTH)[2].split(b"\r\n", 1)[0]
            await reader.readexactly(int(length or 0))
            is_whole = b"connection: close" not in head
            return int(head.split(b" ", 2)[1])
        finally:
            if is_whole:
                self._idle.append(wire)
            else:
                writer.transport.abort()
