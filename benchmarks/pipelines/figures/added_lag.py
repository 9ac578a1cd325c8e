"""Measures the lag that a pipeline adds to events, by Kafka's clock.

200 events of 500 bytes per second, in 4 Kafka partitions: the time from when the broker stored an
event until it stored the result of a `where` and a `select`.
"""

import asyncio
import statistics

from benchmarks.pipelines.bench import Bench, make_streams, pipeline_of, run_paced
from shared.event.derived import ORIGIN
from shared.event.topics import stream_topic
from shared.runtime.kafka.reader import open_reader

_EVENTS_PER_S = 200
_SECONDS = 20
# The compilation in newly started JVMs must not be measured. The executor's processor time per
# event halves within two minutes on two cores.
_WARM_UP_S = 120
_STEPS: tuple[dict[str, object], ...] = (
    {"where": "made_ns > 0"},
    {"select": {"id": "id", "made_ns": "made_ns"}},
)


def measure(bench: Bench) -> dict[str, float]:
    """Return lags in ms; each missing event is an error."""
    make_streams(bench.servers, ["lag"])
    with bench.running() as runner:
        pipeline = pipeline_of("lag", "lag", *_STEPS)
        runner.put(pipeline)
        runner.wait_until_up(pipeline)
        warm = run_paced(bench.servers, ["lag"], _EVENTS_PER_S, bench.count(_WARM_UP_S))
        count = run_paced(bench.servers, ["lag"], _EVENTS_PER_S, bench.count(_SECONDS))
        runner.wait_for_events(pipeline, warm + count)
        # The next measurement must run without this pipeline.
        runner.take_away(pipeline)
    lags_ms = asyncio.run(_lags_ms(bench.servers))[warm:]
    cuts = statistics.quantiles(lags_ms, n=100)
    return {
        "added_lag_p50_ms": round(cuts[49]),
        "added_lag_p95_ms": round(cuts[94]),
        "added_lag_p99_ms": round(cuts[98]),
        "errors": abs(len(lags_ms) - count),
    }


async def _lags_ms(servers: str) -> list[int]:
    """Return the lag of each event, in the order of arrival."""
    async with open_reader(servers) as reader:
        outputs = [
            (record.timestamp_ms, dict(record.headers)[ORIGIN].decode())
            async for record in (await reader.since([stream_topic("lag-out")], 0)).records()
        ]
        came = {
            f"{record.origin.topic}:{record.origin.partition}:{record.origin.offset}": (
                record.timestamp_ms
            )
            async for record in (await reader.since([stream_topic("lag")], 0)).records()
        }
    made = {origin: at_ms for at_ms, origin in reversed(outputs)}
    return [
        made[origin] - at_ms for origin, at_ms in sorted(came.items(), key=lambda pair: pair[1])
    ]
