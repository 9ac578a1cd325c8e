"""Policies that imitate AWS answer as AWS does, our own follows its rule, and none flaps."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from shared.scale.fleet import FleetPlan, LaneLoad, simulate
from shared.scale.policy import (
    ByLoad,
    FleetMetrics,
    Policy,
    StepScaling,
    TargetTracking,
    Timetable,
    policy_of,
)
from shared.scale.scale_error import ScaleError
from shared.scale.throughput import Proportional
from shared.scale.traffic import curve_of, noisy
from shared.slots import SLOT_COUNT
from tests.support.kafka.slot_names import names_in

SEEN = FleetMetrics(
    at_s=0, ready=10, desired=10, use=0.6, arrivals=6_000.0, backlog=0, age_s=0, rating=1_000.0
)


def follow(policy: Policy, *points: FleetMetrics) -> list[int]:
    """Return the policy's wishes, period after period, if each comes true at once."""
    said, count = [], SEEN.desired
    for number, point in enumerate(points):
        count = policy.wanted(replace(point, at_s=10 * (number + 1), desired=count))
        said.append(count)
    return said


def by_use(target: float) -> TargetTracking:
    return TargetTracking(lambda seen: seen.use, target)


def test_target_tracking_goes_out_in_proportion_after_three_points() -> None:
    high = replace(SEEN, use=0.9)
    assert follow(by_use(0.6), high, high, high) == [10, 10, 15]


def test_target_tracking_goes_in_after_fifteen_points_below_nine_tenths() -> None:
    low = replace(SEEN, use=0.3)
    assert follow(by_use(0.6), *[low] * 15) == [10] * 14 + [5]
    near = replace(SEEN, use=0.55)
    assert follow(by_use(0.6), *[near] * 40) == [10] * 40


def test_aws_tracks_our_load_of_each_instance() -> None:
    # The 10 instances have work for 6: at a target of 0.5, AWS wants 12 after three points.
    tracked = policy_of("aws-load:0.5")
    assert follow(tracked, SEEN, SEEN, SEEN) == [10, 10, 12]
    # A backlog counts as in our policy; without a ready instance the wish stays the same.
    backlog = replace(SEEN, backlog=180_000)
    assert follow(policy_of("aws-load:0.7"), *[backlog] * 3)[-1] == 10
    assert follow(policy_of("aws-load:0.7"), *[replace(backlog, backlog=360_000)] * 3)[-1] == 12
    none = replace(SEEN, ready=0)
    assert follow(policy_of("aws-load:0.5"), *[none] * 3)[-1] == 10


def test_a_step_waits_until_the_last_one_can_have_worked() -> None:
    old = replace(SEEN, age_s=9)
    said = follow(StepScaling(lambda seen: seen.age_s, 5), *[old] * 20)
    assert said == [13] * 15 + [17] * 5
    calm = follow(StepScaling(lambda seen: seen.age_s, 5), *[SEEN] * 31)
    assert calm == [9] * 30 + [8]
    one = replace(SEEN, desired=1)
    assert StepScaling(lambda seen: seen.age_s, 5).wanted(one) == 1
    between = replace(SEEN, age_s=4)
    assert StepScaling(lambda seen: seen.age_s, 5).wanted(between) == 10


def test_a_timetable_goes_by_the_hour_of_each_day() -> None:
    table = Timetable({8 * 3_600: 12, 20 * 3_600: 6})
    hours = (0, 8, 19, 20, 24 + 9)
    assert [table.wanted(replace(SEEN, at_s=3_600 * h)) for h in hours] == [6, 12, 12, 6, 12]


def test_ours_goes_out_at_once_for_arrivals_and_for_a_backlog() -> None:
    assert follow(ByLoad(0.6), replace(SEEN, arrivals=9_000.0)) == [15]
    # 60,000 events within 60 s are as much as 1,000 events/s more.
    assert follow(ByLoad(0.6, drain_s=60), replace(SEEN, backlog=60_000)) == [12]


def test_ours_goes_in_by_a_tenth_after_a_lower_load_has_lasted() -> None:
    low = replace(SEEN, arrivals=1_000.0)
    said = follow(ByLoad(0.6, in_after_s=50), *[low] * 11)
    assert said == [10] * 4 + [9] * 5 + [8] * 2
    # If many instances run, several leave at once, but never more than the load allows.
    many = replace(SEEN, desired=60, arrivals=1_000.0, at_s=300)
    assert ByLoad(0.6).wanted(many) == 54
    assert ByLoad(0.6).wanted(replace(many, arrivals=30_500.0)) == 57
    # A peak within that time keeps all of them.
    peak = replace(SEEN, arrivals=5_900.0)
    assert follow(ByLoad(0.6, in_after_s=50), low, low, low, peak, low, low, low) == [10] * 7


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("load:0.5", 12),
        ("aws-load:0.5", 10),
        ("cpu:0.7", 10),
        ("step-cpu:0.5", 13),
        ("lag:5", 9),
        ("fixed:4", 4),
        ("hours:0=3,12=9", 3),
        ("lag:5+fixed:11", 11),
    ],
)
def test_a_policy_can_be_written(text: str, wanted: int) -> None:
    assert policy_of(text).wanted(SEEN) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "cpu",
            "cpu:2",
            "load:1.5",
            "step-cpu:1",
            "lag:-1",
            "lag:inf",
            "fixed:0.5",
            "fixed:0",
        ),
        *("hours:25=3", "hours:0=0", "hours:8", "magic:1", "cpu:0.6+"),
    ],
)
def test_what_is_no_policy_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(ScaleError, match=r"is not a policy. Policies are:\nload:0.7"):
        policy_of(text)


@pytest.mark.parametrize("rate", [6_000.0, 6_900.0, 7_000.0, 7_100.0, 12_345.0])
@pytest.mark.parametrize("text", ["load:0.7", "cpu:0.6", "step-cpu:0.8", "cpu:0.6+lag:5"])
def test_no_policy_flaps_on_a_constant_load_with_noise_of_3_percent(text: str, rate: float) -> None:
    # At most 2 steps an hour once the policy has found the size, at any load.
    dice = random.Random(11)
    hours = 6
    rates = noisy([rate] * (hours * 3_600), 0.03, lambda: dice.gauss(0, 1))
    plan = FleetPlan(throughput=Proportional(1_000.0), count_first=20)
    curve = curve_of(rates)
    # One lane in each slot, so that the test shows the policy and not an uneven spread.
    names = [name for slot in range(SLOT_COUNT) for name in names_in(slot, SLOT_COUNT)]
    lanes = [LaneLoad(curve, 1 / SLOT_COUNT, name) for name in names]
    run = simulate(lanes, plan, policy_of(text))
    ready = list(run.ready)
    settled = 3 * 3_600
    changes = [before != after for before, after in pairwise(ready)]
    assert sum(changes[settled:]) <= 2 * (hours - 3)
