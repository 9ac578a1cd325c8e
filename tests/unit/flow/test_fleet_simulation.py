"""Machines that send to one destination keep its limits together, in simulated time.

News takes up to 170 ms; clocks differ by up to 1.8 s where a test says so.
"""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from shared.config.destination import Destination
from shared.flow.breaker import BreakerState
from shared.flow.flow import SendLimits
from shared.retry.attempt import Attempt, Response
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.limited_servers import AtOnce, LimitedServer, PerSecond
from tests.support.delivery.virtual_fleet import Answering, VirtualFleet, VirtualMachine

pytestmark = pytest.mark.simulation

ALL = 10_000.0
Load = Callable[[float], float]


def always(events_per_s: float) -> Load:
    return lambda _: events_per_s


def from_(begin_s: float) -> Load:
    return lambda at_s: ALL if at_s >= begin_s else 0.0


def well() -> Answering:
    dice = random.Random(1)
    return lambda _: (Response(200), 100 * dice.uniform(0.8, 1.2))


def fleet(
    loads: list[Load], answer: Answering | None = None, *, ahead_ms: int = 0, **settings: object
) -> VirtualFleet:
    """Return machines with these loads; the second one's clock is ahead, the third one's behind."""
    to = Destination("orders", "shop", "https://shop.example/in", **settings)  # type: ignore[arg-type]
    clocks = [0, ahead_ms, -ahead_ms]
    machines = [
        VirtualMachine(f"m{nth}", load, ahead_ms=clocks[nth % 3]) for nth, load in enumerate(loads)
    ]
    return VirtualFleet(machines, SendLimits(to, RetrySchedule()), answer or well())


EVEN, SKEWED = [always(ALL)] * 3, [always(ALL), always(5), always(5)]
JOINING = [always(ALL), always(ALL), from_(10)]


@pytest.mark.parametrize(
    ("loads", "rate", "ahead_ms"),
    [
        (EVEN[:1], 100, 0),
        (EVEN, 100, 0),
        (EVEN, 100, 900),
        (EVEN, 5, 0),
        (SKEWED, 100, 0),
        (JOINING, 100, 0),
        pytest.param([always(ALL)] * 10, 100, 0, marks=pytest.mark.long),
    ],
)
def test_a_rate_holds_over_all_machines_within_a_tenth(
    loads: list[Load], rate: float, ahead_ms: int
) -> None:
    sending = fleet(loads, ahead_ms=ahead_ms, rate_per_s=rate, parallel_max=64)
    sending.live(21)
    found = [sending.per_second(begin_s, begin_s + 10) for begin_s in range(2, 12)]
    assert min(found) >= 0.9 * rate, found
    assert max(found) <= 1.1 * rate, found


@pytest.mark.parametrize(
    ("loads", "most", "ahead_ms", "part"),
    [
        (EVEN[:1], 4, 0, 0.97),
        (EVEN, 8, 0, 0.97),
        (EVEN, 4, 900, 0.9),
        # Fewer requests than machines: the machines take turns.
        (EVEN, 2, 0, 0.85),
        (EVEN, 1, 900, 0.85),
        pytest.param([always(ALL)] * 10, 4, 0, 0.85, marks=pytest.mark.long),
        (SKEWED, 8, 0, 0.8),
        (JOINING, 8, 0, 0.95),
    ],
)
def test_so_many_requests_at_once_hold_over_all_machines(
    loads: list[Load], most: int, ahead_ms: int, part: float
) -> None:
    sending = fleet(loads, ahead_ms=ahead_ms, parallel_max=most)
    sending.live(20)
    # Two may take what one has given up, if one of them hears late whose turn it is.
    assert sending.most_at_once(2, 20) <= most + (len(loads) > 3)
    assert sending.part_above(most, 2, 20) <= 0.01
    assert sending.mean_at_once(2, 20) >= part * most
    counts = [len(each.sent_ms) for each in sending.machines]
    assert min(counts) > 0, "each machine gets requests"


def test_nobody_goes_without_for_long_where_they_take_turns() -> None:
    sending = fleet([always(ALL)] * 4, parallel_max=1)
    sending.live(30)
    for machine in sending.machines:
        times = [2_000, *(at for at in machine.sent_ms if at > 2_000), 30_000]
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert max(gaps) < 10_000


def test_the_part_of_one_that_dies_is_the_others_within_seconds() -> None:
    sending = fleet(EVEN, rate_per_s=100, parallel_max=64)
    sending.machines[2].is_off = lambda at_s: at_s >= 10
    sending.live(30)
    assert 95 <= sending.per_second(15, 30) <= 105
    requests = fleet(EVEN, parallel_max=3)
    requests.machines[2].is_off = lambda at_s: at_s >= 10
    requests.live(30)
    assert requests.most_at_once(2, 30) <= 3
    assert requests.mean_at_once(15, 30) >= 0.95 * 3


def test_one_that_was_frozen_takes_nothing_from_those_that_went_on() -> None:
    sending = fleet(EVEN, parallel_max=4)
    sending.machines[2].is_off = lambda at_s: 10 <= at_s < 18
    sending.live(30)
    assert sending.most_at_once(2, 18) <= 4
    # The machine had requests before. It continues with one at a time until it knows the other
    # machines.
    assert sending.most_at_once(18, 19) <= 5
    assert sending.most_at_once(19, 30) <= 4


def test_one_alone_tells_once_a_second_and_of_many_each_a_few_times() -> None:
    alone, many = fleet(EVEN[:1], parallel_max=8), fleet(EVEN, rate_per_s=100, parallel_max=1)
    for sending in (alone, many):
        sending.live(20)
    assert len(alone.log) <= 21
    assert len(many.log) <= 20 * 3 * 5


@pytest.mark.parametrize(
    ("server", "parallel_max"),
    [
        (AtOnce(lambda _: 5, 100, 503, random.Random(5)), 16),
        pytest.param(PerSecond(20, 10, 503, random.Random(5)), 4, marks=pytest.mark.long),
        (PerSecond(100, 50, 429, random.Random(5)), 16),
    ],
)
def test_what_nobody_has_set_is_found_out_together(
    server: LimitedServer, parallel_max: int
) -> None:
    taken: list[float] = []
    refused: list[float] = []

    def answer(at_ms: float) -> tuple[Attempt, float]:
        attempt, took_ms = server.answer(at_ms)
        (taken if attempt == Response(200) else refused).append(at_ms)
        return attempt, took_ms

    fleet(EVEN, answer, parallel_max=parallel_max).live(40)
    assert len(taken) >= 0.65 * server.could_do(40)
    late = sum(at_ms > 10_000 for at_ms in refused)
    assert late < 0.08 * sum(at_ms > 10_000 for at_ms in taken)


@pytest.mark.parametrize("ahead_ms", [0, 900])
def test_a_retry_after_that_one_has_met_is_respected_by_all(ahead_ms: int) -> None:
    asked_at_ms: list[float] = []

    def answer(at_ms: float) -> tuple[Attempt, float]:
        if at_ms >= 5_000 and not asked_at_ms:
            asked_at_ms.append(at_ms)
            return Response(429, "8"), 10
        return Response(200), 20

    sending = fleet(EVEN, answer, ahead_ms=ahead_ms, rate_per_s=60, parallel_max=8)
    sending.live(20)
    begin_s = asked_at_ms[0] / 1000
    assert sending.per_second(begin_s + 0.5, begin_s + 8) == 0
    assert sending.per_second(begin_s + 11, begin_s + 14) > 0


def test_a_breaker_that_one_has_opened_is_open_for_all_and_one_of_them_probes() -> None:
    def answer(at_ms: float) -> tuple[Attempt, float]:
        return (Response(503), 300) if 5_000 <= at_ms < 50_000 else (Response(200), 200)

    sending = fleet(EVEN, answer, parallel_max=8)
    sending.live(130)
    opened_s = min(s for s in range(5, 60) if not sending.sent(s, s + 1))
    assert opened_s <= 12
    # Nothing is sent until the first probe; then some machine sends one at a time.
    probes = sorted(at for each in sending.machines for at in each.probe_ms)
    down = [at_ms for at_ms in probes if at_ms < 50_000]
    assert len(down) == 1, down
    assert sending.sent(opened_s, down[0] / 1000) == []
    for sooner, later in pairwise(probes):
        assert later - sooner >= 200, "two probes are under way at once"
    states = {each.record.flow.breaker.state for each in sending.machines}
    assert states == {BreakerState.CLOSED}
    assert sending.per_second(125, 130) > 0
