"""A balancer like those in front of gateways: it connects to backends whose /readyz says yes."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import httpx

_CHECK_S = 0.05


class Taking(Protocol):
    port: int

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...
    async def keep_checking(self) -> None: ...


@dataclass
class Backend:
    """A gateway, and the address of its readiness; without that it always counts as ready."""

    port: int
    probes: str | None = None
    is_ready: bool = False
    connections: int = 0

    async def check(self, client: httpx.AsyncClient) -> None:
        try:
            answer = await client.get(f"{self.probes}/readyz") if self.probes else None
        except httpx.TransportError:
            self.is_ready = False
        else:
            self.is_ready = answer is None or answer.status_code == httpx.codes.OK


@dataclass
class Balancer:
    """Passes bytes on; a connection stays with its backend."""

    backends: list[Backend]
    port: int = 0
    # Connections that arrived while no backend was ready.
    refused: int = 0
    _turn: int = 0

    async def keep_checking(self) -> None:
        async with httpx.AsyncClient(timeout=1) as client:
            while True:
                for backend in list(self.backends):
                    await backend.check(client)
                await asyncio.sleep(_CHECK_S)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [backend for backend in self.backends if backend.is_ready]
        if not ready:
            self.refused += 1
            writer.close()
            return
        self._turn += 1
        backend = ready[self._turn % len(ready)]
        backend.connections += 1
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", backend.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pipe(reader, requests), _pipe(answers, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@contextlib.contextmanager
def in_a_thread(
    balancer: Taking, around: Callable[[], AbstractAsyncContextManager[object]]
) -> Iterator[None]:
    """Let a balancer accept connections and check its backends until the block ends."""
    started, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with around(), await asyncio.start_server(balancer.take, "127.0.0.1", 0) as server:
            balancer.port = server.sockets[0].getsockname()[1]
            checking = asyncio.create_task(balancer.keep_checking())
            started.set()
            await stop.wait()
            checking.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10)
        yield
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(timeout=10)
        assert not thread.is_alive()


@contextlib.contextmanager
def balanced(*backends: Backend) -> Iterator[Balancer]:
    """Run a balancer in a thread of its own, which checks its backends all the time."""
    balancer = Balancer(list(backends))
    with in_a_thread(balancer, contextlib.nullcontext):
        yield balancer
