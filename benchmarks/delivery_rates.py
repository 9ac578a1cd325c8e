"""Measures, interleaved, how fast Spark reads a stream, and how fast lanes deliver it.

(a) the limit: Spark at its best reads only the events' bytes, from Kafka through Arrow into Python,
which drops the rows; (b) a delivery process sends a backlog in batches of 500 to a sink, measured
from its first request to its last.
"""

import time
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.delivery_driver import Driver
from benchmarks.lag_sink import LagSink
from shared.config.destination import Destination
from shared.event.topics import stream_topic
from shared.runtime.spark.session import SparkSettings, map_arrow, running_spark

_TIMEOUT_S = 120.0
_LOOK_S = 0.5
_LOG_OPTIONS = files("shared.runtime").joinpath("log4j2.properties")
# Settings of a session that only reads: Spark's defaults, because ours suit small tasks.
# Reading 600,000 events, warm, beside other work: 115,000 events/s with our settings; 170,000 with
# generated code and the JVM's default compiler and collector; 235,000 without headers, which are
# nested rows; 255,000 with the value alone, or 200,000 if the JVM uses only its quick compiler.
AT_ITS_BEST = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG_OPTIONS}",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1_048_576),
}
# The JVM reaches its full speed after three million events.
_WARM_UP_ROUNDS = 2


def rates(  # noqa: PLR0917 - the parts of a measurement
    servers: str,
    stream: str,
    sink: LagSink,
    driver: Driver,
    folder: Path,
    event_count: int,
    rounds: int,
) -> list[tuple[float, float]]:
    """Return the events per second of (a) and (b), by round."""
    settings = SparkSettings(
        name="bench", folder=folder, worker_daemon="delivery.lanes.worker_daemon", more=AT_ITS_BEST
    )
    with running_spark(settings) as spark:
        measured: list[tuple[float, float]] = []
        # Warm-up for the JVM's compiler, connections and caches; its figures are discarded.
        for _ in range(_WARM_UP_ROUNDS):
            _read(spark, servers, stream, event_count)
        for number in range(rounds + 1):
            to = Destination(stream=stream, name=f"sink-{number}", url=sink.url("counting"))
            limit = _read(spark, servers, stream, event_count)
            measured.append((limit, delivered_per_s(sink, driver, to, event_count)))
        return measured[1:]


def _read(spark: SparkSession, servers: str, stream: str, event_count: int) -> float:
    options = {"kafka.bootstrap.servers": servers, "subscribe": stream_topic(stream)}
    rows = spark.read.format("kafka").options(**options).load().select("value")
    begun_s = time.monotonic()
    map_arrow(rows, _drop, "value binary").write.format("noop").mode("overwrite").save()
    return event_count / (time.monotonic() - begun_s)


def delivered_per_s(sink: LagSink, driver: Driver, to: Destination, event_count: int) -> float:
    """Return the events per second of a new destination, which gets the whole stream."""
    sink.counted()
    driver.set_up([to])
    until_s = time.monotonic() + _TIMEOUT_S
    while driver.events_sent(to) < event_count:
        if time.monotonic() > until_s:
            raise RuntimeError(f"{driver.events_sent(to)} of {event_count} events were sent")
        time.sleep(_LOOK_S)
    rate = sink.counted().per_s
    driver.take_away([to])
    return rate


def _drop(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        # Counting the rows proves that Python has received them.
        assert batch.num_rows
    yield from ()
