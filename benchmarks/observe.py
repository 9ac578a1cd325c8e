"""Measures what observe costs Hifi, and the error of the p95 that it reports.

(a) The rate from gateway to destination at full speed, with ledger and audit off, on, on, off. The
audit runs every 20 s, and the events' own clock runs three times as fast, so that there are three
times as many runs, minutes and statements as usual, at three times the cost. (b) How many events
per second the audit handles, and its memory with a stream ten times as long. (c) The reported p95
lag against the destination's own, at a steady pace. (d) The cost of the index of events, measured
with the index off and on and everything else on, and how fast it finds one of ten million.
`python -m benchmarks.observe [rounds]`.
"""

import asyncio
import math
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.audit_pace import pace
from benchmarks.find import ENTRIES, find_ms
from benchmarks.lag_sink import LagSink, running_lag_sink
from benchmarks.process_tree import used_by
from benchmarks.report import report
from deploy.local.ports import pick_free
from deploy.local.stack import Stack
from deploy.local.stack_settings import StackSettings
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.topics import stream_spec
from shared.metric_names import OBSERVE_AUDIT_RUN_SECONDS, OBSERVE_LAG_SECONDS, OBSERVE_UP
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.config_records import write_config

# The first number is 40 s of work on two cores that run everything, or two runs of the audit. The
# second is sent before that, so that the audit is equally far behind at the beginning and the end.
_EVENTS, _WARM_UP_EVENTS = 640_000, 400_000
_BATCH = 1_000
_POSTS_AT_ONCE = 4
# A round takes five minutes.
_ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
_EVENT_BYTES = 500
# Events have times of yesterday evening, on a fast clock: each audit run gets a new minute.
_LATE_MS, _TIMES_AS_FAST = 12 * 3_600_000, 3
_PACED_BATCHES, _PACED_BATCH, _PACE_S = 200, 20, 0.05
_PATIENCE_S = 120.0
_BEGAN_MS = time.time_ns() // 1_000_000
# The audit reads events without a ledger from the log if earlier events of the stream have one. So
# events with and without a ledger have separate streams.
_STREAM, _STREAM_OFF = "bench", "bench-off"
_JSON = {"content-type": "application/json"}
_INTERVAL_S = 20
_AUDIT_ENV = {"HIFI_OBSERVE_AUDIT_INTERVAL_S": str(_INTERVAL_S), "HIFI_OBSERVE_CHECK_AFTER_S": "5"}


# Modes: neither ledger nor audit; both, without the index; all three.
_OFF, _UNINDEXED, _ON = _MODES = ("off", "no index", "on")


@dataclass(slots=True)
class Flood:
    """The results of one flood."""

    events_per_s: float
    # Cores that observe used meanwhile, on average.
    observe_cores: float


def main() -> None:
    """Print the results, and one JSON object as the last line."""
    paced = pace()
    print(
        f"(b) audited       {paced.events_per_s:>10,.0f} events/s of a minute with 20,000 a second,"
        f" in {paced.busy.took_s:.1f} s, {paced.busy.processor_s:.1f} s of a core\n"
        f"    small minutes {paced.warm_s:>10.1f} s, {paced.warm_processor_s:.1f} s of a core;"
        f" the first run {paced.first.took_s:.1f} s, {paced.first.processor_s:.1f} s of a core\n"
        f"    just started  {paced.cold_events_per_s:>10,.0f} events/s, all in"
        f" {paced.all_at_once.took_s:.1f} s, then {paced.all_at_once.memory_mb:,} MB\n"
        f"    memory        {paced.memory_mb} MB, the second with a stream ten times as long"
    )
    floods, p95_error_ms, p95_ms, (took_ms, nothing_ms) = _whole()
    off, unindexed, on = (
        statistics.median(f.events_per_s for f in floods[mode]) for mode in _MODES
    )
    costs, shares = (
        [
            1 - on.events_per_s / less.events_per_s
            for less, on in zip(floods[mode], floods[_ON], strict=True)
        ]
        for mode in (_OFF, _UNINDEXED)
    )
    cores = {mode: statistics.mean(f.observe_cores for f in floods[mode]) for mode in _MODES}
    print(f"(a) audit off     {off:>10,.0f} events/s, observe takes {cores[_OFF]:.2f} of a core")
    print(f"    audit on      {on:>10,.0f} events/s, observe takes {cores[_ON]:.2f} of a core")
    print(f"    cost by round {[round(cost, 4) for cost in costs]}")
    print(
        f"(d) no index      {unindexed:>10,.0f} events/s, observe takes"
        f" {cores[_UNINDEXED]:.2f} of a core; by round {[round(share, 4) for share in shares]}"
    )
    found_in = {**_shown("find", took_ms), **_shown("find_nothing", nothing_ms)}
    print(f"    finding one of {ENTRIES:,} events, and an unknown one: {found_in}")
    report(
        "observe",
        {
            "audit_cost": round(1 - on / off, 4),
            "audit_cost_by_round": [round(cost, 4) for cost in costs],
            "audit_interval_s": _INTERVAL_S,
            "observe_cores_off": round(cores[_OFF], 3),
            "observe_cores_on": round(cores[_ON], 3),
            "index_share": round(1 - on / unindexed, 4),
            "index_share_by_round": [round(share, 4) for share in shares],
            "index_cores": round(cores[_ON] - cores[_UNINDEXED], 3),
            **found_in,
            "find_entries": ENTRIES,
            "off_events_per_s": round(off),
            "on_events_per_s": round(on),
            "events_per_s": round(paced.events_per_s),
            "cold_events_per_s": round(paced.cold_events_per_s),
            "run_processor_s": round(paced.warm_processor_s, 2),
            "first_run_processor_s": round(paced.first.processor_s, 1),
            "memory_mb": paced.memory_mb,
            "p95_error_ms": round(p95_error_ms, 1),
            "p95_ms": round(p95_ms, 1),
        },
    )


def _shown(what: str, took_ms: list[float]) -> dict[str, float]:
    return {
        f"{what}_ms_p{round(100 * part)}": round(took_ms[round(part * (len(took_ms) - 1))], 1)
        for part in (0.5, 0.99)
    }


def _whole() -> tuple[dict[str, list[Flood]], float, float, tuple[list[float], list[float]]]:
    """Return the floods by mode, the p95 error and the p95 itself, and the times of searches."""
    with tempfile.TemporaryDirectory() as folder, running_lag_sink() as sink:
        environ = {**os.environ, **_AUDIT_ENV}
        stack = Stack(_settings(Path(folder)), environ=environ, say=lambda _: None)
        stack.start(lambda _: None)
        try:
            asyncio.run(_configure(stack, sink))
            p95_error_ms, p95_ms = _lag_error(stack, sink)
            print(
                f"(c) p95           {p95_ms:,.1f} ms at the destination, {p95_error_ms:,.1f} ms off"
            )
            floods: dict[str, list[Flood]] = {mode: [] for mode in _MODES}
            for number in range(_ROUNDS):
                # The order alternates, so that slow growth favours no mode.
                for mode in _MODES if number % 2 == 0 else reversed(_MODES):
                    _restart(stack, mode)
                    stream = _STREAM_OFF if mode == _OFF else _STREAM
                    _flood(stack, sink, stream, _WARM_UP_EVENTS)
                    last = _flood(stack, sink, stream, _EVENTS)
                    floods[mode].append(last)
                    print(
                        f"    {mode}: {last.events_per_s:,.0f} events/s,"
                        f" observe {last.observe_cores:.2f} cores"
                    )
            _restart(stack, _ON)
            tenant = Stream(_STREAM).tenant
            url = _url(stack, _STREAM)
            took_ms = find_ms(stack, url, stream=_STREAM, tenant=tenant, wait=_wait)
        finally:
            stack.stop()
    return floods, p95_error_ms, p95_ms, took_ms


def _settings(folder: Path) -> StackSettings:
    kafka, gateway, sample, console, *metrics = pick_free(9)
    return StackSettings(
        folder=folder,
        cache=default_cache(),
        kafka_port=kafka,
        gateway_port=gateway,
        gateway_metrics_port=metrics[0],
        delivery_metrics_port=metrics[1],
        retrier_metrics_port=metrics[2],
        observe_metrics_port=metrics[3],
        pipelines_metrics_port=metrics[4],
        sample_port=sample,
        console_port=console,
    )


async def _configure(stack: Stack, sink: LagSink) -> None:
    async with topic_admin(stack.bootstrap_servers) as admin:
        await admin.create_missing([stream_spec(_STREAM), stream_spec(_STREAM_OFF)])
    for stream in (_STREAM, _STREAM_OFF):
        to = Destination(stream=stream, name="sink", url=sink.url("quick"))
        await write_config(stack.bootstrap_servers, [Stream(stream), to])


def _restart(stack: Stack, mode: str) -> None:
    """Restart gateway and observe, with or without the ledger, the audit and the index."""
    is_on = mode != _OFF
    for service in stack.services:
        if service.name not in {"gateway", "observe"}:
            continue
        service.env = {
            **service.env,
            "HIFI_GATEWAY_IS_LEDGER_ON": str(is_on).lower(),
            "HIFI_OBSERVE_IS_AUDIT_ON": str(is_on).lower(),
            "HIFI_OBSERVE_INDEX_BYTES_MAX": "1000000000" if mode == _ON else "0",
        }
        stack.children[service.name].stop(_PATIENCE_S)
        stack.spawn(service)
    _wait(lambda: all(one.is_ready() for one in stack.services))
    if is_on:
        # Wait until its Spark is up and has finished the first run.
        _wait(lambda: (_figure(stack, OBSERVE_AUDIT_RUN_SECONDS.name) or 0) > 0)


def _flood(stack: Stack, sink: LagSink, stream: str, count: int) -> Flood:
    """Post at full speed; return events per second from the first post to the last delivery."""
    sink.take_lags_ms()
    before_s, _ = used_by(stack.children["observe"].pid)
    begun_s = time.perf_counter()
    asyncio.run(_post(_url(stack, stream), count))
    delivered = 0

    def is_done() -> bool:
        nonlocal delivered
        delivered += len(sink.take_lags_ms())
        return delivered >= count

    _wait(is_done)
    took_s = time.perf_counter() - begun_s
    after_s, _ = used_by(stack.children["observe"].pid)
    return Flood(count / took_s, (after_s - before_s) / took_s)


def _url(stack: Stack, stream: str) -> str:
    return f"http://127.0.0.1:{stack.settings.gateway_port}/v1/streams/{stream}/events"


async def _post(url: str, count: int) -> None:
    gate = asyncio.Semaphore(_POSTS_AT_ONCE)
    async with httpx.AsyncClient(timeout=60, headers=_JSON) as client:

        async def post(number: int) -> None:
            async with gate:
                answer = await client.post(url, content=_body(number, _BATCH, _fast_ms()))
                answer.raise_for_status()

        await asyncio.gather(*(post(number) for number in range(count // _BATCH)))


def _fast_ms() -> int:
    """Return the time by a clock that started `_LATE_MS` ago and runs too fast."""
    return _BEGAN_MS - _LATE_MS + (time.time_ns() // 1_000_000 - _BEGAN_MS) * _TIMES_AS_FAST


def _body(number: int, count: int, time_ms: int) -> bytes:
    events = []
    for at in range(count):
        head = b'{"id":"%d-%d-%d","time_ms":%d,"made_ns":%d,"pad":"' % (
            time_ms, number, at, time_ms, time.time_ns(),
        )  # fmt: skip
        events.append(head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}')
    return b"[" + b",".join(events) + b"]"


def _lag_error(stack: Stack, sink: LagSink) -> tuple[float, float]:
    """Return the error of the reported p95 against the destination's, and the destination's p95."""
    _wait(lambda: _figure(stack, OBSERVE_UP.name) == 1)
    sink.take_lags_ms()
    with httpx.Client(timeout=60, headers=_JSON) as client:
        for number in range(_PACED_BATCHES):
            now_ms = time.time_ns() // 1_000_000
            client.post(
                _url(stack, _STREAM), content=_body(-number, _PACED_BATCH, now_ms)
            ).raise_for_status()
            time.sleep(_PACE_S)
    wanted = _PACED_BATCHES * _PACED_BATCH
    lags_ms: list[float] = []

    def is_done() -> bool:
        lags_ms.extend(sink.take_lags_ms())
        return len(lags_ms) >= wanted

    _wait(is_done)
    # The sampler runs once a second.
    time.sleep(3)
    p95_ms = sorted(lags_ms)[math.ceil(0.95 * len(lags_ms)) - 1]
    reported_s = _figure(stack, OBSERVE_LAG_SECONDS.name, ("end to end", "event", "95"))
    assert reported_s is not None, "observe reports no p95"
    return abs(reported_s * 1000 - p95_ms), p95_ms


def _figure(stack: Stack, name: str, labels: tuple[str, ...] = ()) -> float | None:
    url = f"http://127.0.0.1:{stack.settings.observe_metrics_port}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            page: str = answer.read().decode()
    except OSError:
        return None
    wanted = (f'"{_STREAM}/sink"', *(f'"{label}"' for label in labels)) if labels else ()
    for line in page.splitlines():
        match = re.match(rf"{name}(\{{.*\}})? (\S+)$", line)
        if match and all(label in (match[1] or "") for label in wanted):
            return float(match[2])
    return None


def _wait(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s, "the awaited state did not come in two minutes"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
