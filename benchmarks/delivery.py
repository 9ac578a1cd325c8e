"""Measures how fast lanes deliver, how late events are, and the cost of bad neighbours.

(a) Spark at its best reads Kafka through Arrow into Python, and drops the rows. (b) A lane delivers
the same backlog to a local sink in batches of 500, interleaved with (a): a million events of 500
bytes in 4 Kafka partitions. (c) The age of events on arrival, at 1,000 events/s written straight to
Kafka, for each latency setting. (d) A healthy destination's p99 alone, and beside four bad ones,
interleaved: a dead one, one that takes 30 s, one that always answers 429, and one whose answers
never end. Each has its own stream with 100 events/s. Sink, generator, Kafka and Spark share the
machine.
`python -m benchmarks.delivery [rates] [micro-batch] [realtime] [neighbours]`.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.delivery_driver import Driver, running_driver
from benchmarks.delivery_rates import rates
from benchmarks.lag_sink import LagSink, running_lag_sink
from benchmarks.paced import write_all
from benchmarks.report import report
from deploy.local.cluster import Cluster
from shared.config.destination import Destination, Latency
from shared.event.topics import fixed_specs, stream_spec
from shared.retry.schedule import RetrySchedule
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.kafka.topic_admin import topic_admin

_ROUNDS = 3
_BACKLOG_EVENTS = 1_000_000
_LAG_EVENTS_PER_S = 1_000
_MICRO_BATCH_S = 20.0
# Long enough for many follow-up tasks; each follows its streams for a limited time.
_REALTIME_S = 30.0
_NEIGHBOURS = ("dead", "slow", "limiting", "dripping")
_NEIGHBOUR_EVENTS_PER_S = 100
# The host takes cores away for seconds at a time, which spoils one round but not the median.
_NEIGHBOUR_ROUNDS = 5
# Long enough to include the end of a slow destination's micro-batch, which lasts 17 s.
_NEIGHBOUR_S = 30.0
# Figures of this time are discarded, so that new lanes and a cold JVM are not measured. The p95
# over 10 s falls for 40 s after a driver's start, and then stays constant.
_WARM_UP_S = 40.0
# Time for new lanes to settle in a warm driver, until its first slow micro-batch has ended.
_JOIN_S = 20.0
# Events that arrive later than this count as errors.
_ARRIVE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Lags:
    """Ages on arrival in ms."""

    p50: float
    p95: float
    p99: float
    worst: float
    missing: int

    @classmethod
    def of(cls, lags_ms: list[float], expected: int) -> Self:
        if not lags_ms:
            none = float("nan")
            return cls(none, none, none, none, expected)
        cuts = statistics.quantiles(lags_ms, n=100)
        missing = max(0, expected - len(lags_ms))
        return cls(cuts[49], cuts[94], cuts[98], max(lags_ms), missing)


@dataclass(frozen=True, slots=True)
class Place:
    servers: str
    sink: LagSink
    folder: Path


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    parts = sys.argv[1:] or list(_PARTS)
    figures: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        Cluster(folder=Path(name) / "kafka", cache=default_cache()) as cluster,
        running_lag_sink() as sink,
    ):
        place = Place(cluster.bootstrap_servers, sink, Path(name))
        asyncio.run(_prepare(place.servers))
        print(f"| figure | value |\n|{'---|' * 2}")
        for part in parts:
            measured = _PARTS[part](place)
            # Printed at once, so that an interrupted run has printed its results so far.
            for what, figure in measured.items():
                print(f"| {what} | {figure:,} |", flush=True)
            errors = figures.get("errors", 0) + measured.get("errors", 0)
            figures |= {**measured, "errors": errors}
    report("delivery", figures)


def _rates(place: Place) -> dict[str, float]:
    write_all(place.servers, "rate", count=_BACKLOG_EVENTS)
    with running_driver(place.servers, place.folder / "rates") as driver:
        by_round = rates(
            place.servers,
            "rate",
            place.sink,
            driver,
            place.folder / "reading",
            _BACKLOG_EVENTS,
            _ROUNDS,
        )
    return {
        # One ratio for each round: if the machine is disturbed, both sides of that ratio suffer.
        "ratio_delivery": round(statistics.median(our / limit for limit, our in by_round), 3),
        "read_events_per_s": round(statistics.median(limit for limit, _ in by_round)),
        "drain_per_s": round(statistics.median(our for _, our in by_round)),
    }


def _micro_batch(place: Place) -> dict[str, float]:
    with running_driver(place.servers, place.folder / "micro-batch") as driver:
        return _named("microbatch", _lags(place, driver, "micro-batch", _MICRO_BATCH_S))


def _realtime(place: Place) -> dict[str, float]:
    with running_driver(place.servers, place.folder / "realtime") as driver:
        return _named("realtime", _lags(place, driver, "realtime", _REALTIME_S))


def _crowd(place: Place) -> dict[str, float]:
    with running_driver(place.servers, place.folder / "crowd") as driver:
        rounds = _neighbours(place, driver)
    both = (
        _named("alone", _median([alone for alone, _ in rounds])),
        _named("crowded", _median([crowded for _, crowded in rounds])),
    )
    ratios = [round(crowded.p99 / alone.p99, 2) for alone, crowded in rounds]
    return {
        # A ratio for each round, as above.
        "neighbour_p99_ratio": statistics.median(ratios),
        **{f"neighbour_p99_ratio_{number}": each for number, each in enumerate(ratios, 1)},
        **both[0],
        **both[1],
        "errors": both[0]["errors"] + both[1]["errors"],
    }


_PARTS: dict[str, Callable[[Place], dict[str, float]]] = {
    "rates": _rates,
    "micro-batch": _micro_batch,
    "realtime": _realtime,
    "neighbours": _crowd,
}


async def _prepare(servers: str) -> None:
    streams = ["rate", "micro-batch", "realtime", "healthy", *_NEIGHBOURS]
    async with topic_admin(servers) as admin:
        tiers = [tier.name for tier in RetrySchedule().tiers]
        await admin.create_missing([*fixed_specs(tiers), *map(stream_spec, streams)])


def _lags(place: Place, driver: Driver, latency: Latency, duration_s: float) -> Lags:
    to = Destination(stream=latency, name="sink", url=place.sink.url("quick"), latency=latency)
    driver.set_up([to])
    _measure(place, [latency], _LAG_EVENTS_PER_S, _WARM_UP_S)
    lags = _measure(place, [latency], _LAG_EVENTS_PER_S, duration_s)
    driver.take_away([to])
    return lags


def _neighbours(place: Place, driver: Driver) -> list[tuple[Lags, Lags]]:
    healthy = Destination(stream="healthy", name="sink", url=place.sink.url("quick"))
    # Nobody listens at port 9, that of the obsolete discard service.
    urls = {name: place.sink.url(name) for name in _NEIGHBOURS[1:]} | {
        "dead": "http://127.0.0.1:9/"
    }
    bad = [Destination(stream=name, name="sink", url=urls[name]) for name in _NEIGHBOURS]
    streams = ["healthy", *_NEIGHBOURS]
    driver.set_up([healthy])
    _measure(place, ["healthy"], _NEIGHBOUR_EVENTS_PER_S, _WARM_UP_S)
    rounds = []
    for _ in range(_NEIGHBOUR_ROUNDS):
        alone = _measure(place, ["healthy"], _NEIGHBOUR_EVENTS_PER_S, _NEIGHBOUR_S)
        driver.set_up(bad)
        _measure(place, streams, _NEIGHBOUR_EVENTS_PER_S, _JOIN_S)
        rounds.append((alone, _measure(place, streams, _NEIGHBOUR_EVENTS_PER_S, _NEIGHBOUR_S)))
        driver.take_away(bad)
    return rounds


def _measure(place: Place, streams: list[str], events_per_s: float, duration_s: float) -> Lags:
    """Load all streams at once; return the lags of the first, whose events the quick sink gets."""
    load = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.paced", place.servers),
            *(str(events_per_s), str(duration_s), *streams),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=duration_s + 60,
    )
    expected = int(load.stdout)
    lags_ms: list[float] = []
    until_s = time.monotonic() + _ARRIVE_TIMEOUT_S
    while len(lags_ms) < expected and time.monotonic() < until_s:
        time.sleep(0.2)
        lags_ms += place.sink.take_lags_ms()
    return Lags.of(lags_ms, expected)


def _median(each: Sequence[Lags]) -> Lags:
    return Lags(
        statistics.median(one.p50 for one in each),
        statistics.median(one.p95 for one in each),
        statistics.median(one.p99 for one in each),
        max(one.worst for one in each),
        sum(one.missing for one in each),
    )


def _named(name: str, lags: Lags) -> dict[str, float]:
    return {
        f"{name}_p50_ms": round(lags.p50, 1),
        f"{name}_p95_ms": round(lags.p95, 1),
        f"{name}_p99_ms": round(lags.p99, 1),
        "errors": lags.missing,
    }


if __name__ == "__main__":
    main()
