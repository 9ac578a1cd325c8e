"""A line to a server that can be cut, or fall silent, while bytes are on their way."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.servers.balancer import in_a_thread

_CHUNK_BYTES = 65_536


@dataclass
class CutLine:
    # The server's port, or None while there is no server.
    target: int | None
    port: int = 0
    # Bytes are accepted and dropped.
    is_silent: bool = False
    connections: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def keep_checking(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.target is None:
            writer.transport.abort()
            return
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, requests}
        try:
            await asyncio.gather(self._pipe(reader, requests), self._pipe(answers, writer))
        finally:
            self._open -= {writer, requests}

    def cut(self) -> None:
        """End every connection in the middle of its work, and accept no new one."""
        self.target = None
        assert self._loop is not None, "the line is open"
        asyncio.run_coroutine_threadsafe(self._abort(), self._loop).result(10)

    async def _abort(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(_CHUNK_BYTES):
                    if not self.is_silent:
                        writer.write(data)
                        await writer.drain()
        finally:
            writer.close()


@contextlib.contextmanager
def cut_line(target: int | None) -> Iterator[CutLine]:
    line = CutLine(target)
    with in_a_thread(line, contextlib.nullcontext):
        try:
            yield line
        finally:
            line.cut()
