"""A server with known figures: it answers at a steady rate, and stalls once.

Run as a process of its own (`python -m tests.support.servers.rated_server`); it prints its port.
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

_LENGTH = b"content-length:"
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class RatedAnswers(asyncio.Protocol):
    """Answers in order, each when the server has had the time for it."""

    per_s: float = 0.0
    stall_after_s: float = 0.0
    stall_s: float = 0.0
    begun_s: float | None = None
    free_at_s: float = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._read = bytearray()

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (head_end := self._read.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._read[:head_end]).lower()
            length = int(head.partition(_LENGTH)[2].split(b"\r\n", 1)[0] or 0)
            if len(self._read) < head_end + 4 + length:
                return
            del self._read[: head_end + 4 + length]
            self._answer()

    def _answer(self) -> None:
        server, now_s = RatedAnswers, time.monotonic()
        if server.begun_s is None:
            server.begun_s = now_s
        at_s = now_s
        stalls_s = server.begun_s + server.stall_after_s
        if stalls_s <= now_s < stalls_s + server.stall_s:
            at_s = stalls_s + server.stall_s
        if server.per_s:
            at_s = server.free_at_s = max(at_s, server.free_at_s + 1 / server.per_s)
        if at_s <= now_s:
            self._transport.write(_OK)
        else:
            asyncio.get_running_loop().call_later(at_s - now_s, self._transport.write, _OK)


@contextmanager
def running_rated_server(**asked: float) -> Iterator[str]:
    """Run the server as a process; yield its address. `asked`: per_s, stall_after_s, stall_s."""
    argv = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.servers.rated_server", *argv], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _serve() -> None:
    parser = argparse.ArgumentParser()
    for name in ("per_s", "stall_after_s", "stall_s"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=0.0)
    for name, value in vars(parser.parse_args()).items():
        setattr(RatedAnswers, name, value)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server = await asyncio.get_running_loop().create_server(RatedAnswers, sock=listener)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
