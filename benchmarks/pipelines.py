"""How fast pipelines are beside Spark that only reads, through one Kafka partition, and when idle.

(a) Spark at its best reads a backlog of 400,000 events of 500 bytes in 4 Kafka partitions, with
their keys and headers, and drops them; (b) a pipeline with a `where` that keeps all of them writes
their bytes to another stream; (c) one with a `select` writes them anew as JSON. Interleaved, each
round by itself. (d) 150,000 events of 1 KB through a pipeline from one Kafka partition. (e) ten
pipelines of ten streams with nothing to do. Kafka and Spark share the machine.
`python -m benchmarks.pipelines [rates] [one-partition] [idle]`.
"""

import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from pyspark.sql import SparkSession

from benchmarks.delivery_rates import AT_ITS_BEST
from benchmarks.machine import describe
from benchmarks.paced import write_all
from benchmarks.process_tree import used_by
from deploy.local.children import Child
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.configuration import Stream
from shared.config.pipeline import Pipeline
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.java.jars import default_cache
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.spark.session import SparkSettings, running_spark
from tests.support.config_records import write_config, write_records

_EVENTS = 400_000
_ROUNDS = 3
# Figures that are thrown away: the JVM's compiler, connections, caches.
_WARM_UP_ROUNDS = 1
_ONE_EVENTS, _ONE_BYTES = 150_000, 1_000
_IDLE_PIPELINES = 10
_IDLE_S = 20.0
# What a start leaves to be done, such as compiling, is over by then.
_SETTLE_S = 10.0
_TIMEOUT_S = 120.0
_LOOK_S = 0.1
_STEPS = {
    "where": [{"where": "made_ns > 0"}],
    "select": [{"select": {"id": "id", "made_ns": "made_ns", "pad": "pad"}}],
}


@dataclass(frozen=True, slots=True)
class Runner:
    """The pipelines process, and the way to tell it what to do."""

    servers: str
    pid: int
    metrics: str

    def put(self, *pipelines: Pipeline) -> None:
        names = {name for pipeline in pipelines for name in pipeline.streams}
        asyncio.run(_make(self.servers, sorted(names)))
        asyncio.run(write_config(self.servers, pipelines))

    def take_away(self, pipeline: Pipeline) -> None:
        asyncio.run(write_records(self.servers, [(pipeline.config_key, None)]))

    def figure(self, name: str, pipeline: str) -> float:
        """A metric of a pipeline, 0 while there is none."""
        with urlopen(self.metrics, timeout=5) as answer:  # noqa: S310 - loopback, ours
            text = answer.read().decode()
        found = re.search(
            rf'^{name}{{[^}}]*pipeline="{pipeline}"[^}}]*}} (\S+)$', text, re.MULTILINE
        )
        return float(found[1]) if found else 0.0

    def drain(self, pipeline: Pipeline, count: int) -> float:
        """Events per second, from its first job to its last; the pipeline is new."""
        self.put(pipeline)
        self.wait_until_up(pipeline)
        began_s = time.monotonic()
        self.wait(lambda: self._read(pipeline) >= count)
        rate = count / (time.monotonic() - began_s)
        self.take_away(pipeline)
        return rate

    def wait_until_up(self, pipeline: Pipeline) -> None:
        self.wait(lambda: self.figure("hifi_pipelines_lane_up", pipeline.name) > 0)

    def _read(self, pipeline: Pipeline) -> float:
        return self.figure("hifi_pipelines_events_read_total", pipeline.name)

    def wait(self, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _TIMEOUT_S
        while not holds():
            if time.monotonic() > until_s:
                raise RuntimeError(f"not done after {_TIMEOUT_S:g} s: its log is beside it")
            time.sleep(_LOOK_S)


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    parts = sys.argv[1:] or list(_PARTS)
    figures: dict[str, float] = {"errors": 0}
    with (
        tempfile.TemporaryDirectory() as name,
        Cluster(folder=Path(name) / "kafka", cache=default_cache()) as cluster,
    ):
        asyncio.run(_make(cluster.bootstrap_servers, []))
        print(f"| figure | value |\n|{'---|' * 2}")
        for part in parts:
            found = _PARTS[part](cluster.bootstrap_servers, Path(name) / part)
            for what, figure in found.items():
                print(f"| {what} | {figure:,} |", flush=True)
            errors = figures["errors"] + found.pop("errors", 0)
            figures |= {**found, "errors": errors}
    print()
    print(json.dumps({**figures, **describe()}))


def _rates(servers: str, folder: Path) -> dict[str, float]:
    asyncio.run(_make(servers, ["rate"]))
    write_all(servers, "rate", count=_EVENTS)
    settings = SparkSettings(
        name="bench", folder=folder / "reading", worker_daemon="pyspark.daemon", more=AT_ITS_BEST
    )
    rounds: list[dict[str, float]] = []
    with running_spark(settings) as spark, _running(servers, folder) as runner:
        for nth in range(_WARM_UP_ROUNDS + _ROUNDS):
            found = {"read": _read(spark, servers, "rate")}
            for kind in _STEPS:
                found[kind] = runner.drain(_pipeline(f"{kind}-{nth}", "rate", kind), _EVENTS)
            rounds.append(found)
    counted = rounds[_WARM_UP_ROUNDS:]
    written = asyncio.run(_count(servers, "rate-out"))
    return {
        # Of each round by itself: what disturbs the machine disturbs both sides of a ratio.
        **{
            f"ratio_{kind}": round(statistics.median(it[kind] / it["read"] for it in counted), 3)
            for kind in _STEPS
        },
        **{
            f"{kind}_events_per_s": round(statistics.median(it[kind] for it in counted))
            for kind in ("read", *_STEPS)
        },
        "errors": abs(written - len(rounds) * len(_STEPS) * _EVENTS),
    }


def _one_partition(servers: str, folder: Path) -> dict[str, float]:
    asyncio.run(_make(servers, ["one"], partition_count=1))
    write_all(servers, "one", count=_ONE_EVENTS, event_bytes=_ONE_BYTES)
    with _running(servers, folder) as runner:
        rates = [
            runner.drain(_pipeline(f"one-{nth}", "one", "where"), _ONE_EVENTS)
            for nth in range(_WARM_UP_ROUNDS + _ROUNDS)
        ]
    mb_s = statistics.median(rates[_WARM_UP_ROUNDS:]) * _ONE_BYTES / 1e6
    written = asyncio.run(_count(servers, "one-out"))
    return {"one_partition_mb_s": round(mb_s, 1), "errors": abs(written - len(rates) * _ONE_EVENTS)}


def _idle(servers: str, folder: Path) -> dict[str, float]:
    with _running(servers, folder) as runner:
        time.sleep(_SETTLE_S)
        none_cores, none_mb = _used(runner, _IDLE_S / 2)
        idle = [_pipeline(f"idle-{nth}", f"idle{nth}", "where") for nth in range(_IDLE_PIPELINES)]
        runner.put(*idle)
        for pipeline in idle:
            runner.wait_until_up(pipeline)
        time.sleep(_SETTLE_S)
        cores, mb = _used(runner, _IDLE_S)
    return {
        "idle_cores_10": round(cores, 3),
        "idle_mb_10": mb,
        "idle_cores_0": round(none_cores, 3),
        "idle_mb_0": none_mb,
    }


_PARTS: dict[str, Callable[[str, Path], dict[str, float]]] = {
    "rates": _rates,
    "one-partition": _one_partition,
    "idle": _idle,
}


def _pipeline(name: str, source: str, kind: str) -> Pipeline:
    return Pipeline.of(
        {
            "name": name,
            "from": {"stream": source},
            "schema": "id STRING, made_ns BIGINT, pad STRING",
            "steps": _STEPS[kind],
            "to": [{"stream": f"{source}-out"}],
        }
    )


def _used(runner: Runner, for_s: float) -> tuple[float, int]:
    """Cores that it takes, and MB that it has."""
    before_s, _ = used_by(runner.pid)
    time.sleep(for_s)
    after_s, mb = used_by(runner.pid)
    return (after_s - before_s) / for_s, mb


def _read(spark: SparkSession, servers: str, stream: str) -> float:
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": stream_topic(stream),
        "includeHeaders": "true",
    }
    rows = spark.read.format("kafka").options(**options).load().select("key", "value", "headers")
    began_s = time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    return _EVENTS / (time.monotonic() - began_s)


async def _make(servers: str, streams: Sequence[str], *, partition_count: int = 4) -> None:
    tiers = [tier.name for tier in RetrySchedule().tiers]
    specs = [stream_spec(name, partition_count=partition_count) for name in streams]
    async with topic_admin(servers) as admin:
        await admin.create_missing([*fixed_specs(tiers), *specs])
    await write_config(servers, [Stream(name, partition_count) for name in streams])


async def _count(servers: str, stream: str) -> int:
    async with open_reader(servers) as reader:
        spans = await reader.spans([stream_topic(stream)])
    return sum(end - start for start, end in spans.values())


@contextmanager
def _running(servers: str, folder: Path) -> Iterator[Runner]:
    (port,) = pick_free(1)
    mine = {"BOOTSTRAP_SERVERS": servers, "FOLDER": str(folder), "METRICS_PORT": str(port)}
    child = Child(
        "pipelines",
        [sys.executable, "-m", "pipelines"],
        log=folder.with_suffix(".log"),
        env={**os.environ, **{f"HIFI_PIPELINES_{name}": value for name, value in mine.items()}},
    )
    runner = Runner(servers, child.pid, f"http://127.0.0.1:{port}/metrics")
    try:
        runner.wait(lambda: _answers(f"http://127.0.0.1:{port}/readyz"))
        yield runner
    finally:
        child.stop(60.0)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback, ours
            return bool(answer.read().startswith(b"ready"))
    except OSError:
        return False


if __name__ == "__main__":
    main()
