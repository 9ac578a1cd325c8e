"""The simulation conserves events, agrees with theory where there is one, and runs fast."""

import random
import time
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.scale.fleet import FleetPlan, FleetRun, LaneLoad, simulate
from shared.scale.policy import FleetMetrics, Policy, policy_of
from shared.scale.throughput import Proportional
from shared.scale.traffic import DAY_S, curve_of, rates_of
from tests.support.kafka.slot_names import names_in

ONE = FleetPlan(
    throughput=Proportional(100.0), count_min=1, count_first=1, count_max=1, handover_s=0
)
ALONE, TWO = policy_of("fixed:1"), policy_of("fixed:2")


def poisson(dice: random.Random, mean: float) -> int:
    """Count exponential waits until a second is over."""
    count, left = 0, dice.expovariate(1.0)
    while left < mean:
        count, left = count + 1, left + dice.expovariate(1.0)
    return count


class ScriptedPolicy:
    """A policy that wants this many instances from a second on."""

    def __init__(self, *wishes: tuple[int, int]) -> None:
        self._wishes = wishes

    def wanted(self, seen: FleetMetrics) -> int:
        return [count for at_s, count in self._wishes if at_s <= seen.at_s][-1]


@given(
    rates=st.lists(st.floats(0, 900), min_size=1, max_size=80),
    weights=st.lists(st.floats(0, 2), min_size=1, max_size=6),
    held=st.sets(st.integers(0, 5)),
    wishes=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    zone_lost_at_s=st.none() | st.integers(0, 60),
)
def test_every_event_that_arrived_was_delivered_or_waits(
    rates: list[float],
    weights: list[float],
    held: set[int],
    wishes: list[int],
    zone_lost_at_s: int | None,
) -> None:
    curve = curve_of(rates)
    lanes = [LaneLoad(curve, weight, is_held=place in held) for place, weight in enumerate(weights)]
    plan = FleetPlan(
        throughput=Proportional(100.0),
        boot_s=5,
        metric_s=3,
        metric_delay_s=1,
        handover_s=2,
        failover_s=4,
        count_min=0,
        count_first=2,
        count_max=6,
        zone_lost_at_s=zone_lost_at_s,
    )
    policy = ScriptedPolicy(*((10 * place, count) for place, count in enumerate(wishes)))
    run = simulate(lanes, plan, policy)
    assert run.arrived == sum(int(weight * curve[-1]) for weight in weights)
    assert run.arrived == run.delivered + run.waiting + run.held
    assert 0 <= run.late <= run.arrived
    assert all(waits >= 0 for waits in run.backlog)
    assert len(run.ready) == len(run.age_s) == len(rates)


@pytest.mark.simulation
def test_a_server_with_random_arrivals_waits_as_long_as_theory_says() -> None:
    # M/D/1: a mean wait of rho / 2(1 - rho) service times; Kleinrock, Queueing Systems I, 5.7.
    load = 0.6
    dice = random.Random(3)
    arrivals = [poisson(dice, load) for _ in range(200_000)]
    curve = [0, *accumulate(arrivals)]
    plan = replace(ONE, throughput=Proportional(1.0))
    run = simulate([LaneLoad(curve)], plan, ALONE)
    assert run.mean_wait_s == pytest.approx(load / (2 * (1 - load)), rel=0.03)


def test_a_constant_overload_grows_as_arithmetic_says_and_so_does_the_age() -> None:
    # 150 events/s arrive, 100 leave: after t seconds 50 t wait, and the oldest is t / 3 old.
    run = simulate([LaneLoad(curve_of([150.0] * 600))], ONE, ALONE)
    assert run.backlog[-1] == run.waiting == 50 * 600
    assert run.delivered == 100 * 600
    assert run.worst_age_s == pytest.approx(200, abs=1)
    # An event at t waits for t / 2: those of the first 11 s are not late, and those of the last 5 s
    # not yet.
    assert run.late == pytest.approx(150 * (600 - 11 - 5), abs=150)


def test_a_backlog_drains_at_the_rate_that_is_left() -> None:
    # 100 s at 150/s, then 60/s: 5,000 events drain at 40/s in 125 s.
    run = simulate([LaneLoad(curve_of([150.0] * 100 + [60.0] * 200))], ONE, ALONE)
    gone_at = next(at_s for at_s in range(100, 300) if run.backlog[at_s] == 0)
    assert gone_at == pytest.approx(225, abs=1)
    assert run.waiting == 0
    assert run.waited_s == pytest.approx(5_000 * 225 / 2, rel=0.02)


def test_a_constant_load_within_the_rating_is_never_late() -> None:
    run = simulate([LaneLoad(curve_of([99.0] * 1_000))], ONE, ALONE)
    assert (run.late_share, run.worst_age_s, run.waiting, run.mean_wait_s) == (0, 0, 0, 0)
    assert run.instance_hours == pytest.approx(1_000 / 3_600)


def test_nothing_comes_of_nothing() -> None:
    run = simulate([], ONE, ALONE)
    assert (run.arrived, run.late_share, run.mean_wait_s) == (0, 0, 0)
    assert simulate([LaneLoad(curve_of([0.0] * 60))], ONE, ALONE).mean_wait_s == 0


def test_an_instance_works_after_its_metric_and_its_boot() -> None:
    plan = replace(ONE, count_max=9, boot_s=90, metric_s=10, metric_delay_s=10)
    run = simulate([LaneLoad(curve_of([50.0] * 200))], plan, ScriptedPolicy((0, 1), (60, 3)))
    # The wish follows from the figures of second 60, which are known at 70.
    assert list(run.ready).index(3) == 70 + 90
    assert run.steps == 1
    # Two more cost money from 70 on, booting or not.
    assert run.instance_s == 200 + 2 * 130


def test_what_boots_goes_first_when_less_is_wanted() -> None:
    plan = replace(ONE, count_max=9, boot_s=40, metric_delay_s=0)
    wishes = ScriptedPolicy((0, 1), (10, 3), (20, 7), (30, 4), (100, 1))
    run = simulate([LaneLoad(curve_of([1.0] * 150))], plan, wishes)
    seen = dict(zip(run.ready, range(150), strict=True))
    assert seen == {1: 149, 3: 59, 4: 99}
    # Exactly those that began to boot last are stopped.
    wishes = ScriptedPolicy((0, 1), (10, 3), (20, 7), (30, 3))
    assert max(simulate([LaneLoad(curve_of([1.0] * 150))], plan, wishes).ready) == 3


def test_lanes_stand_still_while_they_move_and_only_those_that_must() -> None:
    names = [*names_in(0, 2, 2), *names_in(1, 2, 2)]
    lanes = [LaneLoad(curve_of([10.0] * 120), name=name) for name in names]
    plan = replace(ONE, count_max=2, boot_s=0, metric_delay_s=0, handover_s=7)
    run = simulate(lanes, plan, ScriptedPolicy((0, 1), (60, 2)))
    # From one instance to two, half of the lanes move: 20 events/s wait for 7 s.
    assert max(run.backlog) == 2 * 10 * 7
    assert run.worst_age_s == 6
    assert run.waiting == 0


def test_a_lost_zone_takes_its_part_and_is_replaced() -> None:
    plan = FleetPlan(
        throughput=Proportional(100.0), boot_s=30, count_first=6, zone_lost_at_s=50, failover_s=45
    )
    lanes = [LaneLoad(curve_of([10.0] * 200), name=names_in(part, 6)[0]) for part in range(6)]
    run = simulate(lanes, plan, policy_of("fixed:6"))
    assert [run.ready[49], run.ready[50], run.ready[80]] == [6, 4, 6]
    # A third of the lanes is taken over after the session has ended.
    assert run.worst_age_s >= 44
    assert run.waiting == 0
    assert run.arrived == run.delivered


def test_a_zone_takes_what_boots_in_it_as_well() -> None:
    plan = FleetPlan(throughput=Proportional(100.0), boot_s=60, zone_lost_at_s=30)
    run = simulate([LaneLoad(curve_of([10.0] * 120))], plan, ScriptedPolicy((0, 6)))
    # Three boot from 20 on; one of them is lost at 30, together with one of the three that work.
    assert [run.ready[29], run.ready[30], run.ready[80], run.ready[90]] == [3, 2, 4, 6]


def test_a_lane_is_not_quicker_than_the_instances_that_hold_its_shards() -> None:
    plan = replace(ONE, count_min=4, count_first=4, count_max=4)
    curve = curve_of([300.0] * 60)
    for shards, left in ((1, 300 * 60 - 100 * 60), (2, 300 * 60 - 200 * 60), (3, 0)):
        lanes = [LaneLoad(curve, 1 / shards, names_in(part, 4)[0]) for part in range(shards)]
        assert simulate(lanes, plan, policy_of("fixed:4")).waiting == left


def test_a_lane_with_much_does_not_take_from_those_with_little() -> None:
    crowd = LaneLoad(curve_of([1_000.0] * 60))
    quiet = LaneLoad(curve_of([10.0] * 60))
    run = simulate([crowd, quiet, quiet], ONE, ALONE)
    alone = simulate([crowd], ONE, ALONE)
    assert run.waiting - alone.waiting == 2 * 10 * 60


def test_who_holds_more_lanes_is_later_and_the_other_is_no_help() -> None:
    plan = replace(ONE, count_min=2, count_first=2, count_max=2)
    curve = curve_of([50.0] * 60)
    fuller, emptier = names_in(0, 2, 3), names_in(1, 2, 1)
    run = simulate([LaneLoad(curve, name=name) for name in (*fuller, *emptier)], plan, TWO)
    # One that handles 100 events/s gets 150, and the other gets 50.
    assert run.waiting == (150 - 100) * 60
    even = [*names_in(0, 2, 2), *names_in(1, 2, 2)]
    assert simulate([LaneLoad(curve, name=name) for name in even], plan, TWO).waiting == 0


class NotingPolicy:
    """A policy that keeps the figures that it gets."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seen: list[FleetMetrics] = []

    def wanted(self, seen: FleetMetrics) -> int:
        self.seen.append(seen)
        return self._policy.wanted(seen)


def test_held_lanes_call_for_nothing_of_ours_and_drive_lag_to_its_maximum() -> None:
    curve = curve_of([100.0] * 7_200)
    lanes = [LaneLoad(curve), LaneLoad(curve, is_held=True)]
    plan = replace(ONE, count_max=50, throughput=Proportional(1_000.0))
    ours = NotingPolicy(policy_of("load:0.7"))
    run = simulate(lanes, plan, ours)
    assert (max(run.ready), run.steps) == (1, 0)
    assert run.held == 100 * 7_200
    assert {seen.backlog for seen in ours.seen} == {0}
    lag = simulate(lanes, plan, policy_of("lag:5"))
    assert max(lag.ready) == 50


def day_of_50_lanes(shape: str) -> FleetRun:
    curve = curve_of(rates_of(shape, mean=100_000.0))
    plan = FleetPlan(throughput=Proportional(20_000.0), count_first=12)
    lanes = [LaneLoad(curve, 1 / 50) for _ in range(50)]
    return simulate(lanes, plan, policy_of("load:0.7"))


@pytest.mark.long
def test_a_day_of_50_lanes_takes_at_most_2_s_of_a_core() -> None:
    took_s = []
    for shape in ("diurnal", "spiky", "flash-crowd"):
        begun_s = time.process_time()
        day_of_50_lanes(shape)
        took_s.append(time.process_time() - begun_s)
    print(f"diurnal, spiky, flash crowd: {took_s} s of processor time")  # noqa: T201
    assert max(took_s) <= 2


@pytest.mark.simulation
def test_a_day_of_50_lanes_looks_at_a_lane_only_when_one_waits() -> None:
    # A day has 4.3 million lane-seconds; a simulation costs what its looks cost (2 s of a core).
    assert day_of_50_lanes("diurnal").lane_visits < 0.1 * 50 * DAY_S
    spiky = day_of_50_lanes("spiky")
    assert 0 < spiky.lane_visits < 0.1 * 50 * DAY_S
    assert spiky.arrived == spiky.delivered + spiky.waiting


class RaisingPolicy:
    """A policy that wants one instance more at first, and then no change."""

    def __init__(self) -> None:
        self._is_first = True

    def wanted(self, seen: FleetMetrics) -> int:
        more, self._is_first = self._is_first, False
        return seen.desired + more


def test_metrics_are_late_and_the_wish_is_not() -> None:
    # When the policy answers the first period, the figures of two later ones, measured before the
    # answer, are still on their way: they must not undo it.
    plan = replace(ONE, count_max=9, metric_s=5, metric_delay_s=20)
    run = simulate([LaneLoad(curve_of([1.0] * 200))], plan, RaisingPolicy())
    assert (run.steps, run.ready[-1]) == (1, 2)
