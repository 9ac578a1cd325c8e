"""Measures the speed of pipelines against Spark that only reads.

(a) Spark at its best reads a backlog of 200,000 events of 500 bytes in 4 Kafka partitions, with
keys and headers, and drops them. (b) A pipeline with a `where` that keeps all events writes their
bytes to another stream. (c) A pipeline with a `select` rewrites them as JSON. The rounds are
interleaved, each with its own ratio. Kafka and Spark share the machine.
"""

import statistics
import time

from pyspark.sql import SparkSession

from benchmarks.delivery_rates import AT_ITS_BEST
from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, count_of, make_streams, pipeline_of
from shared.event.topics import stream_topic
from shared.runtime.spark.session import SparkSettings, running_spark

# With fewer, the start would outweigh the measurement.
_EVENTS, _EVENTS_SHORT = 200_000, 50_000
_ROUNDS = 3
# Warm-up for the JVM's compiler, connections and caches; its figures are dropped.
_WARM_UP_ROUNDS = 1
_STEPS: dict[str, dict[str, object]] = {
    "where": {"where": "made_ns > 0"},
    "select": {"select": {"id": "id", "made_ns": "made_ns", "pad": "pad"}},
}


def measure(bench: Bench) -> dict[str, float]:
    """Measure ratios in each round: if the machine is disturbed, both sides of a ratio suffer."""
    servers, count = bench.servers, _EVENTS_SHORT if bench.is_short else _EVENTS
    make_streams(servers, ["rate"])
    write_all(servers, "rate", count=count)
    settings = SparkSettings(
        name="bench",
        folder=bench.folder / "reading",
        worker_daemon="pyspark.daemon",
        more=AT_ITS_BEST,
    )
    rounds: list[dict[str, float]] = []
    with running_spark(settings) as spark, bench.running() as runner:
        for number in range(_WARM_UP_ROUNDS + _ROUNDS):
            measured = {"read": read(spark, servers, "rate", count)}
            for kind, step in _STEPS.items():
                measured[kind] = runner.drain(pipeline_of(f"{kind}-{number}", "rate", step), count)
            rounds.append(measured)
    counted = rounds[_WARM_UP_ROUNDS:]
    return {
        **{
            f"ratio_{kind}": round(
                statistics.median(rates[kind] / rates["read"] for rates in counted), 3
            )
            for kind in _STEPS
        },
        **{
            f"{kind}_events_per_s": round(statistics.median(rates[kind] for rates in counted))
            for kind in ("read", *_STEPS)
        },
        "errors": abs(count_of(servers, "rate-out") - len(rounds) * len(_STEPS) * count),
    }


def read(spark: SparkSession, servers: str, stream: str, count: int) -> float:
    """Return the events per second that Spark at its best reads and drops."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": stream_topic(stream),
        "includeHeaders": "true",
    }
    rows = spark.read.format("kafka").options(**options).load().select("key", "value", "headers")
    began_s = time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    return count / (time.monotonic() - began_s)
