"""Measures the gateway against its two halves at their best, interleaved, in one run.

(a) raw: one loop of librdkafka produces the same events to the same broker, acks=all, idempotent,
    and waits for the report of each, as the gateway does. `blind` is the same without reports.
(b) read: a FastAPI route that reads its body and answers.
(c) the gateway with one worker: requests of 1, 100 and 1,000 events of 500 bytes.
Generator, broker and gateway share the machine. The result includes the processor time of the
gateway's process alone. `python -m benchmarks.gateway [rounds] [seconds] [folder]`: `folder` is
another checkout: its gateway and this one take turns at single events, on the same Python.
"""

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.events import body
from benchmarks.process_tree import used_by
from benchmarks.report import report
from benchmarks.wrk import Load, load, require_wrk
from deploy.local.cluster import Cluster
from shared.config.configuration import Stream
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.config_records import write_config

# Events in a request, and the number of connections. For the largest requests 8 connections keep
# both cores busy (4 MB under way); with 32 the open requests no longer fit into the cores' caches.
_CONNECTIONS = {1: 32, 100: 32, 1_000: 8}
_SIZES = tuple(_CONNECTIONS)
_ROUNDS, _DURATION_S = 5, 4.0
_STREAM, _RAW_STREAM = "bench", "bench-raw"


@dataclass
class Figures:
    """The results of the rounds."""

    raw_events_per_s: list[float] = field(default_factory=list)
    blind_events_per_s: list[float] = field(default_factory=list)
    read: list[Load] = field(default_factory=list)
    gateway: dict[int, list[Load]] = field(default_factory=lambda: {size: [] for size in _SIZES})
    cores_busy: dict[int, list[float]] = field(
        default_factory=lambda: {size: [] for size in _SIZES}
    )
    # Processor time of the gateway alone, for a request of one event.
    us_per_single: list[float] = field(default_factory=list)
    beside: list[Load] = field(default_factory=list)
    us_per_single_beside: list[float] = field(default_factory=list)
    rss_mb: float = 0.0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class EventsServer:
    """A process that serves the events path."""

    pid: int
    url: str


def main() -> None:
    require_wrk()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    duration_s = float(sys.argv[2]) if len(sys.argv) > 2 else _DURATION_S  # noqa: PLR2004
    other = Path(sys.argv[3]) if len(sys.argv) > 3 else None  # noqa: PLR2004
    with (
        tempfile.TemporaryDirectory() as name,
        Cluster(folder=Path(name) / "kafka", cache=default_cache()) as cluster,
    ):
        asyncio.run(_prepare(cluster.bootstrap_servers))
        servers = cluster.bootstrap_servers
        with (
            _gateway(servers) as gateway,
            _gateway(servers, other) if other else nullcontext() as beside,
            _reader() as reader,
        ):
            figures = Figures()
            all_served = gateway, reader, beside
            # A warm-up round for connections, caches and the JVM's compiler, without figures.
            _round(Figures(), cluster, all_served, duration_s=2, folder=Path(name))
            for number in range(rounds):
                _round(figures, cluster, all_served, duration_s, folder=Path(name))
                print(f"round {number + 1} of {rounds} is done", file=sys.stderr)
            figures.rss_mb = _peak_rss_mb(gateway.pid)
    _print(figures)


def _round(
    figures: Figures,
    cluster: Cluster,
    all_served: tuple[EventsServer, EventsServer, EventsServer | None],
    duration_s: float,
    *,
    folder: Path,
) -> None:
    gateway, reader, beside = all_served
    figures.raw_events_per_s.append(_raw(cluster, duration_s, "reports"))
    figures.blind_events_per_s.append(_raw(cluster, duration_s, "blind"))

    def run(served: EventsServer, size: int) -> Load:
        return load(
            served.url,
            body(size),
            connections=_CONNECTIONS[size],
            duration_s=duration_s,
            folder=folder,
        )

    figures.read.append(run(reader, 1))
    for size in _SIZES:
        begun_s, (begun_cpu_s, _) = time.perf_counter(), used_by(gateway.pid)
        measured = run(gateway, size)
        took_s = time.perf_counter() - begun_s
        cpu_s = used_by(gateway.pid)[0] - begun_cpu_s
        figures.cores_busy[size].append(cpu_s / took_s)
        figures.gateway[size].append(measured)
        figures.errors += measured.errors
        if size == 1:
            figures.us_per_single.append(cpu_s * 1e6 / (measured.requests_per_s * duration_s))
    if beside is not None:
        begun_cpu_s = used_by(beside.pid)[0]
        measured = run(beside, 1)
        cpu_s = used_by(beside.pid)[0] - begun_cpu_s
        figures.beside.append(measured)
        figures.us_per_single_beside.append(cpu_s * 1e6 / (measured.requests_per_s * duration_s))


def _raw(cluster: Cluster, duration_s: float, how: str) -> float:
    argv = [cluster.bootstrap_servers, stream_topic(_RAW_STREAM), str(duration_s), how]
    command = [sys.executable, "-m", "benchmarks.raw_produce", *argv]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return float(output)


async def _prepare(servers: str) -> None:
    async with topic_admin(servers) as admin:
        streams = [stream_spec(_STREAM), stream_spec(_RAW_STREAM)]
        await admin.create_missing([*fixed_specs(["30s"]), *streams])
    await write_config(servers, [Stream(_STREAM)])


@contextmanager
def _gateway(servers: str, checkout: Path | None = None) -> Iterator[EventsServer]:
    environment = {
        **os.environ,
        # The checkout comes before the installed packages.
        **({} if checkout is None else {"PYTHONPATH": str(checkout.resolve())}),
        "HIFI_GATEWAY_BOOTSTRAP_SERVERS": servers,
        "HIFI_GATEWAY_AUTH": "off",
        "HIFI_GATEWAY_PORT": "0",
        "HIFI_GATEWAY_METRICS_PORT": "0",
    }

    def port_of(process: subprocess.Popen[str]) -> int:
        assert process.stderr is not None
        for line in process.stderr:
            if '"gateway.started"' in line:
                return int(json.loads(line)["port"])
        raise RuntimeError("the gateway ended instead of starting")

    argv = [sys.executable, "-m", "gateway"]
    with _served(argv, environment, port_of, folder=checkout) as served:
        yield served


@contextmanager
def _reader() -> Iterator[EventsServer]:
    def port_of(process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        return int(process.stdout.readline())

    argv = [sys.executable, "-m", "benchmarks.read_body"]
    with _served(argv, dict(os.environ), port_of) as served:
        yield served


@contextmanager
def _served(
    argv: list[str],
    environment: dict[str, str],
    port_of: Callable[[subprocess.Popen[str]], int],
    *,
    folder: Path | None = None,
) -> Iterator[EventsServer]:
    process = subprocess.Popen(
        argv, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        url = f"http://127.0.0.1:{port_of(process)}/v1/streams/{_STREAM}/events"
        httpx.post(url, json=[], timeout=10).raise_for_status()
        yield EventsServer(process.pid, url)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _peak_rss_mb(pid: int) -> float:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None, "Linux reports the peak memory of every process"
    return int(match[1]) / 1_000


def _print(figures: Figures) -> None:
    raw, read = figures.raw_events_per_s, [run.requests_per_s for run in figures.read]
    print(f"\n| what | events/s | requests/s | p50 ms | p99 ms | cores |\n|{'---|' * 6}")
    blind = _median(figures.blind_events_per_s)
    print(f"| (a) raw librdkafka | {_median(raw):,.0f} | | | | |")
    print(f"| the same without reports | {blind:,.0f} | | | | |")
    print(f"| (b) route that reads | | {_median(read):,.0f} | {_p(figures.read)} | |")
    ratios: dict[int, float] = {}
    for size, runs in figures.gateway.items():
        rates = [run.requests_per_s for run in runs]
        events, cores = size * _median(rates), _median(figures.cores_busy[size])
        print(
            f"| (c) batch {size} | {events:,.0f} | {_median(rates):,.0f}"
            f" | {_p(runs)} | {cores:.2f} |"
        )
        # One ratio for each round: if the machine is disturbed, both sides of that ratio suffer.
        limits = read if size == 1 else raw
        ratios[size] = _median(
            [rate * size / limit for rate, limit in zip(rates, limits, strict=True)]
        )
    result = {
        **{f"ratio_batch_{size}": round(ratio, 3) for size, ratio in ratios.items()},
        "us_per_single": round(_median(figures.us_per_single), 1),
        **_beside(figures),
        "p99_ms_batch_100": round(_median([run.p99_ms for run in figures.gateway[100]]), 1),
        "errors": figures.errors,
        "rss_mb": round(figures.rss_mb, 1),
        "raw_events_per_s": round(_median(raw)),
        "raw_blind_events_per_s": round(blind),
        "read_requests_per_s": round(_median(read)),
        **{
            f"events_per_s_batch_{size}": round(size * _median([f.requests_per_s for f in runs]))
            for size, runs in figures.gateway.items()
        },
        "rounds": len(raw),
    }
    report("gateway", result)


def _beside(figures: Figures) -> dict[str, float]:
    """Return the single events per second of the other checkout, and our rate as a multiple."""
    if not figures.beside:
        return {}
    ours, theirs = figures.gateway[1], figures.beside
    pairs = zip(ours, theirs, strict=True)
    return {
        "singles_beside_per_s": round(_median([each.requests_per_s for each in theirs])),
        "us_per_single_beside": round(_median(figures.us_per_single_beside), 1),
        "times_beside": round(_median([a.requests_per_s / b.requests_per_s for a, b in pairs]), 2),
    }


def _p(runs: list[Load]) -> str:
    p50, p99 = ([f.p50_ms for f in runs], [f.p99_ms for f in runs])
    return f"{_median(p50):.1f} | {_median(p99):.1f}"


def _median(values: list[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    main()
