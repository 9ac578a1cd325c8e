"""Plays tenants whose own servers answer badly, slowly or not at all."""

import asyncio
import json
from typing import Any, ClassVar

from shared.runtime.control_client import RefusedError
from tests.support.neighbours.small_server import reply, small_server
from tests.support.neighbours.worst_tenant import WorstTenant

_MB = 1_000_000


class _WithServer(WorstTenant):
    count: ClassVar[int] = 1
    settings: ClassVar[dict[str, Any]] = {}
    # Events per batch, and how often one is posted.
    batch: ClassVar[int] = 100
    every_s: ClassVar[float] = 0.5

    async def prepare(self) -> None:
        server = await self._resources.enter_async_context(small_server(self._answer))
        await self.make("streams", self.name("in"))
        for nth in range(self.count):
            path = "streams", self.name("in"), "destinations", f"worst-{nth}"
            try:
                await self.make(*path, body={"url": f"{server}/{nth}", **self.settings})
            except RefusedError as error:
                self.happened[f"answered {error.status}"] += 1

    async def misbehave(self) -> None:
        while True:
            # All of the events have one id, which an answer may name.
            await self.post(self.name("in"), [{"id": "a", "n": n} for n in range(self.batch)])
            await asyncio.sleep(self.every_s)

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class _WithReplies(_WithServer):
    count = 6
    settings: ClassVar = {"parallel_max": 64, "batch_count_max": 10_000, "timeout_s": 60}
    batch, every_s = 500, 0.5


class Reports(_WithReplies):
    kind, says = "reports", "reports of a destination with tens of thousands of entries"
    proofs: ClassVar = {"long reports": 10}

    async def prepare(self) -> None:
        entries = [{"id": "a", "status": 503}] * 30_000
        self._report = reply(207, json.dumps({"failed": entries}).encode())
        await super().prepare()

    async def _answer(self, _: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        self.happened["long reports"] += 1
        writer.write(self._report)


class Replies(_WithReplies):
    kind, says = "replies", "answers of a destination of 8 MB"
    proofs: ClassVar = {"long answers": 10}

    async def _answer(self, _: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        self.happened["long answers"] += 1
        writer.write(reply(200, b"x" * (8 * _MB)))


class Drips(_WithReplies):
    kind, says = "drips", "answers of a destination that come drop by drop"
    proofs: ClassVar = {"slow answers": 10}

    async def _answer(self, _: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        self.happened["slow answers"] += 1
        writer.write(b"HTTP/1.1 207 Some\r\ncontent-length: 4000000\r\n\r\n")
        while True:
            writer.write(b" " * 1_000)
            await writer.drain()
            await asyncio.sleep(0.1)


class Hanging(_WithServer):
    kind, says = "hanging", "destinations that take everything and never answer"
    proofs: ClassVar = {"requests without an answer": 50}
    count = 50
    settings: ClassVar = {"parallel_max": 256, "batch_count_max": 1, "timeout_s": 300}
    batch, every_s = 20, 0.5

    async def _answer(self, *_: object) -> None:
        self.happened["requests without an answer"] += 1
        await asyncio.Event().wait()


class Crowd(_WithServer):
    kind, says = "crowd", "hundreds of destinations that fail"
    proofs: ClassVar = {"refusals": 100}
    count = 200
    batch, every_s = 5, 0.5

    async def _answer(self, _: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        self.happened["refusals"] += 1
        writer.write(reply(503))
