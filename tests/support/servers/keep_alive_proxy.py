"""A balancer that speaks HTTP, like AWS': it keeps and reuses connections to gateways.

It checks `/readyz` every five seconds, gives up a gateway after two refusals, and keeps idle
connections for a minute. A request that meets a closed connection gets a 502, without another try.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx

from tests.support.servers.balancer import in_a_thread

CHECK_S, CHECKS, KEEP_S = 5.0, 2, 60.0
_CRLF = b"\r\n"


@dataclass
class Target:
    url: str
    probes: str
    is_used: bool = True
    refusals: int = 0
    requests: int = 0
    client: httpx.AsyncClient | None = None

    async def check(self) -> None:
        assert self.client is not None
        try:
            answer = await self.client.get(f"{self.probes}/readyz", timeout=4)
            is_well = answer.status_code == 200
        except httpx.TransportError:
            is_well = False
        self.refusals = 0 if is_well else self.refusals + 1
        self.is_used = self.refusals < CHECKS


@dataclass
class KeepAliveProxy:
    targets: list[Target]
    port: int = 0
    # Answers that a client got instead of a gateway's.
    bad: list[str] = field(default_factory=list)
    _turn: int = 0

    async def keep_checking(self) -> None:
        while True:
            await asyncio.gather(*(target.check() for target in self.targets))
            await asyncio.sleep(CHECK_S)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(_CRLF * 2)
                first, *lines = head.decode().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status, answer = await self._pass_on(first.split()[1], headers, body)
                said = f"HTTP/1.1 {status} -\r\ncontent-length: {len(answer)}\r\n\r\n"
                writer.write(said.encode() + answer)
                await writer.drain()
        writer.close()

    async def _pass_on(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        used = [target for target in self.targets if target.is_used] or self.targets
        self._turn += 1
        target = used[self._turn % len(used)]
        target.requests += 1
        assert target.client is not None
        kept = {"content-type": headers.get("content-type", "application/json")}
        try:
            answer = await target.client.post(f"{target.url}{path}", content=body, headers=kept)
        except httpx.TransportError as error:
            self.bad.append(repr(error))
            return 502, b""
        return answer.status_code, answer.content


@contextlib.contextmanager
def keeping_alive(*targets: Target) -> Iterator[KeepAliveProxy]:
    """Run the balancer in a thread of its own."""
    proxy = KeepAliveProxy(list(targets))

    @contextlib.asynccontextmanager
    async def clients() -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=500, keepalive_expiry=KEEP_S)
        async with contextlib.AsyncExitStack() as resources:
            for target in targets:
                client = httpx.AsyncClient(timeout=30, limits=limits)
                target.client = await resources.enter_async_context(client)
            yield

    with in_a_thread(proxy, clients):
        yield proxy
