"""Measures how fast Spark reads a stream and drops it, and how fast lanes deliver it, interleaved.

(a) the limit: Kafka to Arrow to Python, which drops the rows; (b) a real lane with the same source
and the same bounds, batches of 500 events to a sink. Both as events over the time of micro-batches,
without the first one, in which everything is cold.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delivery.settings import DeliverySettings
from delivery.spark.lane import Lane, source_options, start_lane
from shared.config.destination import Destination
from shared.event.record import Position
from shared.runtime.spark.arrow_rows import COLUMNS_IN, SCHEMA_OUT
from shared.runtime.spark.query_end import end_query
from shared.runtime.spark.session import SparkSettings, map_arrow, running_spark

_TIMEOUT_S = 90.0
_LOOK_S = 0.2


def rates(
    servers: str, stream: str, url: str, *, folder: Path, event_count: int, rounds: int
) -> list[tuple[float, float]]:
    """Events per second of (a) and (b), by round."""
    settings = DeliverySettings(folder=folder, bootstrap_servers=servers, allow_private=True)
    spark_settings = SparkSettings(
        name="bench", folder=settings.home, worker_daemon="delivery.spark.worker_daemon"
    )
    with running_spark(spark_settings) as spark:
        found: list[tuple[float, float]] = []
        # A round whose figures are thrown away: the JVM's compiler, connections, caches.
        for nth in range(rounds + 1):
            to = Destination(stream=stream, name=f"sink-{nth}", url=url)
            limit = _rate(_start_reading(spark, to, settings, folder / f"read-{nth}"), event_count)
            ours = _rate(
                start_lane(spark, Lane(to), {}, _tell_nobody, settings=settings), event_count
            )
            found.append((limit, ours))
        return found[1:]


def _tell_nobody(_: Position) -> None:
    pass


def _start_reading(
    spark: SparkSession, to: Destination, settings: DeliverySettings, checkpoint: Path
) -> StreamingQuery:
    options = source_options(to, settings)
    rows = spark.readStream.format("kafka").options(**options).load().select(*COLUMNS_IN)
    return (
        map_arrow(rows, _drop, SCHEMA_OUT)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def _rate(query: StreamingQuery, event_count: int) -> float:
    """Wait until all is read; a query that dies or stands still is an error."""
    until_s = time.monotonic() + _TIMEOUT_S
    done: dict[int, tuple[int, float]] = {}
    while sum(events for events, _ in done.values()) < event_count:
        if not query.isActive or time.monotonic() > until_s:
            raise RuntimeError(f"the query did not get through: {query.exception()}")
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                took_s = progress["batchDuration"] / 1000
                done[progress["batchId"]] = (progress["numInputRows"], took_s)
        time.sleep(_LOOK_S)
    end_query(query, drain_s=5)
    warm = [done[number] for number in sorted(done)[1:]]
    return sum(events for events, _ in warm) / sum(took_s for _, took_s in warm)


def _drop(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        # Python has had every row when it knows how many there were.
        assert batch.num_rows
    yield from ()
