"""Measures look-ups in a table, against one GET per event, and the time of a GET.

(a) Look-ups of 10,000 keys at a time in a copy of 100,000 rows, with the function that Spark calls.
(b) The processor time, of all processes, that a look-up adds to an event of a pipeline; and that of
one GET of the row from a gateway, with the standard library's client over one connection. Without a
copy of the table each event would cost such a GET. (c) 500 GET/s, each sent when it is due, even if
earlier answers are late, while a pipeline works on 1,000 events/s.
"""

import asyncio
import http.client
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, Runner, make_streams, pipeline_of, put, wait
from benchmarks.process_tree import used_by
from deploy.local.children import Child
from deploy.local.ports import pick_free
from pipelines.tables.look_ups import CopyRows
from shared.config.table import Table
from shared.event.record import RecordOut
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.tables.folders import TableCopies
from shared.runtime.tables.keeper import command
from tests.support.kafka.kafka_log import write_rows

_ROWS, _LOOK_UPS, _BATCH = 100_000, 2_000_000, 10_000
_EVENTS, _ROUNDS, _WARM_UP_ROUNDS = 100_000, 3, 1
_GETS, _GETS_PER_S, _CONNECTIONS = 5_000, 500, 20
_PACED_PER_S = 1_000
_TABLE = Table("bench-customers")
_ROW = b'{"name":"somebody with a name","country":"DE","class":"gold","since":"2020-01-01"}'
_KEY = f"string(bigint(id) % {_ROWS})"
_STEPS: dict[str, list[dict[str, object]]] = {
    "plain": [{"where": f"{_KEY} IS NOT NULL"}, {"select": {"id": "id"}}],
    "enriched": [
        {"enrich": {"table": _TABLE.name, "key": _KEY, "as": "c", "schema": "country STRING"}},
        {"select": {"id": "id", "country": "c.country"}},
    ],
}


def measure(bench: Bench) -> dict[str, float]:
    """Measure the three parts; the last runs beside a pipeline."""
    folder = bench.folder.with_name("table-copies")
    asyncio.run(_fill(bench.servers))
    with _followed(folder, bench.servers):
        copies = TableCopies(folder)
        wait(lambda: (copy := copies.of(_TABLE)) is not None and copy.copy.extent().offset >= _ROWS)
        copies.close()
        look_ups = _look_ups_per_s(folder, bench.count(_LOOK_UPS))
        with bench.running(TABLES_FOLDER=str(folder)) as runner, _gateway(bench, folder) as api:
            pid, port = api
            http_s = _http_s(pid, port, bench.count(_GETS))
            ours_s = _enrich_s(bench, runner)
            times, errors = _paced_gets(bench, runner, port)
    return {
        "enrich_lookups_per_s": round(look_ups),
        "http_us": round(http_s * 1e6, 1),
        "enrich_us": round(ours_s * 1e6, 1),
        "enrich_gain": round(http_s / ours_s, 1),
        "query_p50_ms": round(_percentile(times, 50) * 1e3, 2),
        "query_p99_ms": round(_percentile(times, 99) * 1e3, 2),
        "errors": errors,
    }


async def _fill(servers: str) -> None:
    async with topic_admin(servers) as admin:
        await admin.create_missing([_TABLE.spec])
    rows = (RecordOut(_TABLE.topic, str(number).encode(), _ROW) for number in range(_ROWS))
    await write_rows(servers, rows)
    await asyncio.to_thread(put, servers, [_TABLE])


def _look_ups_per_s(folder: Path, count: int) -> float:
    """Return the look-ups per second of one core."""
    look_up, chance = CopyRows(str(folder), _TABLE), random.Random(1)  # noqa: S311 - no secret
    keys = [str(chance.randrange(_ROWS)) for _ in range(_BATCH)]
    batch, nowhere = pa.array(keys), pa.array([0] * _BATCH)
    look_up(batch, nowhere)
    began_s = time.process_time()
    for _ in range(count // _BATCH):
        look_up(batch, nowhere)
    return count / (time.process_time() - began_s)


def _enrich_s(bench: Bench, runner: Runner) -> float:
    """Return the processor time that the look-up adds to an event, in all processes."""
    count = bench.count(_EVENTS)
    make_streams(bench.servers, ["joins"])
    write_all(bench.servers, "joins", count=count)
    costs: dict[str, list[float]] = {kind: [] for kind in _STEPS}
    for number in range(_WARM_UP_ROUNDS + _ROUNDS):
        for kind, steps in _STEPS.items():
            before_s, _ = used_by(runner.pid)
            runner.drain(pipeline_of(f"{kind}-{number}", "joins", *steps), count)
            costs[kind].append((used_by(runner.pid)[0] - before_s) / count)
    plain, enriched = (statistics.median(costs[kind][_WARM_UP_ROUNDS:]) for kind in _STEPS)
    # Noise may hide the difference, so it is at least 1 µs.
    return max(enriched - plain, 1e-6)


def _http_s(pid: int, port: int, count: int) -> float:
    """Return the processor time for one GET, of the gateway and of the client."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    before_s, mine_s = used_by(pid)[0], _own_s()
    for number in range(count):
        client.request("GET", f"/v1/tables/{_TABLE.name}/rows/{number % _ROWS}")
        answer = client.getresponse()
        assert answer.status == 200, answer.read()  # noqa: PLR2004 - HTTP's 200
        answer.read()
    client.close()
    return (used_by(pid)[0] - before_s + _own_s() - mine_s) / count


def _own_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _paced_gets(bench: Bench, runner: Runner, port: int) -> tuple[list[float], int]:
    """Return each GET's time from when it was due, and the number of answers other than 200."""
    seconds = bench.count(_GETS) * 2 / _GETS_PER_S
    make_streams(bench.servers, ["beside"])
    pipeline = pipeline_of("beside", "beside", *_STEPS["enriched"])
    runner.put(pipeline)
    runner.wait_until_up(pipeline)
    words = ["-m", "benchmarks.paced", bench.servers, str(_PACED_PER_S), str(seconds + 5), "beside"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL) as beside:
        time.sleep(3)
        timed = asyncio.run(_ask(port, seconds))
        beside.wait()
    runner.take_away(pipeline)
    return timed


async def _ask(port: int, seconds: float) -> tuple[list[float], int]:
    times: list[float] = []
    errors = 0
    begun_s = time.perf_counter()

    async def asking(nth: int) -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        step_s = _CONNECTIONS / _GETS_PER_S
        due_s = begun_s + nth / _GETS_PER_S
        while due_s < begun_s + seconds:
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            path = f"/v1/tables/{_TABLE.name}/rows/{random.randrange(_ROWS)}"  # noqa: S311 - no secret
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(int(line.split(b":")[1]) for line in lines if b"content-length" in line)
            await reader.readexactly(length)
            times.append(time.perf_counter() - due_s)
            errors += b" 200 " not in lines[0]
            due_s += step_s
        writer.close()

    await asyncio.gather(*map(asking, range(_CONNECTIONS)))
    return times, errors


@contextmanager
def _gateway(bench: Bench, folder: Path) -> Iterator[tuple[int, int]]:
    port, metrics_port = pick_free(2)
    mine = {
        "BOOTSTRAP_SERVERS": bench.servers,
        "PORT": str(port),
        "METRICS_PORT": str(metrics_port),
        "AUTH": "off",
        "TABLES_FOLDER": str(folder),
    }
    child = Child(
        "gateway",
        [sys.executable, "-m", "gateway"],
        log=bench.folder.with_name("gateway.log"),
        env={**os.environ, **{f"HIFI_GATEWAY_{name}": value for name, value in mine.items()}},
    )

    def answers() -> bool:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            client.request("GET", f"/v1/tables/{_TABLE.name}/rows/1")
            return client.getresponse().status == 200  # noqa: PLR2004 - as above
        except OSError:
            return False

    try:
        wait(answers)
        yield child.pid, port
    finally:
        child.stop(60.0)


@contextmanager
def _followed(folder: Path, servers: str) -> Iterator[None]:
    child = subprocess.Popen(command(folder, servers, os.getpid()))
    try:
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=30)


def _percentile(times: list[float], part: int) -> float:
    return statistics.quantiles(times, n=100)[part - 1]
