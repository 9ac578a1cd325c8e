"""Measures the Python client against raw HTTP with the same bodies, in alternating runs.

Both send batches of 500 events of 500 bytes over four connections to one gateway worker with a real
Kafka, each from a separate process on the same machine. The client gets 500 dicts at once, writes
them as JSON, and reports each event's fate; raw HTTP has ready-made bodies.
`python -m benchmarks.client [rounds] [seconds]`.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.client_load import BATCH
from benchmarks.report import report
from deploy.local.cluster import Cluster
from shared.config.configuration import Stream
from shared.event.topics import fixed_specs, stream_spec
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.gateway_process import running
from tests.support.kafka.config_records import write_config

_ROUNDS, _DURATION_S = 5, 4.0
_KINDS = ("raw", "dicts", "singly", "texts", "spool", "plain")
_STREAM = "bench"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    duration_s = float(sys.argv[2]) if len(sys.argv) > 2 else _DURATION_S  # noqa: PLR2004
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in _KINDS}
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(folder=Path(folder) / "kafka", cache=default_cache()) as cluster,
    ):
        asyncio.run(_prepare(cluster.bootstrap_servers))
        with running(cluster.bootstrap_servers) as gateway:
            for kind in _KINDS:
                _run(kind, gateway.url, 2)
            for number in range(rounds):
                for kind in _KINDS:
                    runs[kind].append(_run(kind, gateway.url, duration_s))
                print(f"round {number + 1} of {rounds} is done", file=sys.stderr)
    _print(runs)


async def _prepare(servers: str) -> None:
    async with topic_admin(servers) as admin:
        await admin.create_missing([*fixed_specs(["30s"]), stream_spec(_STREAM)])
    await write_config(servers, [Stream(_STREAM)])


def _run(kind: str, url: str, duration_s: float) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.client_load", kind, url, _STREAM, str(duration_s)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def _print(found: dict[str, list[dict[str, float]]]) -> None:
    rates = {kind: [each["events_per_s"] for each in runs] for kind, runs in found.items()}
    print(f"\n| what | events/s | cores of the sender |\n|{'---|' * 3}")
    for kind, runs in found.items():
        cores = statistics.median(each["cores"] for each in runs)
        print(f"| {kind} | {statistics.median(rates[kind]):,.0f} | {cores:.2f} |")
    # One ratio for each round: if the machine is disturbed, both sides of that ratio suffer.
    ratios = {
        kind: statistics.median(
            rate / raw for rate, raw in zip(rates[kind], rates["raw"], strict=True)
        )
        for kind in _KINDS[1:]
    }
    result: dict[str, Any] = {
        "send_ratio": round(ratios.pop("dicts"), 3),
        **{f"send_ratio_{kind}": round(ratio, 3) for kind, ratio in ratios.items()},
        "errors": int(sum(each["errors"] for runs in found.values() for each in runs)),
        **{f"{kind}_events_per_s": round(statistics.median(each)) for kind, each in rates.items()},
        "batch": BATCH,
        "rounds": len(rates["raw"]),
    }
    report("client", result)


if __name__ == "__main__":
    main()
