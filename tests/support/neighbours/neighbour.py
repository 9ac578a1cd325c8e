"""Plays a tenant that does nothing wrong, and notes how long everything takes.

It asks when a request is due, whatever happened to the earlier ones: a client that waits for an
answer before it asks again does not notice that Hifi stood still (ADR 0063).
"""

import asyncio
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiokafka import TopicPartition

from shared.event.topics import stream_topic
from shared.runtime.kafka.clients import new_consumer
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.neighbours.figures import Window
from tests.support.neighbours.quick_client import QuickClient
from tests.support.neighbours.site import Site, sign_in
from tests.support.neighbours.small_server import reply, small_server

# Changes go through Kafka one after the other: a gateway makes some ten a second.
EVENTS_PER_S, PAGES_PER_S, WRITES_PER_S = 20.0, 8.0, 3.0
# Counted from when the post was due.
_COME = ("deliver", "pipeline")
# The last probe measures the neighbour itself: how late it begins to ask.
PROBES = ("post", *_COME, "write", "page", "alert", "itself")
_OF_EVENTS = {*_COME, "itself"}
_TIMEOUT_S = 30.0
_READY_S = 240.0
# By then all events have arrived, or never will.
_COME_S, _LOOK_S = 90.0, 0.1
_PARTITIONS = 4


@dataclass
class Neighbour:
    """A tenant with a stream, a destination, a pipeline into another stream, and viewers.

    Times are by the monotonic clock, and counted from when a request was due.
    """

    site: Site
    kafka: str
    # By probe and number: when the request was due, and when its answer was there.
    due: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    came: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    # Failures, in words.
    failed: list[str] = field(default_factory=list)
    # The numbers of acknowledged events.
    acknowledged: set[int] = field(default_factory=set)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _is_up: threading.Event = field(default_factory=threading.Event)

    @property
    def stream(self) -> str:
        return f"{self.site.tenant}-in"

    @property
    def output(self) -> str:
        return f"{self.site.tenant}-out"

    def window(self, from_s: float, to_s: float) -> Window:
        """Return times of probes due in that span; unanswered ones count with their wait so far."""
        now_s = time.monotonic()
        return Window(
            {
                probe: [
                    (self.came[probe].get(nth, now_s) - due_s) * 1_000
                    for nth, due_s in self._due(probe).items()
                    if from_s <= due_s < to_s
                ]
                for probe in PROBES
            }
        )

    def _due(self, probe: str) -> dict[int, float]:
        """Return a copy of the current times, which grow meanwhile."""
        return self.due["post" if probe in _OF_EVENTS else probe].copy()

    def waited_for(self) -> dict[str, int]:
        """Return how many acknowledged events had no delivery, or no pipeline output, in time."""
        owed = self.acknowledged.copy()
        until_s = time.monotonic() + _COME_S
        while (missing := self._missing(owed)) and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        return missing

    def _missing(self, owed: set[int]) -> dict[str, int]:
        found = {probe: len(owed - self.came[probe].keys()) for probe in _COME}
        return {probe: count for probe, count in found.items() if count}

    async def live(self) -> None:
        async with AsyncExitStack() as resources:
            enter = resources.enter_async_context
            server = await enter(small_server(self._take))
            await asyncio.to_thread(self._set_up, server)
            async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
                cookie = await sign_in(client, self.site.console, self.site.key)
            gateway = QuickClient(self.site.gateway, self.site.headers)
            console = QuickClient(self.site.console, {"cookie": cookie})
            resources.callback(gateway.close)
            resources.callback(console.close)
            consumer = new_consumer(self.kafka)
            topic = stream_topic(self.output)
            consumer.assign([TopicPartition(topic, nth) for nth in range(_PARTITIONS)])
            await consumer.start()
            resources.push_async_callback(consumer.stop)
            tasks = [
                asyncio.create_task(each)
                for each in (
                    self._read(consumer),
                    self._every("post", EVENTS_PER_S, lambda nth: self._post(gateway, nth)),
                    self._every("write", WRITES_PER_S, lambda nth: self._write(gateway, nth)),
                    self._every("page", PAGES_PER_S, lambda _: console.ask("GET", "/")),
                    self._every("alert", PAGES_PER_S, lambda _: console.ask("GET", "/alerts")),
                )
            ]
            self._is_up.set()
            tasks.append(asyncio.create_task(self._stopped()))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                task.result()

    async def _stopped(self) -> None:
        await self._stop.wait()

    def _set_up(self, server: str) -> None:
        for stream in (self.stream, self.output):
            self.site.call("PUT", "streams", stream, body={"partition_count": _PARTITIONS})
        path = "streams", self.stream, "destinations", "steady"
        self.site.call("PUT", *path, body={"url": server})
        document = {
            "from": {"stream": self.stream},
            "schema": "n BIGINT, says STRING",
            "steps": [{"where": "n >= 0"}, {"select": {"n": "n", "says": "upper(says)"}}],
            "to": [{"stream": self.output}],
        }
        name = f"{self.site.tenant}-steady"
        self.site.call("PUT", "pipelines", name, body=document)

        def is_running() -> bool:
            state = self.site.call("GET", "pipelines", name)["state"]
            return bool(state["standing"] == "running")

        wait_until(is_running, what="the neighbour's pipeline runs", timeout_s=_READY_S)

    async def _every(self, probe: str, per_s: float, ask: Callable[[int], Awaitable[int]]) -> None:
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as asking:
            for nth in itertools.count():
                self.due[probe][nth] = due_s = begun_s + nth / per_s
                await asyncio.sleep(due_s - time.monotonic())
                if probe == "post":
                    self.came["itself"][nth] = time.monotonic()
                asking.create_task(self._ask(probe, nth, ask))

    async def _ask(self, probe: str, nth: int, ask: Callable[[int], Awaitable[int]]) -> None:
        try:
            status = await ask(nth)
            if status not in {200, 201}:
                self.failed.append(f"{probe}: {status}")
        except (OSError, EOFError) as error:
            self.failed.append(f"{probe}: {error!r}")
        self.came[probe][nth] = time.monotonic()

    async def _post(self, gateway: QuickClient, nth: int) -> int:
        event = {"id": f"{self.site.tenant}-{nth}", "n": nth, "says": "x" * 60}
        path = f"/v1/streams/{self.stream}/events"
        status = await gateway.ask("POST", path, json.dumps(event).encode())
        if status == httpx.codes.OK:
            self.acknowledged.add(nth)
        return status

    async def _write(self, gateway: QuickClient, nth: int) -> int:
        """Make a small change of an object that nothing else depends on."""
        body = {"partition_count": 1, "key_pointer": f"/m{nth % 7}"}
        path = f"/v1/streams/{self.site.tenant}-notes"
        return await gateway.ask("PUT", path, json.dumps(body).encode())

    async def _take(self, _: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        now_s = time.monotonic()
        for event in json.loads(body):
            self.came["deliver"].setdefault(event["n"], now_s)
        writer.write(reply(200))

    async def _read(self, consumer: Any) -> None:
        async for record in consumer:
            self.came["pipeline"].setdefault(json.loads(record.value)["n"], time.monotonic())

    def wait_until_up(self, thread: threading.Thread) -> None:
        wait_until(
            lambda: self._is_up.is_set() or not thread.is_alive(),
            what="the neighbour is at work",
            timeout_s=_READY_S,
        )
        assert thread.is_alive(), "the neighbour has not begun: see the thread's error"
        wait_until(
            lambda: len(self.came["pipeline"]) > 0,
            what="its first event arrived",
            timeout_s=_READY_S,
        )

    def end(self, thread: threading.Thread, loop: asyncio.AbstractEventLoop) -> None:
        """Stop, and remove the objects that would cost others work."""
        if thread.is_alive():
            loop.call_soon_threadsafe(self._stop.set)
            thread.join(_TIMEOUT_S)
            self.site.call("DELETE", "streams", self.stream, "destinations", "steady")
            self.site.call("DELETE", "pipelines", f"{self.site.tenant}-steady")


@contextmanager
def neighbour(site: Site, kafka: str) -> Iterator[Neighbour]:
    """Run a neighbour in a thread until the block ends."""
    living = Neighbour(site, kafka)
    loop = asyncio.new_event_loop()

    def live() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(living.live())

    thread = threading.Thread(target=live, name="neighbour", daemon=True)
    thread.start()
    try:
        living.wait_until_up(thread)
        yield living
    finally:
        living.end(thread, loop)
    assert not thread.is_alive(), "the neighbour does not end"
