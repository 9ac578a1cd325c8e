"""What watching costs: the whole of Hifi with the audit and without, and how true its p95 is.

(a) end to end, gateway to destination, as fast as it goes: ledger and audit off, on, off, on;
(b) how many events a second the audit gets through, and what memory it holds;
(c) the p95 lag that observe reports beside the one that the destination measured, at a steady pace.
"""

import asyncio
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import httpx

from benchmarks.lag_sink import LagSink, running_lag_sink
from benchmarks.machine import describe
from deploy.local.ports import pick_free
from deploy.local.services import StackSettings
from deploy.local.stack import Stack
from shared.configuration import Stream
from shared.destination import Destination
from shared.metric_names import OBSERVE_AUDIT_RUN_SECONDS, OBSERVE_LAG_SECONDS, OBSERVE_UP
from shared.runtime.config_topic import write_config
from shared.runtime.jars import default_cache
from shared.runtime.topic_admin import topic_admin
from shared.topics import stream_spec

# Ten seconds of work at the pace that two cores have for everything together.
_EVENTS = 120_000
_BATCH = 1_000
_POSTS_AT_ONCE = 4
# `python -m benchmarks.observe 3` makes three; each takes about a minute and a half.
_ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
_EVENT_BYTES = 500
# Late enough that their minute is over: so the whole of the audit's work falls into the round.
_LATE_MS = 180_000
_PACED_BATCHES, _PACED_BATCH, _PACE_S = 200, 20, 0.05
_PATIENCE_S = 120.0
_STREAM = "bench"
_JSON = {"content-type": "application/json"}
# The audit catches up with a round within a few of its runs.
_CATCH_UP_S = 15.0
_AUDIT_ENV = {"HIFI_OBSERVE_AUDIT_INTERVAL_S": "5", "HIFI_OBSERVE_SETTLE_S": "5"}


def main() -> None:
    """Print what was measured, and one JSON object as the last line."""
    with tempfile.TemporaryDirectory() as folder, running_lag_sink() as sink:
        stack = Stack(_settings(Path(folder)), environ=os.environ, say=lambda _: None)
        stack.start(lambda _: None)
        try:
            asyncio.run(_configure(stack, sink))
            p95_error_ms, p95_ms = _lag_error(stack, sink)
            print(
                f"(c) p95           {p95_ms:,.1f} ms at the destination, {p95_error_ms:,.1f} ms off"
            )
            rates: dict[bool, list[float]] = {False: [], True: []}
            memory_mb = []
            for _ in range(_ROUNDS):
                for is_on in (False, True):
                    _restart(stack, is_on=is_on)
                    rates[is_on].append(_flood(stack, sink, _EVENTS))
                    print(f"    {'on' if is_on else 'off'}: {rates[is_on][-1]:,.0f} events/s")
                    if is_on:
                        took_s = _audit_took_s(stack)
                        memory_mb.append(_tree_mb(_pid(stack)))
        finally:
            stack.stop()
    off, on = statistics.median(rates[False]), statistics.median(rates[True])
    print(f"(a) audit off     {off:>10,.0f} events/s   {[round(r) for r in rates[False]]}")
    print(f"    audit on      {on:>10,.0f} events/s   {[round(r) for r in rates[True]]}")
    print(f"(b) audited       {_EVENTS / took_s:>10,.0f} events/s in its slowest run")
    print(f"    memory        {memory_mb} MB after each round with the audit")
    print(
        json.dumps(
            {
                "bench": "observe",
                "audit_cost": round(1 - on / off, 4),
                "events_per_s": round(_EVENTS / took_s),
                "p95_error_ms": round(p95_error_ms, 1),
                "p95_ms": round(p95_ms, 1),
                "memory_mb": memory_mb,
                "off_events_per_s": round(off),
                "on_events_per_s": round(on),
                **describe(),
            }
        )
    )


def _settings(folder: Path) -> StackSettings:
    kafka, gateway, sample, console, *metrics = pick_free(8)
    return StackSettings(
        folder=folder,
        cache=default_cache(),
        kafka_port=kafka,
        gateway_port=gateway,
        gateway_metrics_port=metrics[0],
        delivery_metrics_port=metrics[1],
        retrier_metrics_port=metrics[2],
        observe_metrics_port=metrics[3],
        sample_port=sample,
        console_port=console,
        observe_env=_AUDIT_ENV,
    )


async def _configure(stack: Stack, sink: LagSink) -> None:
    async with topic_admin(stack.bootstrap_servers) as admin:
        await admin.create_missing([stream_spec(_STREAM)])
    to = Destination(stream=_STREAM, name="sink", url=sink.url("quick"))
    await write_config(stack.bootstrap_servers, [Stream(_STREAM), to])


def _restart(stack: Stack, *, is_on: bool) -> None:
    """Start gateway and observe anew, with the ledger and the audit or without."""
    for service in stack.services:
        if service.name not in {"gateway", "observe"}:
            continue
        service.env = {
            **service.env,
            "HIFI_GATEWAY_IS_LEDGER_ON": str(is_on).lower(),
            "HIFI_OBSERVE_IS_AUDIT_ON": str(is_on).lower(),
        }
        stack.restart(service)
    _wait(lambda: all(one.is_ready() for one in stack.services))
    if is_on:
        # Its Spark is up and has had its first run.
        _wait(lambda: (_figure(stack, OBSERVE_AUDIT_RUN_SECONDS.name) or 0) > 0)


def _flood(stack: Stack, sink: LagSink, count: int) -> float:
    """Post as fast as it goes; events per second from the first post to the last delivery."""
    sink.take_lags_ms()
    begun_s = time.perf_counter()
    asyncio.run(_post(stack, count))
    delivered = 0

    def is_done() -> bool:
        nonlocal delivered
        delivered += len(sink.take_lags_ms())
        return delivered >= count

    _wait(is_done)
    return count / (time.perf_counter() - begun_s)


async def _post(stack: Stack, count: int) -> None:
    url = f"http://127.0.0.1:{stack.settings.gateway_port}/v1/streams/{_STREAM}/events"
    gate = asyncio.Semaphore(_POSTS_AT_ONCE)
    async with httpx.AsyncClient(timeout=60, headers=_JSON) as client:

        async def post(number: int) -> None:
            async with gate:
                late_ms = time.time_ns() // 1_000_000 - _LATE_MS
                answer = await client.post(url, content=_body(number, _BATCH, late_ms))
                answer.raise_for_status()

        await asyncio.gather(*(post(number) for number in range(count // _BATCH)))


def _body(number: int, count: int, time_ms: int) -> bytes:
    events = []
    for at in range(count):
        head = b'{"id":"%d-%d-%d","time_ms":%d,"made_ns":%d,"pad":"' % (
            time_ms, number, at, time_ms, time.time_ns(),
        )  # fmt: skip
        events.append(head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}')
    return b"[" + b",".join(events) + b"]"


def _lag_error(stack: Stack, sink: LagSink) -> tuple[float, float]:
    """How far the reported p95 is from that of the destination, and the destination's own."""
    _wait(lambda: _figure(stack, OBSERVE_UP.name) == 1)
    sink.take_lags_ms()
    url = f"http://127.0.0.1:{stack.settings.gateway_port}/v1/streams/{_STREAM}/events"
    with httpx.Client(timeout=60, headers=_JSON) as client:
        for number in range(_PACED_BATCHES):
            now_ms = time.time_ns() // 1_000_000
            client.post(url, content=_body(-number, _PACED_BATCH, now_ms)).raise_for_status()
            time.sleep(_PACE_S)
    wanted = _PACED_BATCHES * _PACED_BATCH
    lags_ms: list[float] = []

    def is_done() -> bool:
        lags_ms.extend(sink.take_lags_ms())
        return len(lags_ms) >= wanted

    _wait(is_done)
    # The sampler looks once a second.
    time.sleep(3)
    p95_ms = sorted(lags_ms)[math.ceil(0.95 * len(lags_ms)) - 1]
    reported_s = _figure(stack, OBSERVE_LAG_SECONDS.name, ("end to end", "event", "0.95"))
    return abs((reported_s or 0.0) * 1000 - p95_ms), p95_ms


def _audit_took_s(stack: Stack) -> float:
    """The longest run of the audit while it catches up with the round."""
    took_s = 0.0
    until_s = time.monotonic() + _CATCH_UP_S
    while time.monotonic() < until_s:
        took_s = max(took_s, _figure(stack, OBSERVE_AUDIT_RUN_SECONDS.name) or 0.0)
        time.sleep(0.5)
    return took_s


def _figure(stack: Stack, name: str, labels: tuple[str, ...] = ()) -> float | None:
    url = f"http://127.0.0.1:{stack.settings.observe_metrics_port}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            page: str = answer.read().decode()
    except OSError:
        return None
    wanted = (f'"{_STREAM}/sink"', *(f'"{label}"' for label in labels)) if labels else ()
    for line in page.splitlines():
        found = re.match(rf"{name}(\{{.*\}})? (\S+)$", line)
        if found and all(label in (found[1] or "") for label in wanted):
            return float(found[2])
    return None


def _pid(stack: Stack) -> int:
    return stack.children["observe"].pid


def _tree_mb(pid: int) -> int:
    """Resident memory of a process and all that it has started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    pages, left = 0, [pid]
    while left:
        one = left.pop()
        left += children.get(one, [])
        try:
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def _wait(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s, "Hifi did not get there in two minutes"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
