"""A spike of traffic on two delivery processes becomes as late as the simulation predicts.

Each process has a core to itself, as an instance has, and sends requests of one event. So the
processes are the bottleneck, not the writer or the receiver. The same test first rates both
processes; that rating is all that the simulation knows about this machine.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from benchmarks.delivery_driver import running_driver
from benchmarks.lag_sink import LagSink, running_lag_sink
from deploy.local.cluster import Cluster
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.topics import fixed_specs, stream_spec
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.topic_admin import topic_admin
from shared.scale.fleet import FleetPlan, LaneLoad, simulate
from shared.scale.policy import policy_of
from shared.scale.throughput import Proportional
from shared.scale.traffic import curve_of
from shared.slots import SLOT_COUNT, slot_of
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.kafka.config_records import write_config

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

PROCESSES, LANES_EACH = 2, 3
# The offer doubles until the processes deliver less than this share; the last rating is longer.
OFFERED_FIRST, SATURATED = 4_000.0, 0.75
SEARCH_S, RATE_S, WARM_S = 10.0, 20.0, 5.0
# The share of the rating before and after the spike, and the factor during it.
USE, SPIKE = 0.6, 3
BASE_S, SPIKE_S, AFTER_S = 10, 60, 60
LOOK_S = 1.0
# The number of phases written when the spike is over, and when all is written. Measuring ends
# earlier if, after the spike, the ages stay below this share of the peak for this many samples.
SPIKED, AFTER, PASSED, LATEST = 2, 3, 0.9, 5


def destinations(sink: LagSink) -> list[Destination]:
    """Find equally many destinations in each half of the slots: each process has one half."""
    found: list[list[Destination]] = [[] for _ in range(PROCESSES)]
    for number in count():
        to = Destination(f"s{number}", "spike", sink.url("quick"), body_format="single")
        half = found[slot_of(to.id) * PROCESSES // SLOT_COUNT]
        if len(half) < LANES_EACH:
            half.append(to)
        if all(len(each) == LANES_EACH for each in found):
            break
    return [to for half in found for to in half]


async def set_up(servers: str, wanted: Sequence[Destination]) -> None:
    """Create a Kafka partition for each, so that none waits for a task place."""
    tiers = [tier.name for tier in RetrySchedule().tiers]
    streams = [Stream(to.stream, partition_count=1) for to in wanted]
    specs = [stream_spec(stream.name, partition_count=1) for stream in streams]
    async with topic_admin(servers) as admin:
        await admin.create_missing([*fixed_specs(tiers), *specs])
    await write_config(servers, [*streams, *wanted])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Give this core, and no other, to processes that start here."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def writing(
    servers: str, streams: Sequence[str], *phases: tuple[float, float]
) -> Iterator[list[int]]:
    """Write one phase after the other; the list has the events per stream and phase."""
    written: list[int] = []

    def write() -> None:
        # Only benchmarks and `make test-long` install librdkafka.
        from benchmarks.paced import write_paced_cheaply  # noqa: PLC0415

        for duration_s, events_per_s in phases:
            each = events_per_s / len(streams)
            written.append(
                write_paced_cheaply(servers, streams, events_per_s=each, duration_s=duration_s)
            )

    thread = Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        thread.join()


def rating_of(servers: str, sink: LagSink, streams: Sequence[str]) -> float:
    """Return the events/s that all processes deliver together when overloaded."""
    offered = OFFERED_FIRST
    while (got := delivered(servers, sink, streams, offered, SEARCH_S)) > SATURATED * offered:
        offered *= 2
    # The writer takes some of the cores: as much as in the spike.
    offered = SPIKE * USE * got
    rating = delivered(servers, sink, streams, offered, RATE_S)
    assert rating < SATURATED * offered, "the processes were not full"
    return rating


def delivered(
    servers: str, sink: LagSink, streams: Sequence[str], offered: float, for_s: float
) -> float:
    with writing(servers, streams, (for_s, offered)):
        time.sleep(WARM_S)
        sink.take_lags_ms()
        begun_s = time.monotonic()
        time.sleep(for_s - WARM_S - LOOK_S)
        got = len(sink.take_lags_ms()) / (time.monotonic() - begun_s)
    print(f"offered {offered:,.0f} events/s, delivered {got:,.0f}")  # noqa: T201 - the figure
    wait_until(lambda: not sink.take_lags_ms(), what="all events have arrived", look_s=2 * LOOK_S)
    return got


def measured_peak_s(sink: LagSink, written: Sequence[int]) -> float:
    """Return the highest age of an arriving event, until all of the spike's events have arrived."""
    peak_s = 0.0
    latest_s: deque[float] = deque(maxlen=LATEST)
    # All three phases have been written, or the ages fall and the spike is over.
    while len(written) < AFTER and (len(written) < SPIKED or max(latest_s) > PASSED * peak_s):
        time.sleep(LOOK_S)
        latest_s.append(max(sink.take_lags_ms(), default=0.0) / 1e3)
        peak_s = max(peak_s, latest_s[-1])
    return peak_s


def simulated_peak_s(rating: float, base: float, wanted: Sequence[Destination]) -> float:
    rates = [base] * BASE_S + [SPIKE * base] * SPIKE_S + [base] * 10 * SPIKE_S
    lanes = [LaneLoad(curve_of(rates), 1 / len(wanted), to.id) for to in wanted]
    plan = FleetPlan(
        Proportional(rating / PROCESSES),
        count_min=PROCESSES,
        count_first=PROCESSES,
        count_max=PROCESSES,
    )
    return simulate(lanes, plan, policy_of(f"fixed:{PROCESSES}")).worst_age_s


@pytest.mark.parametrize("turn", range(3))
def test_a_spike_of_three_times_gets_as_late_as_the_simulation_says(
    kafka: Cluster, tmp_path: Path, turn: int
) -> None:
    cores = sorted(os.sched_getaffinity(0))[:PROCESSES]
    if len(cores) < PROCESSES:
        pytest.skip("each of the two processes needs a core of its own")
    servers = kafka.bootstrap_servers
    with running_lag_sink() as sink, ExitStack() as running:
        wanted = destinations(sink)
        asyncio.run(set_up(servers, wanted))
        drivers = []
        for core in cores:
            with on_core(core):
                driver = running.enter_context(running_driver(servers, tmp_path / f"on-{core}"))
            drivers.append(driver)
        wait_until(
            lambda: [each.says().count("lane_up{") for each in drivers] == [LANES_EACH] * PROCESSES,
            what="each process has its lanes",
            timeout_s=120,
        )
        streams = [to.stream for to in wanted]
        rating = rating_of(servers, sink, streams)
        base = USE * rating
        simulated_s = simulated_peak_s(rating, base, wanted)
        phases = [(BASE_S, base), (SPIKE_S, SPIKE * base), (AFTER_S, base)]
        with writing(servers, streams, *phases) as written:
            measured_s = measured_peak_s(sink, written)
    print(  # noqa: T201 - the figure
        f"turn {turn}: {rating:,.0f} events/s rated; peak age {measured_s:.1f} s measured,"
        f" {simulated_s:.0f} s simulated"
    )
    # The writer kept up, and offered more than could be sent: the spike itself was measured.
    assert measured_s > SPIKE_S / 3
    planned = [each / len(streams) * length_s for length_s, each in phases]
    assert written == pytest.approx(planned, rel=0.03)
    assert abs(simulated_s - measured_s) <= 0.25 * measured_s
