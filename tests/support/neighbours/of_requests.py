"""Plays tenants who harm listening processes: by bodies, heads and connections."""

import asyncio
import itertools
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar
from urllib.parse import urlsplit

from tests.support.neighbours.worst_tenant import WorstTenant

_CONNECT_S = 10.0
# The largest body that a gateway accepts.
_BODY_BYTES = 4_900_000
_REST_S = 0.2


class _OnTheWire(WorstTenant):
    """Writes to a port byte by byte."""

    def __init__(self, *told: object) -> None:
        super().__init__(*told)  # type: ignore[arg-type]
        self._open: set[asyncio.StreamWriter] = set()

    async def opened(self, url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(url)
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_connection(parts.hostname, parts.port)

    @contextmanager
    def counted(self, writer: asyncio.StreamWriter, what: str) -> Iterator[None]:
        """Record the maximum number of connections that are open at once."""
        self._open.add(writer)
        self.happened[what] = max(self.happened[what], len(self._open))
        try:
            yield
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    def head(self, stream: str, length: int, more: str = "") -> bytes:
        lines = [
            f"POST /v1/streams/{stream}/events HTTP/1.1",
            "host: worst",
            "content-type: application/json",
            *(f"{name}: {value}" for name, value in self.site.headers.items()),
            f"content-length: {length}",
        ]
        return ("\r\n".join(lines) + f"\r\n{more}\r\n").encode()


class Bodies(_OnTheWire):
    kind, says = "bodies", "bodies that are large, slow, packed, or never end"
    proofs: ClassVar = {"whole bodies": 5, "bodies without an end": 10, "bombs": 3}

    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        self._bomb = b"".join([packer.compress(b"[" * 100_000_000), packer.flush()])
        self._large = b'[{"a":"' + b"x" * 900_000 + b'"}' + b',{"a":[' + b"{}," * 200_000 + b"{}]}]"

    async def misbehave(self) -> None:
        async with asyncio.TaskGroup() as all_of_them:
            all_of_them.create_task(self.at_once(2, self._whole))
            all_of_them.create_task(self.at_once(1, self._packed))
            all_of_them.create_task(self.at_once(40, self._unfinished))

    async def _whole(self) -> None:
        await self._posted(self._large, {})
        self.happened["whole bodies"] += 1

    async def _packed(self) -> None:
        await self._posted(self._bomb, {"content-encoding": "gzip"})
        self.happened["bombs"] += 1

    async def _posted(self, body: bytes, more: dict[str, str]) -> None:
        url = f"{self.site.gateway}/v1/streams/{self.name('in')}/events"
        headers = {"content-type": "application/json", **more}
        await self.ask("POST", url, content=body, headers=headers)

    async def _unfinished(self) -> None:
        """Send a body without its last byte: most of the blanks at once, then one a second."""
        try:
            _, writer = await self.opened(self.site.gateway)
        except (OSError, TimeoutError):
            self.happened["refused connections"] += 1
            await asyncio.sleep(_REST_S)
            return
        with self.counted(writer, "bodies without an end"):
            try:
                sent = _BODY_BYTES - 60
                writer.write(self.head(self.name("in"), _BODY_BYTES) + b" " * sent)
                for _ in range(59):
                    await writer.drain()
                    await asyncio.sleep(1)
                    writer.write(b" ")
            except OSError:
                self.happened["cut off"] += 1
                await asyncio.sleep(_REST_S)


class Heads(_OnTheWire):
    kind, says = "heads", "heads that are long, many, or never end"
    proofs: ClassVar = {"refused heads": 50, "heads without an end": 20}

    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))

    async def misbehave(self) -> None:
        async with asyncio.TaskGroup() as all_of_them:
            all_of_them.create_task(self.at_once(4, self._long))
            all_of_them.create_task(self.at_once(50, self._unfinished))

    async def _long(self) -> None:
        """Send a header of a megabyte, or thousands of small ones, to both addresses in turn."""
        nth = self.happened["heads"]
        self.happened["heads"] += 1
        url = (self.site.gateway, self.site.console)[nth % 2]
        more = (f"a: {'x' * 1_000_000}\r\n", "a: b\r\n" * 5_000)[nth // 2 % 2]
        try:
            reader, writer = await self.opened(url)
            with self.counted(writer, "heads at once"):
                writer.write(self.head(self.name("in"), 2, more) + b"{}")
                async with asyncio.timeout(_CONNECT_S):
                    answer = await reader.readline()
            status = answer.split(b" ")[1:2]
            self.happened[f"answered {b''.join(status).decode()}"] += 1
        except (OSError, TimeoutError):
            self.happened["reset"] += 1
        self.happened["refused heads"] += 1
        await asyncio.sleep(0.01)

    async def _unfinished(self) -> None:
        url = (self.site.gateway, self.site.console)[len(self._open) % 2]
        try:
            _, writer = await self.opened(url)
        except (OSError, TimeoutError):
            self.happened["refused connections"] += 1
            await asyncio.sleep(_REST_S)
            return
        with self.counted(writer, "heads without an end"):
            try:
                for nth in itertools.count():
                    writer.write(b"GET / HTTP/1.1\r\n" if not nth else b"a: b\r\n")
                    await writer.drain()
                    await asyncio.sleep(1)
            except OSError:
                self.happened["cut off"] += 1
                await asyncio.sleep(_REST_S)


class Connections(_OnTheWire):
    kind, says = "connections", "hundreds of connections that say nothing, at every port"
    proofs: ClassVar = {"connections open": 300}

    async def misbehave(self) -> None:
        ports = (self.site.gateway, self.site.console, *self.site.health)
        async with asyncio.TaskGroup() as all_of_them:
            for url in ports:
                for _ in range(600 if url in ports[:2] else 100):
                    all_of_them.create_task(self._hold(url))
                    await asyncio.sleep(0)

    async def _hold(self, url: str) -> None:
        while True:
            try:
                reader, writer = await self.opened(url)
            except (OSError, TimeoutError):
                self.happened["refused connections"] += 1
                await asyncio.sleep(1)
                continue
            with self.counted(writer, "connections open"):
                with suppress(OSError):
                    await reader.read(1)
                self.happened["closed"] += 1
            await asyncio.sleep(_REST_S)
