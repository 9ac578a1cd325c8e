"""Measures the MB/s of a pipeline that reads events of 1 KB from one Kafka partition."""

import statistics

from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, count_of, make_streams, pipeline_of

_EVENTS, _BYTES = 150_000, 1_000
_ROUNDS, _WARM_UP_ROUNDS = 3, 1


def measure(bench: Bench) -> dict[str, float]:
    """Measure a `where` that keeps all events."""
    count = bench.count(_EVENTS)
    make_streams(bench.servers, ["one"], partition_count=1)
    write_all(bench.servers, "one", count=count, event_bytes=_BYTES)
    with bench.running() as runner:
        rates = [
            runner.drain(pipeline_of(f"one-{number}", "one", {"where": "made_ns > 0"}), count)
            for number in range(_WARM_UP_ROUNDS + _ROUNDS)
        ]
    written = count_of(bench.servers, "one-out")
    mb_s = statistics.median(rates[_WARM_UP_ROUNDS:]) * _BYTES / 1e6
    return {"one_partition_mb_s": round(mb_s, 1), "errors": abs(written - len(rates) * count)}
