"""Measures how fast `hifi status` answers when there are a million acknowledged events.

Log, ledger, receipts and positions are real (backlog.py). Each event has two destinations: one gets
batches of 500; the other has a separate receipt for each event, like a real-time lane. The time is
that of the whole command, with observe and without it. `python -m benchmarks.status [events]`.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.backlog import MINUTE_MS, Backlog
from benchmarks.report import report
from deploy.cli.books import NoBooksError, observed_books
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.record import KafkaPartition
from shared.event.topics import RECEIPTS, fixed_specs, stream_spec, stream_topic
from shared.proof.receipt import CoveredOffsets, Facts, ReceiptOutcome, make_receipt, sheets_of
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.kafka.clients import new_producer
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.config_records import write_config

_EVENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
_STREAM = "bench"
# The backlog writes the receipts of the first destination.
_BATCHED, _SINGLE = (
    Destination(stream=_STREAM, name=name, url="http://127.0.0.1:9/")
    for name in ("sink", "realtime")
)
_TIERS = [tier.name for tier in RetrySchedule().tiers]
_TIMES = 5
_PATIENCE_S = 600.0


def main() -> None:
    """Print the results, and one JSON object as the last line."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(folder=Path(folder) / "kafka", cache=default_cache()) as cluster,
    ):
        kafka = cluster.bootstrap_servers
        asyncio.run(_fill(kafka))
        names = ("GATEWAY_METRICS", "DELIVERY_METRICS", "RETRIER_METRICS", "SAMPLE", "CONSOLE")
        ports = dict(zip((*names, "OBSERVE_METRICS"), pick_free(len(names) + 1), strict=True))
        with _observe(kafka, Path(folder), ports) as caught_up_s:
            observed = [_status(kafka, ports) for _ in range(_TIMES)]
        alone = _status(kafka, ports)
    assert {answer["counted_by"] for answer, _ in observed} == {"observe"}
    assert alone[0]["counted_by"] == "status"
    assert all(_counts(answer) == _counts(alone[0]) for answer, _ in observed)
    for books in alone[0]["books"]:
        assert books["delivered"] == books["acked"] == _EVENTS, books
    took_s = [took for _, took in observed]
    print(f"with observe     {statistics.median(took_s):.2f} s, at worst {max(took_s):.2f} s")
    print(f"without          {alone[1]:.1f} s")
    print(f"observe starts   {caught_up_s:.1f} s")
    report(
        "status",
        {
            "events": _EVENTS,
            "receipts": _EVENTS + _EVENTS // 500,
            "status_s": round(statistics.median(took_s), 2),
            "status_s_max": round(max(took_s), 2),
            "without_observe_s": round(alone[1], 1),
            "observe_start_s": round(caught_up_s, 1),
        },
        is_whole=not sys.argv[1:],
    )


async def _fill(kafka: str) -> None:
    async with topic_admin(kafka) as admin:
        await admin.create_missing([*fixed_specs(_TIERS), stream_spec(_STREAM)])
    await write_config(kafka, [Stream(_STREAM), _BATCHED, _SINGLE])
    backlog = Backlog(kafka, _STREAM)
    await backlog.write(now_ms() - now_ms() % MINUTE_MS - 10 * MINUTE_MS, _EVENTS)
    producer = new_producer(kafka, acks=1, linger_ms=20, compression_type="lz4")
    await producer.start()
    try:
        for number, end in backlog.ends.items():
            for sheet in sheets_of(map(_line, [number] * end, range(end))):
                await producer.send(RECEIPTS, sheet, _SINGLE.id.encode())
        await producer.flush()
    finally:
        await producer.stop()
    ends = {
        KafkaPartition(stream_topic(_STREAM), number): end for number, end in backlog.ends.items()
    }
    async with LaneGroups(kafka) as groups:
        await groups.commit(_SINGLE.id, ends)


def _line(number: int, offset: int) -> bytes:
    """Return the receipt of one event."""
    at_ms = 1_700_000_000_000 + offset
    return make_receipt(
        Facts(
            (CoveredOffsets(stream_topic(_STREAM), number, offset, offset + 1),),
            [at_ms],
            [at_ms + 5],
        ),
        destination_id=_SINGLE.id,
        outcome=ReceiptOutcome.DELIVERED,
        reason="status_200",
        batch_id=f"msg_{number:08x}{offset:024x}",
        attempt=1,
        started_at_ms=at_ms + 15,
        ended_at_ms=at_ms + 20,
    ).to_json()


def _counts(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the books without verdicts, which only observe knows."""
    return [
        {name: value for name, value in books.items() if name not in {"verdict", "reason"}}
        for books in answer["books"]
    ]


@contextmanager
def _observe(kafka: str, folder: Path, ports: dict[str, int]) -> Iterator[float]:
    """Run observe; yield the seconds from its start until it has read everything."""
    env = {
        "HIFI_OBSERVE_BOOTSTRAP_SERVERS": kafka,
        "HIFI_OBSERVE_FOLDER": str(folder / "observe"),
        "HIFI_OBSERVE_METRICS_PORT": str(ports["OBSERVE_METRICS"]),
        "HIFI_OBSERVE_CONSOLE_PORT": str(ports["CONSOLE"]),
        "HIFI_OBSERVE_IS_AUDIT_ON": "false",
        "HIFI_OBSERVE_CONSOLE_AUTH": "off",
    }
    began_s = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "observe"], env={**os.environ, **env}) as process:
        try:
            while not _has_books(kafka, ports["OBSERVE_METRICS"]):
                assert time.monotonic() < began_s + _PATIENCE_S, "observe has not caught up"
                time.sleep(0.1)
            yield time.monotonic() - began_s
        finally:
            process.send_signal(signal.SIGTERM)


def _has_books(kafka: str, port: int) -> bool:
    try:
        return bool(observed_books(kafka, port=port).rows)
    except NoBooksError:
        return False


def _status(kafka: str, ports: dict[str, int]) -> tuple[dict[str, Any], float]:
    """Return the answer of `hifi status --json`, and how many seconds it took."""
    env = {f"HIFI_UP_{name}_PORT": str(port) for name, port in ports.items()}
    began_s = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-m", "deploy.cli.app", "status", "--json", "--kafka", kafka],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer, time.monotonic() - began_s


if __name__ == "__main__":
    main()
