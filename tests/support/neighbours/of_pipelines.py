"""Plays tenants whose documents and events are meant to harm the processes of pipelines."""

import asyncio
from itertools import count
from typing import Any, ClassVar

from shared.runtime.control_client import RefusedError
from tests.support.neighbours.worst_tenant import WorstTenant

# Two bytes of an event become two kilobytes of memory.
_WIDE = ", ".join(f"c{nth}: INT" for nth in range(490))
_BOMB: list[dict[str, int]] = [{}] * 300_000
# The most expensive pattern that is accepted: 500 million steps for an event.
_STEEP = "left(a, 1024) RLIKE 'a*a*b'"
_HOSTILE = (
    {"schema": "a STRING", "steps": [{"where": f"length({'hex(' * 40}a{')' * 40}) > 0"}]},
    {"schema": "a STRING", "steps": [{"where": "a = repeat(repeat(repeat('x',1000),1000),1000)"}]},
    {"schema": "a STRING", "steps": [{"where": "size(split(repeat(a, 30), '')) > 0"}]},
    {"schema": "a STRING", "steps": [{"where": "left(a, 1000) RLIKE '(a|aa)+$'"}]},
    {"schema": f"a ARRAY<STRUCT<{_WIDE}>>", "steps": [{"where": "size(a) > 0"}]},
    {
        "schema": "a STRING",
        "steps": [{"select": {f"c{n}": f"split(concat(a, '{n}'), '')" for n in range(20)}}],
    },
    {
        "schema": "a STRING",
        "steps": [{"select": {"d": "CAST(a AS DECIMAL(10, 2))"}}],
        "tests": [{"given": [{"a": "1e-400000000"}], "expect": [{}]}],
    },
    {
        "schema": "a STRING",
        "steps": [{"select": {f"c{n}": f"concat(a, '{'x' * 200}', a)" for n in range(100)}}],
    },
)


class _WithPipeline(WorstTenant):
    document: ClassVar[dict[str, Any]]

    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))
        await self.make("streams", self.name("out"))
        body = {
            "from": {"stream": self.name("in")},
            "to": [{"stream": self.name("out")}],
            **self.document,
        }
        await self.make("pipelines", self.name("worst"), body=body)
        await self.running(self.name("worst"))

    async def look_back(self) -> None:
        found = await self.call("GET", "streams", self.name("in"), "dead-letters")
        self.happened["dead letters"] = len(found["dead_letters"])


class Memory(_WithPipeline):
    kind, says = "memory", "events that would take all memory"
    proofs: ClassVar = {"events taken": 1, "dead letters": 1}
    document: ClassVar = {
        "schema": f"id BIGINT, a ARRAY<STRUCT<{_WIDE}>>",
        "steps": [{"where": "size(a) > 0"}],
    }

    async def misbehave(self) -> None:
        while True:
            await self.post(self.name("in"), [{"id": 1, "a": _BOMB}, {"id": 2, "a": [{}]}])
            await asyncio.sleep(2)


class Executors(_WithPipeline):
    """Uses a function that an operator has allowed, and whose memory need is unknown."""

    kind, says = "executors", "events that end the executor"
    proofs: ClassVar = {"events taken": 1, "executors ended": 1}
    ends_executors = True
    # On a busy machine it takes this long until the memory is full.
    window_s = 45.0
    document: ClassVar = {
        "schema": "id BIGINT",
        "steps": [{"call": "fraud.vast"}, {"select": {"id": "id", "size": "length(much)"}}],
    }

    async def misbehave(self) -> None:
        while True:
            await self.post(self.name("in"), [{"id": nth} for nth in range(10)])
            await asyncio.sleep(2)


class Numbers(_WithPipeline):
    kind, says = "numbers", "numbers that would take hours to write out"
    proofs: ClassVar = {"events taken": 50, "dead letters": 1}
    document: ClassVar = {
        "schema": "x DECIMAL(38,0), y STRING",
        "steps": [{"select": {"x": "x", "y": "CAST(y AS DECIMAL(10,2))"}}],
    }

    async def misbehave(self) -> None:
        event = b'{"x":1e100000000,"y":"1e-100000000"}'
        body = b"[" + b",".join([event] * 20) + b"]"
        url = f"{self.site.gateway}/v1/streams/{self.name('in')}/events"
        while True:
            said = {"content-type": "application/json"}
            if await self.ask("POST", url, content=body, headers=said) == 200:
                self.happened["events taken"] += 20
            await asyncio.sleep(0.2)


class Patterns(_WithPipeline):
    kind, says = "patterns", "the most expensive accepted pattern, on its most expensive text"
    proofs: ClassVar = {"events taken": 50}
    document: ClassVar = {"schema": "a STRING", "steps": [{"where": _STEEP}]}

    async def misbehave(self) -> None:
        while True:
            await self.post(self.name("in"), [{"a": "a" * 1_024}] * 20)
            await asyncio.sleep(0.2)


class Documents(WorstTenant):
    kind, says = "documents", "hostile documents, one after the other"
    proofs: ClassVar = {"documents put": 8}

    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))
        await self.make("streams", self.name("out"))
        self._made += [("pipelines", self.name(f"worst-{nth}")) for nth in range(len(_HOSTILE))]

    async def misbehave(self) -> None:
        for nth in count():
            which = nth % len(_HOSTILE)
            # Each document differs from the last one of its name.
            where = {"where": f"{nth} >= 0"}
            hostile = _HOSTILE[which]
            body = {
                "from": {"stream": self.name("in")},
                "to": [{"stream": self.name("out")}],
                **hostile,
                "steps": [where, *hostile["steps"]],
            }
            try:
                await self.call("PUT", "pipelines", self.name(f"worst-{which}"), body=body)
                self.happened["documents put"] += 1
            except RefusedError as error:
                self.happened[f"answered {error.status}"] += 1
                await asyncio.sleep(1)
            await asyncio.sleep(0.1)

    async def look_back(self) -> None:
        for nth in range(len(_HOSTILE)):
            try:
                told = await self.call("GET", "pipelines", self.name(f"worst-{nth}"))
            except RefusedError:
                continue
            self.happened[f"is {told['state']['standing']}"] += 1


class Trials(WorstTenant):
    kind, says = "trials", "trials of pipelines in a loop"
    proofs: ClassVar = {"asked": 10}

    async def prepare(self) -> None:
        await self.make("streams", self.name("in"))
        await self.make("streams", self.name("out"))

    async def misbehave(self) -> None:
        await self.at_once(8, self._try)

    async def _try(self) -> None:
        self.happened["asked"] += 1
        document = {
            "from": {"stream": self.name("in")},
            "to": [{"stream": self.name("out")}],
            "schema": "a STRING",
            "steps": [{"where": f"{self.happened['asked']} > 0 AND {_STEEP}"}],
        }
        url = f"{self.site.gateway}/v1/pipelines/{self.name('worst')}/try"
        events = [{"a": "a" * 1_024}] * 20
        await self.ask("POST", url, json={"document": document, "events": events})
