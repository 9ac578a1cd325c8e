"""Measures the cost of a thousand destinations in one delivery process, and of sharing them.

(a) 1,000 destinations of 200 streams (800 Kafka partitions) in one process: its processor time and
the broker's, idle and with 200 events/s over all streams (1,000 deliveries/s); the age of events on
arrival; memory; the time until a new destination is live; and the others' ages beside 20 that are
dead, slow or answer 429. (b) The same events with 1, 2 and 3 processes: processor time per event.
(c) How long lanes stop when they move to another process, and which events come twice: in a planned
move, after kill -9, and when their owner is frozen. (d) 20 real-time destinations of one stream
with 200 events/s.
`python -m benchmarks.fleet [many] [processes] [moves] [kills=N] [frozen=N] [real_time]`.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.delivery_driver import Driver, await_lanes, running_driver
from benchmarks.fleet_moves import moves
from benchmarks.lag_sink import LagSink, running_lag_sink
from benchmarks.process_tree import used_by
from benchmarks.report import report
from deploy.local.cluster import Cluster
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.envelope import event_headers
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.kafka.clients import new_producer
from shared.runtime.kafka.topic_admin import topic_admin

_STREAMS, _DESTINATIONS = 200, 1_000
_EVENTS_PER_S = 200
_EVENT_BYTES = 500
_WARM_UP_S, _IDLE_S, _LOAD_S = 20.0, 15.0, 30.0
_BAD = 20
_IN_REAL_TIME = 20
# Two simultaneous kills, or one freeze, take as long as a lease. For steadier figures, use 20 kills
# and 10 freezes.
_FAULTS = {"kills": 2, "frozen": 1}
_ARRIVE_TIMEOUT_S = 60.0
_SEED = 7


@dataclass(frozen=True, slots=True)
class Place:
    servers: str
    broker: int
    sink: LagSink
    folder: Path


@dataclass(frozen=True, slots=True)
class Load:
    """The results of a measured load."""

    lags_ms: Sequence[float]
    missing: int
    cores: float
    broker_cores: float

    def percentile(self, part: float) -> float:
        ordered = sorted(self.lags_ms) or [float("nan")]
        return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1)


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    parts = [each for each in sys.argv[1:] if "=" not in each] or list(_PARTS)
    figures: dict[str, float] = {"errors": 0}
    print(f"| figure | value |\n|{'---|' * 2}")
    for part in parts:
        with _place() as place:
            for what, figure in _PARTS[part](place):
                if what == "errors":
                    figures["errors"] += figure
                else:
                    figures[what] = figure
                print(f"| {what} | {figure:,} |", flush=True)
    report("fleet", figures)


@contextmanager
def _place() -> Iterator[Place]:
    """A Kafka without the lanes of another part, and a sink."""
    with (
        tempfile.TemporaryDirectory() as name,
        Cluster(folder=Path(name) / "kafka", cache=default_cache()) as cluster,
        running_lag_sink() as sink,
    ):
        asyncio.run(_prepare(cluster.bootstrap_servers))
        yield Place(cluster.bootstrap_servers, cluster.child(1).pid, sink, Path(name))


async def _prepare(servers: str) -> None:
    async with topic_admin(servers) as admin:
        tiers = [tier.name for tier in RetrySchedule().tiers]
        await admin.create_missing([*fixed_specs(tiers), *map(stream_spec, _streams())])


def _streams() -> list[str]:
    return [f"s{number}" for number in range(_STREAMS)]


def _destinations(sink: LagSink) -> list[Destination]:
    return [
        Destination(stream=f"s{n % _STREAMS}", name=f"d{n // _STREAMS}", url=sink.url("quick"))
        for n in range(_DESTINATIONS)
    ]


def _many(place: Place) -> Iterator[tuple[str, float]]:
    wanted = _destinations(place.sink)
    with running_driver(place.servers, place.folder / "many") as driver:
        driver.configure([*map(Stream, _streams()), *wanted])
        await_lanes([driver], wanted, are_up=True)
        warm = _load(place, [driver], _WARM_UP_S, fan_out=_DESTINATIONS // _STREAMS)
        yield "errors", warm.missing
        cores, broker_cores = _idle(place, driver)
        yield "idle_cores", cores
        yield "idle_broker_cores", broker_cores
        load = _load(place, [driver], _LOAD_S, fan_out=_DESTINATIONS // _STREAMS)
        yield "p50_ms", load.percentile(0.5)
        yield "p95_ms", load.percentile(0.95)
        yield "p99_ms", load.percentile(0.99)
        yield "load_cores", load.cores
        yield "load_broker_cores", load.broker_cores
        yield "errors", load.missing
        yield "rss_mb", used_by(driver.pid)[1]
        begun_s = time.monotonic()
        driver.set_up([Destination(stream="s0", name="new", url=place.sink.url("slow"))])
        yield "new_live_s", round(time.monotonic() - begun_s, 1)
        yield from _crowded(place, driver, load)


def _crowded(place: Place, driver: Driver, alone: Load) -> Iterator[tuple[str, float]]:
    """Add twenty destinations that are dead, slow or answer 429; measure the others again."""
    manners = [place.sink.url("slow"), place.sink.url("limiting"), "http://127.0.0.1:9/"]
    bad = [
        Destination(stream=f"s{n * 10}", name="bad", url=manners[n % len(manners)])
        for n in range(_BAD)
    ]
    driver.set_up(bad)
    _load(place, [driver], _WARM_UP_S, fan_out=_DESTINATIONS // _STREAMS)
    beside = _load(place, [driver], _LOAD_S, fan_out=_DESTINATIONS // _STREAMS)
    yield "crowded_p99_ms", beside.percentile(0.99)
    yield "crowded_ratio", round(beside.percentile(0.99) / alone.percentile(0.99), 2)
    yield "errors", beside.missing
    driver.take_away(bad)


def _processes(place: Place) -> Iterator[tuple[str, float]]:
    wanted = _destinations(place.sink)
    costs = []
    for count in (1, 2, 3):
        with ExitStack() as running:
            drivers = [
                running.enter_context(running_driver(place.servers, place.folder / f"p{count}{n}"))
                for n in range(count)
            ]
            drivers[0].configure([*map(Stream, _streams()), *wanted])
            await_lanes(drivers, wanted, are_up=True)
            _load(place, drivers, _WARM_UP_S, fan_out=_DESTINATIONS // _STREAMS)
            load = _load(place, drivers, _LOAD_S, fan_out=_DESTINATIONS // _STREAMS)
            costs.append(load.cores / _EVENTS_PER_S)
            yield f"us_per_event_{count}", round(1e6 * costs[-1], 1)
            yield "errors", load.missing
    yield "cost_ratio_3", round(costs[-1] / costs[0], 2)


def _idle(place: Place, driver: Driver) -> tuple[float, float]:
    # Wait until running jobs have ended and the last positions are committed.
    time.sleep(5)
    before, broker = used_by(driver.pid)[0], used_by(place.broker)[0]
    time.sleep(_IDLE_S)
    ours, theirs = used_by(driver.pid)[0] - before, used_by(place.broker)[0] - broker
    return round(ours / _IDLE_S, 3), round(theirs / _IDLE_S, 3)


def _load(
    place: Place,
    drivers: Sequence[Driver],
    duration_s: float,
    *,
    fan_out: int,
    streams: int = _STREAMS,
) -> Load:
    place.sink.take_lags_ms()
    before = sum(used_by(driver.pid)[0] for driver in drivers)
    broker = used_by(place.broker)[0]
    begun_s = time.monotonic()
    expected = fan_out * asyncio.run(_write(place.servers, duration_s, streams))
    took_s = time.monotonic() - begun_s
    after = sum(used_by(driver.pid)[0] for driver in drivers)
    broker_after = used_by(place.broker)[0]
    lags_ms: list[float] = []
    until_s = time.monotonic() + _ARRIVE_TIMEOUT_S
    while len(lags_ms) < expected and time.monotonic() < until_s:
        time.sleep(0.2)
        lags_ms += place.sink.take_lags_ms()
    return Load(
        lags_ms,
        max(0, expected - len(lags_ms)),
        round((after - before) / took_s, 3),
        round((broker_after - broker) / took_s, 3),
    )


async def _write(servers: str, duration_s: float, streams: int) -> int:
    """Write events at a steady pace, each to a random stream; return their number."""
    producer = new_producer(servers)
    await producer.start()
    dice = random.Random(_SEED)  # noqa: S311 - the same streams each time
    begun_s, count = time.monotonic(), 0
    try:
        while (due_s := begun_s + count / _EVENTS_PER_S) < begun_s + duration_s:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            at_ms = now_ms()
            head = b'{"id":"%d","made_ns":%d,"pad":"' % (count, time.time_ns())
            value = head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}'
            headers = event_headers(event_id=str(count), event_time_ms=at_ms, accepted_at_ms=at_ms)
            topic = stream_topic(f"s{dice.randrange(streams)}")
            await producer.send(topic, value, headers=list(headers))
            count += 1
        await producer.flush()
    finally:
        await producer.stop()
    return count


def _real_time(place: Place) -> Iterator[tuple[str, float]]:
    wanted = [
        Destination(stream="s0", name=f"r{n}", url=place.sink.url("quick"), latency="realtime")
        for n in range(_IN_REAL_TIME)
    ]
    with running_driver(place.servers, place.folder / "real_time") as driver:
        driver.set_up(wanted)
        _load(place, [driver], _WARM_UP_S, fan_out=_IN_REAL_TIME, streams=1)
        load = _load(place, [driver], _LOAD_S, fan_out=_IN_REAL_TIME, streams=1)
        yield "real_time_p50_ms", load.percentile(0.5)
        yield "real_time_p95_ms", load.percentile(0.95)
        yield "real_time_p99_ms", load.percentile(0.99)
        yield "real_time_cores", load.cores
        yield "errors", load.missing


def _moves(place: Place) -> Iterator[tuple[str, float]]:
    asked = dict(each.split("=") for each in sys.argv[1:] if "=" in each)
    kills, freezes = (int(asked.get(name, usual)) for name, usual in _FAULTS.items())
    yield from moves(place.servers, place.sink, place.folder, kills=kills, freezes=freezes)


_PARTS: dict[str, Callable[[Place], Iterator[tuple[str, float]]]] = {
    "many": _many,
    "processes": _processes,
    "moves": _moves,
    "real_time": _real_time,
}


if __name__ == "__main__":
    main()
