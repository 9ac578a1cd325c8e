"""The base of every worst tenant: its preparation, its worst behaviour, and the evidence.

Each runs in a process of its own (worst_process.py), as its work is not Hifi's.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

import httpx

from shared.runtime.control_client import RefusedError
from tests.support.neighbours.site import Site

_TIMEOUT_S = 30.0
_CONNECTIONS = 400
# A refused loop waits this long, so that it costs its own machine no more than Hifi's.
_REST_S = 0.05
_READY_S = 120.0
_LOOK_S = 0.5


class WorstTenant(ABC):
    """One kind of worst tenant. It closes all that it opens, and removes all that it creates."""

    # The name for the choice of tests, and the text in the table.
    kind: ClassVar[str]
    says: ClassVar[str]
    # How often each thing must have happened at least.
    proofs: ClassVar[Mapping[str, int]]
    ends_executors: ClassVar[bool] = False
    # How long the neighbour is watched, both before and during: for over 100 frequent requests.
    window_s: ClassVar[float] = 13.5

    def __init__(self, site: Site) -> None:
        self.site = site
        self.happened: Counter[str] = Counter()
        self._made: list[tuple[str, ...]] = []
        self._resources = AsyncExitStack()
        self.client: httpx.AsyncClient

    @abstractmethod
    async def misbehave(self) -> None:
        """Do its worst, until it is cancelled."""

    async def prepare(self) -> None:  # noqa: B027 - some kinds need nothing
        """Create everything that the tenant needs beforehand."""

    async def look_back(self) -> None:  # noqa: B027 - as above
        """Gather the evidence that only shows afterwards."""

    @asynccontextmanager
    async def at_home(self) -> AsyncIterator[None]:
        """Prepare the tenant; all that it has created is gone after the block."""
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=64)
        async with self._resources:
            self.client = await self._resources.enter_async_context(
                httpx.AsyncClient(timeout=_TIMEOUT_S, limits=limits)
            )
            try:
                await self.prepare()
                yield
            finally:
                await self._take_away()

    async def call(
        self, method: str, *path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Call the control API as anybody does; repeat a call whose answer is "ask again"."""
        async with asyncio.timeout(_READY_S):
            while True:
                try:
                    return await asyncio.to_thread(self.site.call, method, *path, body=body)
                except RefusedError as error:
                    if error.status != httpx.codes.SERVICE_UNAVAILABLE:
                        raise
                    await asyncio.sleep(_LOOK_S)

    async def make(self, *path: str, body: dict[str, Any] | None = None) -> None:
        self._made.append(path)
        await self.call("PUT", *path, body=body or {})

    def name(self, what: str) -> str:
        return f"{self.site.tenant}-{what}"

    async def running(self, pipeline: str) -> None:
        """Wait until a pipeline runs, or is refused."""
        async with asyncio.timeout(_READY_S):
            while True:
                state = (await self.call("GET", "pipelines", pipeline))["state"]
                if state["standing"] == "running":
                    return
                assert state["standing"] != "refused", state
                await asyncio.sleep(_LOOK_S)

    async def post(self, stream: str, events: list[Any]) -> int:
        """Post, count and return the status of the answer, or 0 if none came."""
        url = f"{self.site.gateway}/v1/streams/{stream}/events"
        status = await self.ask("POST", url, json=events)
        if status == httpx.codes.OK:
            self.happened["events taken"] += len(events)
        return status

    async def ask(self, method: str, url: str, **more: Any) -> int:
        """Ask, count and return the status of the answer, or 0 if none came."""
        headers = {**self.site.headers, **more.pop("headers", {})}
        try:
            answer = await self.client.request(method, url, headers=headers, **more)
        except httpx.HTTPError:
            self.happened["no answer"] += 1
            await asyncio.sleep(_REST_S)
            return 0
        self.happened[f"answered {answer.status_code}"] += 1
        if answer.is_error:
            await asyncio.sleep(_REST_S)
        return answer.status_code

    async def at_once(self, count: int, again: Callable[[], Awaitable[Any]]) -> None:
        """Run `count` loops side by side, until cancelled."""

        async def loop() -> None:
            while True:
                await again()
                # An answer from a cache would never let others run.
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as loops:
            for _ in range(count):
                loops.create_task(loop())

    async def _take_away(self) -> None:
        for path in reversed(self._made):
            try:
                await self.call("DELETE", *path)
            except RefusedError as error:
                # A stream that something still uses, or an object that was never created.
                self.happened[f"not taken away: {error.code}"] += 1


class Nothing(WorstTenant):
    kind, says = "nothing", "nothing: how much figures vary by themselves"
    proofs: ClassVar = {"looked on": 1}

    async def misbehave(self) -> None:
        self.happened["looked on"] += 1
        await asyncio.Event().wait()


def unproven(worst: type[WorstTenant], happened: Mapping[str, int]) -> list[str]:
    """List what should have happened more often than it did."""
    return [
        f"{what}: {happened.get(what, 0)} of {least}"
        for what, least in worst.proofs.items()
        if happened.get(what, 0) < least
    ]
