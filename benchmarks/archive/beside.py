"""Measures delivery's rate beside a busy pipeline, as a share of its rate alone.

A backlog of 600,000 events of 500 bytes in 4 Kafka partitions is delivered to a local sink in
batches of 500: once alone, and repeatedly while the pipeline works, in three interleaved rounds.
Kafka, Spark, sink and store share the machine.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from benchmarks.delivery_driver import Driver, running_driver
from benchmarks.delivery_rates import delivered_per_s
from benchmarks.lag_sink import LagSink, running_lag_sink
from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, Runner, make_streams
from shared.config.destination import Destination
from shared.config.pipeline import Pipeline

STREAM, EVENTS = "both", 600_000
_ROUNDS = 3
_WARM_UP_ROUNDS = 1


class RoundMedians(NamedTuple):
    """Medians over the rounds; `share` is the median of each round's own ratio."""

    share: float
    alone_per_s: int
    beside_per_s: int
    pipeline_per_s: int


def beside_delivery(
    bench: Bench, pipeline_of: Callable[[int], Pipeline], events: int
) -> RoundMedians:
    """Measure rounds, each with a new pipeline that stops after reading `events` events."""
    backlog = bench.count(EVENTS)
    make_streams(bench.servers, [STREAM])
    write_all(bench.servers, STREAM, count=backlog)
    with (
        running_lag_sink() as sink,
        running_driver(bench.servers, bench.folder / "delivery") as driver,
        bench.running(ARCHIVE_EVERY_S="0") as runner,
    ):
        deliveries = _Deliveries(sink, driver, backlog)
        rounds = [
            _round(deliveries, runner, pipeline_of(number), events)
            for number in range(_WARM_UP_ROUNDS + _ROUNDS)
        ][_WARM_UP_ROUNDS:]
    share = statistics.median(beside / alone for alone, beside, _ in rounds)
    return RoundMedians(
        round(share, 2), *(round(statistics.median(column)) for column in zip(*rounds, strict=True))
    )


@dataclass
class _Deliveries:
    """Runs deliveries, each to a new destination, so that each begins with the first event."""

    sink: LagSink
    driver: Driver
    events: int
    _numbers: "count[int]" = field(default_factory=count)

    def run(self) -> float:
        name = f"sink-{next(self._numbers)}"
        to = Destination(stream=STREAM, name=name, url=self.sink.url("counting"))
        return delivered_per_s(self.sink, self.driver, to, self.events)


def _round(
    deliveries: _Deliveries, runner: Runner, pipeline: Pipeline, events: int
) -> tuple[float, float, float]:
    """Return events per second: delivery alone, delivery beside the pipeline, the pipeline."""
    alone = deliveries.run()
    beside: list[float] = []
    with runner.draining(pipeline, events) as draining:
        while not draining.is_over:
            beside.append(deliveries.run())
    # During a part of the last delivery the pipeline had already ended.
    return alone, statistics.mean(beside[:-1] or beside), draining.per_s
