"""Plays tenants who view, ask and try without a pause: at the console and over the API."""

import asyncio
from itertools import cycle
from typing import ClassVar

import httpx

from tests.support.neighbours.site import sign_in
from tests.support.neighbours.small_server import small_server
from tests.support.neighbours.worst_tenant import WorstTenant


class _WithEvents(WorstTenant):
    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))
        for start in range(0, 20_000, 1_000):
            events = [{"id": f"{n}", "says": "x" * 200} for n in range(start, start + 1_000)]
            # A quota admits no more at once.
            while await self.post(self.name("in"), events) != httpx.codes.OK:  # noqa: ASYNC110
                await asyncio.sleep(0.5)


class Pages(_WithEvents):
    kind, says = "pages", "pages of the console, in a loop"
    proofs: ClassVar = {"answered 200": 50}

    async def prepare(self) -> None:
        await super().prepare()
        await sign_in(self.client, self.site.console, self.site.key)
        stream = self.name("in")
        self._paths = cycle(
            [
                f"/streams/{stream}",
                f"/events/newest?stream={stream}",
                "/",
                f"/events/newest?stream={stream}&contains=nowhere",
                "/changes",
                "/dead",
                f"/events?stream={stream}&id=nowhere",
                "/destinations",
            ]
        )

    async def misbehave(self) -> None:
        await self.at_once(16, self._load)

    async def _load(self) -> None:
        url = f"{self.site.console}{next(self._paths)}"
        await self.ask("GET", url)


class Searches(_WithEvents):
    kind, says = "searches", "searches through a stream, in a loop"
    proofs: ClassVar = {"answered 200": 5}

    async def prepare(self) -> None:
        await super().prepare()
        self._queries = cycle(
            [
                "events?contains=nowhere&limit=1000",
                "ids",
                "events?id=nowhere&by_index=false",
                "events?key=nowhere",
                "spread",
                "statements",
                "events?limit=1000",
            ]
        )

    async def misbehave(self) -> None:
        await self.at_once(16, self._search)

    async def _search(self) -> None:
        stream = f"{self.site.gateway}/v1/streams/{self.name('in')}"
        await self.ask("GET", f"{stream}/{next(self._queries)}")


class Channels(WorstTenant):
    kind, says = "channels", "channels that never answer, tried in a loop"
    proofs: ClassVar = {"requests without an answer": 1, "asked": 10}

    async def prepare(self) -> None:
        server = await self._resources.enter_async_context(small_server(self._hang))
        for nth in range(20):
            body = {"via": "webhook", "url": f"{server}/{nth}"}
            await self.make("channels", self.name(f"{nth}"), body=body)
        self._numbers = cycle(range(20))

    async def misbehave(self) -> None:
        await self.at_once(8, self._try)

    async def _try(self) -> None:
        self.happened["asked"] += 1
        name = self.name(f"{next(self._numbers)}")
        await self.ask("POST", f"{self.site.gateway}/v1/channels/{name}/test", json={})

    async def _hang(self, *_: object) -> None:
        self.happened["requests without an answer"] += 1
        await asyncio.Event().wait()


class Tables(WorstTenant):
    kind, says = "tables", "rows of a table, written and listed in a loop"
    proofs: ClassVar = {"answered 200": 20}

    async def prepare(self) -> None:
        self._table = self.name("rows")
        await self.make("tables", self._table)
        self._url = f"{self.site.gateway}/v1/tables/{self._table}/rows"
        self._batch = "\n".join(
            f'{{"key": "k-{n}", "row": {{"says": "{"x" * 200}"}}}}' for n in range(1_000)
        )

    async def misbehave(self) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self.at_once(2, self._write))
            both.create_task(self.at_once(8, self._list))

    async def _write(self) -> None:
        headers = {"content-type": "application/x-ndjson"}
        await self.ask("POST", self._url, content=self._batch, headers=headers)

    async def _list(self) -> None:
        await self.ask("GET", f"{self._url}?limit=1000")


class Writes(WorstTenant):
    kind, says = "writes", "small changes, in a loop"
    proofs: ClassVar = {"answered 200": 20}

    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))

    async def misbehave(self) -> None:
        await self.at_once(16, self._change)

    async def _change(self) -> None:
        self.happened["asked"] += 1
        body = {"key_pointer": f"/m{self.happened['asked']}"}
        await self.ask("PUT", f"{self.site.gateway}/v1/streams/{self.name('in')}", json=body)


class Links(WorstTenant):
    kind, says = "links", "links, signed and followed in a loop"
    proofs: ClassVar = {"followed": 20}

    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))

    async def misbehave(self) -> None:
        await self.at_once(16, self._follow)

    async def _follow(self) -> None:
        made = await self.client.post(
            f"{self.site.gateway}/v1/links", json={}, headers=self.site.headers
        )
        self.happened[f"answered {made.status_code}"] += 1
        if made.is_success:
            answer = await self.client.get(f"{self.site.console}{made.json()['path']}")
            self.happened["followed"] += answer.is_success
