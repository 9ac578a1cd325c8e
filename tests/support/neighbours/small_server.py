"""Serves HTTP in a loop of asyncio, and leaves each answer to the caller."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

# Gets the path, the body and the writer; writes a whole answer, or a broken one.
Behave = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]
_LENGTH = b"content-length:"
_HEAD_MAX = 65_536
_BACKLOG = 1_024


def reply(status: int, body: bytes = b"{}", content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\n"
    return f"{head}content-type: {content_type}\r\n\r\n".encode() + body


@asynccontextmanager
async def small_server(behave: Behave) -> AsyncIterator[str]:
    """Yield the server's address, on loopback. At its end it cuts off requests under way."""
    under_way: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        try:
            while True:
                path, body = await _request(reader)
                await behave(path, body, writer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            under_way.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_HEAD_MAX, backlog=_BACKLOG)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    path = head.split(b" ", 2)[1].decode("latin-1")
    length = int(head.lower().partition(_LENGTH)[2].split(b"\r\n", 1)[0] or 0)
    return path, await reader.readexactly(length)
