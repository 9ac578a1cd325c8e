"""Measures the speed of windows against Spark that only reads, and the delay of their rows.

(a) Spark reads a backlog of 400,000 events of 500 bytes and drops them, as in `rates`; (b) a
pipeline counts them by minute and by a hundred keys; interleaved. Then a pipeline with final
windows of two seconds gets 200 events a second: the delay is the time from a window's end, plus
`late`, until its row is stored.
"""

import asyncio
import json
import statistics
import time
from datetime import datetime

from benchmarks.delivery_rates import AT_ITS_BEST
from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, make_streams, pipeline_of, run_paced, wait
from benchmarks.pipelines.figures.rates import read
from shared.event.topics import stream_topic
from shared.runtime.kafka.reader import open_reader
from shared.runtime.spark.session import SparkSettings, running_spark

_EVENTS = 400_000
_ROUNDS, _WARM_UP_ROUNDS = 3, 1
_KEYS = {"select": {"k": "CAST(id AS BIGINT) % 100"}}
_COUNT = {"compute": {"n": "count(*)"}, "by": ["k"]}
_EVENTS_PER_S, _SECONDS = 200.0, 30.0
_LATE_MS = 1_000


def measure(bench: Bench) -> dict[str, float]:
    """Measure ratios in each round, as in `rates`."""
    servers, count = bench.servers, bench.count(_EVENTS)
    make_streams(servers, ["counted", "over"])
    write_all(servers, "counted", count=count)
    settings = SparkSettings(
        name="bench",
        folder=bench.folder / "reading",
        worker_daemon="pyspark.daemon",
        more=AT_ITS_BEST,
    )
    counting = {"window": {"every": "1 minute", "late": "1 day", **_COUNT}}
    rounds: list[dict[str, float]] = []
    with running_spark(settings) as spark, bench.running() as runner:
        for number in range(_WARM_UP_ROUNDS + _ROUNDS):
            measured = {"read": read(spark, servers, "counted", count)}
            to = f"counts-{number}"
            pipeline = pipeline_of(f"window-{number}", "counted", _KEYS, counting, to=to)
            measured["window"] = runner.drain(pipeline, count)
            rounds.append(measured)
        final = {"every": "2 seconds", "late": "1 second", "emit": "final", **_COUNT}
        over = pipeline_of("over", "over", _KEYS, {"window": final})
        runner.put(over)
        runner.wait_until_up(over)
        sent = run_paced(servers, ["over"], _EVENTS_PER_S, _SECONDS)
        stopped_ms = time.time() * 1000
        runner.wait_for_events(over, sent)
        wait(lambda: _counted(servers) + runner.outcome(over, "late") >= sent)
        ages = _ages_ms(servers)
        late = runner.outcome(over, "late")
    counted = rounds[_WARM_UP_ROUNDS:]
    return {
        "ratio_window": round(
            statistics.median(rates["window"] / rates["read"] for rates in counted), 3
        ),
        "window_events_per_s": round(statistics.median(rates["window"] for rates in counted)),
        "window_over_ms_p50": round(statistics.median(ages.values())),
        "window_over_ms_max": max(ages.values()),
        # Windows that were over after the last event.
        "window_idle_ms_max": max(age for over_ms, age in ages.items() if over_ms > stopped_ms),
        "window_late": late,
        # A window's row is rewritten as it grows, so its last row has the whole count.
        "errors": sum(
            abs(_last_of(servers, f"counts-{index}") - count) for index in range(len(rounds))
        ),
    }


def _rows(servers: str, stream: str) -> list[tuple[dict[str, object], int]]:
    """Return the written rows, and when Kafka stored them."""

    async def rows() -> list[tuple[dict[str, object], int]]:
        async with open_reader(servers) as reader:
            spans = await reader.spans([stream_topic(stream)])
            return [
                (json.loads(record.value or b"{}"), record.timestamp_ms)
                async for record in reader.range(spans).records()
            ]

    return asyncio.run(rows())


def _last_of(servers: str, stream: str) -> int:
    """Return the sum of the counts in the last rows of all windows."""
    last = {
        (str(row["k"]), row["window_start"]): int(str(row["n"]))
        for row, _ in _rows(servers, stream)
    }
    return sum(last.values())


def _counted(servers: str) -> int:
    return sum(int(str(row["n"])) for row, _ in _rows(servers, "over-out"))


def _ages_ms(servers: str) -> dict[float, int]:
    """Return, for each time at which windows ended, the delay of the last row."""
    ages: dict[float, int] = {}
    for row, stored_ms in _rows(servers, "over-out"):
        end_ms = round(1000 * datetime.fromisoformat(str(row["window_end"])).timestamp())
        over_ms = end_ms + _LATE_MS
        ages[over_ms] = max(stored_ms - over_ms, ages.get(over_ms, 0))
    return ages
