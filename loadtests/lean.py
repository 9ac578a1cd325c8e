"""Runs a step without Locust, for half the processor time, on cores that Hifi shares.

`python -m loadtests.lean -H URL --rate 1000 ... --out step.json`: one process with one open loop,
and the same plan, verdict and JSON as the locustfile.
"""

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

from loadtests.arrivals import due_times, plan_of, seconds_of
from loadtests.events import Bodies, acked_of
from loadtests.recorder import Range, Recorder
from loadtests.result import StepPlan, document
from loadtests.slo import Slo

# The same limits as in the locustfile.
_IN_FLIGHT_MAX = 2_000
_TIMEOUT_S = 30.0
_LATE_S_MAX = 5.0


class _Connection(asyncio.Protocol):
    """Sends one request at a time to a server that always gives a content-length."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._read = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head_end = self._read.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._read[:head_end]).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        if len(self._read) < head_end + 4 + length:
            return
        body = bytes(self._read[head_end + 4 :])
        self._read.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    async def post(self, request: bytes) -> tuple[int, bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._answer


class LeanStep:
    """Runs one step: offers each request when it is due, whatever the earlier answers."""

    def __init__(self, host: str, asked: StepPlan, *, api_key: str) -> None:
        url = urlsplit(host)
        assert url.hostname is not None, "the address of a gateway names its host"
        self._where = (url.hostname, url.port or 80)
        self._asked = asked
        self._recorder = Recorder()
        self._bodies = Bodies(asked.run, 0, batch=asked.batch, event_bytes=asked.event_bytes)
        key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
        length = len(self._bodies.body(0, 10**15))
        self._head = (
            f"POST /v1/streams/{asked.stream}/events HTTP/1.1\r\nhost: {url.netloc}\r\n"
            f"content-type: application/json\r\n{key}content-length: {length}\r\n\r\n"
        ).encode()
        self._idle: list[_Connection] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> dict[str, object]:
        asked = self._asked
        roll = random.Random(f"{asked.seed}/0").random  # noqa: S311 - to be repeated
        self._begun_s = time.perf_counter()
        self._begun_us = time.time_ns() // 1000
        self._recorder.note_begun(self._begun_us)
        used = asyncio.create_task(self._measure_cpu())
        await self._offer(due_times(asked.requests, asked.spacing, roll))
        while self._under_way:
            await asyncio.wait(self._under_way)
        await used
        for connection in self._idle:
            connection.close()
        return document(asked, self._recorder)

    async def _offer(self, dues_s: Iterator[float]) -> None:
        number = 0
        for due_s in dues_s:
            now_s = time.perf_counter() - self._begun_s
            if now_s - due_s > _LATE_S_MAX:
                return
            # A sleep of 0 lets open requests proceed.
            await asyncio.sleep(max(0.0, due_s - now_s))
            is_measured = due_s >= self._asked.warmup_s
            if is_measured:
                self._recorder.note_offered(due_s)
            if len(self._under_way) >= _IN_FLIGHT_MAX:
                if is_measured:
                    self._recorder.note_unsent()
                continue
            task = asyncio.create_task(self._post(due_s, number))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            number += self._asked.batch

    async def _post(self, due_s: float, first: int) -> None:
        request = self._head + self._bodies.body(first, self._begun_us + int(due_s * 1e6))
        sent_s = time.perf_counter() - self._begun_s
        acked: list[Range] = []
        try:
            connection = await self._connection()
            status, body = await connection.post(request)
            if connection.is_open:
                self._idle.append(connection)
            what = str(status)
            acked = acked_of(status, body, first, self._asked.batch)
        except (OSError, TimeoutError) as failed:
            what = type(failed).__name__
        ended_s = time.perf_counter() - self._begun_s
        self._recorder.note_acked(0, acked)
        count = sum(end - begin for begin, end in acked)
        if due_s >= self._asked.warmup_s:
            self._recorder.note_answer(
                what,
                is_good=count == self._asked.batch,
                due_s=due_s,
                sent_s=sent_s,
                ended_s=ended_s,
                events=count,
            )

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_TIMEOUT_S):
            _, connection = await loop.create_connection(_Connection, *self._where)
        return connection

    async def _measure_cpu(self) -> None:
        """Measure processor time from the end of the warm-up to the end of the plan."""
        await asyncio.sleep(self._asked.warmup_s)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        await asyncio.sleep(self._asked.events.duration_s)
        self._recorder.note_used(0, time.process_time() - cpu_s, time.perf_counter() - wall_s)


def main() -> None:
    """Run one step and write its JSON."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.lean", description=__doc__)
    parser.add_argument("-H", "--host", required=True)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--plan", default="")
    parser.add_argument("--duration", type=seconds_of, default=60.0)
    parser.add_argument("--warm-up", type=seconds_of, default=15.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--event-bytes", type=int, default=500)
    parser.add_argument("--stream", default="rating")
    parser.add_argument("--slo-p99-ms", type=float, default=100.0)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.plan:
        # Reports errors in the plan before anything is sent.
        plan_of(given.plan)
    asked = StepPlan(
        run=given.run_id,
        stream=given.stream,
        rate=given.rate,
        plan=given.plan,
        duration_s=given.duration,
        warmup_s=given.warm_up,
        batch=given.batch,
        event_bytes=given.event_bytes,
        slo=Slo(p99_ms=given.slo_p99_ms),
    )
    step = LeanStep(given.host, asked, api_key=os.environ.get("HIFI_API_KEY", ""))
    given.out.write_text(json.dumps(uvloop.run(step.run())))


if __name__ == "__main__":
    main()
