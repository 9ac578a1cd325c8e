"""Measures the retrier with a million waiting events: lateness of due events, rewrites, memory.

There are twenty destinations, half of them dead (nobody listens at their port). Events in the three
longest tiers are not due and must not be touched. The 30 s tier gets events at a steady rate, so
that they fall due at that rate, and then many at once. Before that it gets events for some seconds
with only 10,000 waiting, to measure a newly started retrier and its memory. An event's lateness is
the time from its due time by the broker's clock (its timestamp plus 30 s) to the attempt in its
receipt.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.report import report
from benchmarks.retrier_fill import DESTINATIONS, destinations, waiting_record
from benchmarks.sink import running_sink
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.event.topics import RECEIPTS, retry_topic
from shared.proof.receipt import Receipt, ReceiptOutcome, receipts_of
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.jars import ensure_jars

_LONG_TIERS = ("30m", "2h", "8h")
_TIER = retry_topic("30s")
_DELAY_MS = 30_000
_FEW = 10_000
# Spark starts in ten seconds on two idle cores, and in two minutes on busy ones.
_READY_TIMEOUT_S = 240.0
# If there is no attempt for this long, none will come.
_QUIET_S = 10.0
# Time for the first due events, before the million are written.
_FIRST_S = 15.0
# Memory is sampled for this long, because a JVM's heap grows in steps.
_MEMORY_LOOK_S = 6.0


@dataclass
class Bench:
    """Writes the events, and keeps the state of the run."""

    kafka: str
    producer: Producer
    written: int = 0
    waiting: int = 0
    memory_mb: list[float] = field(default_factory=list)

    def fill(self, topics: Sequence[str], count: int) -> None:
        """Write events as fast as Kafka accepts them."""
        for number in range(count):
            self.write(topics[number % len(topics)])
        self.producer.flush()

    def write(self, topic: str) -> None:
        row = waiting_record(self.written, topic)
        while True:
            try:
                self.producer.produce(row.topic, row.value, key=row.key, headers=list(row.headers))
                break
            except BufferError:
                self.producer.poll(0.05)
        self.written += 1
        if self.written % 1_000 == 0:
            self.producer.poll(0)

    def pour(self, *, rate_per_s: float, duration_s: float) -> None:
        """Write events to the 30 s tier at a steady rate."""
        begun_s, count = time.monotonic(), 0
        while (passed_s := time.monotonic() - begun_s) < duration_s:
            for _ in range(int(passed_s * rate_per_s) - count):
                self.write(_TIER)
                count += 1
            self.producer.poll(0)
            time.sleep(0.02)
        self.producer.flush()


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    options = _options()
    ensure_jars("broker", cache=default_cache())
    ensure_jars("spark", cache=default_cache())
    with tempfile.TemporaryDirectory(prefix="hifi-bench-") as made:
        folder = Path(made)
        with (
            Cluster(folder=folder / "kafka", cache=default_cache()) as cluster,
            running_sink() as url,
        ):
            figures = _run(cluster.bootstrap_servers, url, folder, options)
    for name, value in figures.items():
        print(f"{name:<32} {value:>12,}")
    report("retrier", figures, is_whole=not sys.argv[1:])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000, help="events in all tiers")
    parser.add_argument("--rate", type=float, default=1_000.0, help="due events per second")
    parser.add_argument("--seconds", type=float, default=40.0, help="length of the run")
    parser.add_argument("--burst", type=int, default=20_000, help="due at once, after that")
    return parser.parse_args()


def _run(kafka: str, url: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    destinations(kafka, url)
    long_tiers = [retry_topic(name) for name in _LONG_TIERS]
    bench = Bench(kafka, _producer(kafka))
    bench.fill(long_tiers, _FEW)
    with _retrier(kafka, folder) as retrier:
        bench.pour(rate_per_s=options.rate, duration_s=_FIRST_S)
        first = _lateness(kafka, _FEW, bench.written)
        few_mb = _memory_mb(retrier)
        before_fill = bench.written
        due = round(options.rate * options.seconds) + options.burst
        bench.fill(long_tiers, max(options.waiting - before_fill - due, 0))
        first_due = bench.written
        resting = _FEW + first_due - before_fill
        bench.pour(rate_per_s=options.rate, duration_s=options.seconds)
        first_of_burst = bench.written
        bench.fill([_TIER], options.burst)
        many_mb = _memory_mb(retrier)
        late = _lateness(kafka, first_due, bench.written)
        many_mb = max(many_mb, _memory_mb(retrier))
        rewrites = sum(_ends(kafka, topic) for topic in long_tiers) - resting
    steady = {n: ms for n, ms in late.items() if n < first_of_burst}
    burst = [ms for n, ms in late.items() if n >= first_of_burst]
    alive = [ms for n, ms in steady.items() if n % DESTINATIONS % 2 == 0]
    return {
        "waiting": bench.written,
        "due_per_s": options.rate,
        "attempts_seen": len(late),
        "just_started_lateness_p99_s": _quantile(list(first.values()), 0.99),
        "lateness_p50_s": _quantile(list(steady.values()), 0.5),
        "lateness_p99_s": _quantile(list(steady.values()), 0.99),
        "lateness_max_s": _quantile(list(steady.values()), 1.0),
        "alive_lateness_p99_s": _quantile(alive, 0.99),
        "burst_events": options.burst,
        "burst_lateness_p99_s": _quantile(burst, 0.99),
        "rss_mb": round(many_mb),
        "rss_mb_10000_waiting": round(few_mb),
        "rewrites": rewrites,
    }


def _lateness(kafka: str, first: int, end: int) -> dict[int, int]:
    """Return the ms from the due time to the attempt, for each event that was tried."""
    stamps = _stamps(kafka)
    attempts = _attempts(kafka, first, end)
    late = {n: attempts[n] - stamps[n] - _DELAY_MS for n in attempts if n in stamps}
    assert min(late.values()) >= 0, "an event was early"
    return late


def _producer(kafka: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": kafka,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
        }
    )


@contextmanager
def _retrier(kafka: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the retrier as `hifi up` starts it."""
    (port,) = pick_free(1)
    env = {
        "HIFI_RETRIER_BOOTSTRAP_SERVERS": kafka,
        "HIFI_RETRIER_FOLDER": str(folder / "retrier"),
        "HIFI_RETRIER_METRICS_PORT": str(port),
        "HIFI_RETRIER_ALLOW_PRIVATE": "true",
        "HIFI_RETRIER_LOG_LEVEL": "warning",
    }
    process = subprocess.Popen([sys.executable, "-m", "retrier"], env={**os.environ, **env})
    try:
        _wait_up(f"http://127.0.0.1:{port}/metrics")
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _wait_up(url: str) -> None:
    until_s = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < until_s:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own address
                if b'hifi_retrier_lane_up{lane="retrier"} 1.0' in answer.read():
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("the retrier did not come up")


def _memory_mb(process: subprocess.Popen[bytes]) -> float:
    """Return the peak memory of the process and its descendants, over some seconds."""
    sizes_mb = []
    until_s = time.monotonic() + _MEMORY_LOOK_S
    while time.monotonic() < until_s:
        sizes_mb.append(sum(map(_resident_mb, _family(process.pid))))
        time.sleep(0.5)
    return max(sizes_mb)


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    pids = [pid]
    for parent in pids:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pids += map(int, children.read_text().split())
            except OSError:
                continue
    return pids


def _resident_mb(pid: int) -> float:
    """Return a process's resident memory; shared pages are divided among their processes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _stamps(kafka: str) -> dict[int, int]:
    """Return the broker's timestamps of the events in the 30 s tier, by event number."""
    stamps: dict[int, int] = {}
    for message in _read(kafka, _TIER):
        number = int(dict(message.headers())["origin-offset"])
        stamps.setdefault(number, message.timestamp()[1])
    return stamps


def _attempts(kafka: str, first: int, end: int) -> dict[int, int]:
    """Return when each event was first tried after its wait; read until no new attempts come.

    Most events of a dead destination are never tried, because its breaker parks them.
    """
    attempts: dict[int, int] = {}
    at: dict[int, int] = {}
    # The last events are due after the tier's delay.
    until_s = time.monotonic() + _DELAY_MS / 1000 + _QUIET_S
    while time.monotonic() < until_s:
        before = len(attempts)
        for receipt in _receipts(kafka, at):
            if receipt.outcome is ReceiptOutcome.WAITING and not receipt.batch_id:
                # The event was parked, not tried.
                continue
            for covered in receipt.covered:
                for number in range(max(covered.first, first), min(covered.end, end)):
                    attempts.setdefault(number, receipt.started_at_ms)
        if len(attempts) > before:
            until_s = max(until_s, time.monotonic() + _QUIET_S)
        time.sleep(1.0)
    return attempts


def _receipts(kafka: str, at: dict[int, int]) -> Iterator[Receipt]:
    for message in _read(kafka, RECEIPTS, at):
        yield from filter(None, receipts_of(message.value()))


def _read(kafka: str, topic: str, at: dict[int, int] | None = None) -> Iterator[Any]:
    """Yield the records of a topic, starting where the last read ended."""
    at = {} if at is None else at
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": "bench", "enable.auto.commit": False}
    )
    try:
        for number in consumer.list_topics(topic).topics[topic].partitions:
            where = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(where)
            start = max(at.get(number, 0), low)
            at[number] = start
            consumer.assign([TopicPartition(topic, number, start)])
            while at[number] < high:
                for message in consumer.consume(5_000, timeout=1.0):
                    offset = message.offset()
                    if message.error() is None and offset is not None and offset < high:
                        at[number] = offset + 1
                        yield message
    finally:
        consumer.close()


def _ends(kafka: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench"})
    try:
        numbers = consumer.list_topics(topic).topics[topic].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, n))[1] for n in numbers)
    finally:
        consumer.close()


def _quantile(found_ms: list[int], q: float) -> float:
    if not found_ms:
        return -1.0
    if q >= 1.0:
        return max(found_ms) / 1000
    return round(statistics.quantiles(found_ms, n=1000)[round(q * 1000) - 1] / 1000, 3)


if __name__ == "__main__":
    main()
