"""A destination that costs almost nothing: it reads a request, answers 200 and stores nothing.

It runs as a separate process (`python -m benchmarks.sink`), so that only the sender is measured.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_LENGTH = b"content-length:"


class Sink(asyncio.Protocol):
    """Speaks enough HTTP for our client, which always sends a content-length."""

    def __init__(self) -> None:
        self._read = bytearray()
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left:
                taken = min(self._left, len(data))
                self._left -= taken
                data = data[taken:]
                if not self._left:
                    self._transport.write(_ANSWER)
                continue
            self._read += data
            head_end = self._read.find(b"\r\n\r\n")
            if head_end < 0:
                return
            head = bytes(self._read[:head_end]).lower()
            length = head[head.index(_LENGTH) + len(_LENGTH) :].split(b"\r\n", 1)[0]
            self._left = int(length)
            data = bytes(self._read[head_end + 4 :])
            self._read.clear()


async def _serve(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sink, sock=listener)
    async with server:
        await server.serve_forever()


@contextmanager
def running_sink() -> Iterator[str]:
    """Run the sink as a separate process; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sink", str(listener.fileno())],
            pass_fds=[listener.fileno()],
        )
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    uvloop.run(_serve(socket.socket(fileno=int(sys.argv[1]))))
