"""What delivery keeps of its rate while an archive of the same stream is filled beside it.

A backlog of 600,000 events of 500 bytes in 4 Kafka partitions is delivered to a local sink in
batches of 500: alone, and again and again while an archive keeps the same backlog in a folder.
Interleaved, three rounds. Kafka, Spark, sink and store share the machine.
"""

import statistics
from dataclasses import dataclass, field
from itertools import count

from benchmarks.archive.kept import archive_of, folder_store
from benchmarks.delivery_driver import Driver, running_driver
from benchmarks.delivery_rates import delivered_per_s
from benchmarks.lag_sink import LagSink, running_lag_sink
from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, Runner, make_streams
from shared.config.destination import Destination
from shared.config.pipeline import Pipeline

_EVENTS = 600_000
_ROUNDS = 3
_WARM_UP_ROUNDS = 1
_STREAM = "both"


def measure(bench: Bench) -> dict[str, float]:
    """Medians of the rounds; the share is that of each round by itself."""
    events = bench.count(_EVENTS)
    folder_store(bench)
    make_streams(bench.servers, [_STREAM])
    write_all(bench.servers, _STREAM, count=events)
    with (
        running_lag_sink() as sink,
        running_driver(bench.servers, bench.folder / "delivery") as driver,
        bench.running(ARCHIVE_EVERY_S="0") as runner,
    ):
        deliveries = _Deliveries(sink, driver, events)
        rounds = [
            _round(deliveries, runner, archive_of(_STREAM, f"both-{nth}"))
            for nth in range(_WARM_UP_ROUNDS + _ROUNDS)
        ][_WARM_UP_ROUNDS:]
    shares, alone, beside, kept = zip(
        *((beside / alone, alone, beside, kept) for alone, beside, kept in rounds), strict=True
    )
    return {
        "delivery_share": round(statistics.median(shares), 2),
        "delivery_alone_events_per_s": round(statistics.median(alone)),
        "delivery_beside_events_per_s": round(statistics.median(beside)),
        "archive_beside_events_per_s": round(statistics.median(kept)),
    }


@dataclass
class _Deliveries:
    """Each to a destination that is new, and so begins with the first event."""

    sink: LagSink
    driver: Driver
    events: int
    _numbers: "count[int]" = field(default_factory=count)

    def run(self) -> float:
        name = f"sink-{next(self._numbers)}"
        to = Destination(stream=_STREAM, name=name, url=self.sink.url("counting"))
        return delivered_per_s(self.sink, self.driver, to, self.events)


def _round(
    deliveries: _Deliveries, runner: Runner, archive: Pipeline
) -> tuple[float, float, float]:
    """Of delivery alone, of delivery beside the archive, of the archive: events per second."""
    alone = deliveries.run()
    beside: list[float] = []
    with runner.draining(archive, deliveries.events) as draining:
        while not draining.is_over:
            beside.append(deliveries.run())
    # The last one had the machine to itself for a part of its time.
    return alone, statistics.mean(beside[:-1] or beside), draining.per_s
