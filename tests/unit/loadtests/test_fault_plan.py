"""The faults of a soak follow from its seed, one at a time, each kind equally often."""

from collections import Counter
from itertools import pairwise

import pytest

from loadtests.soak.course import Course
from loadtests.soak.fault_plan import KINDS, QUIET_S, fault_plan


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_faults_and_another_one_others(seed: int) -> None:
    plan = fault_plan(seed, duration_s=1_800, every_s=75)
    assert plan == fault_plan(seed, duration_s=1_800, every_s=75)
    assert plan != fault_plan(seed + 1, duration_s=1_800, every_s=75)


@pytest.mark.parametrize("seed", range(20))
def test_half_an_hour_has_twenty_faults_and_each_kind_about_as_often(seed: int) -> None:
    """Issue 16: a soak has at least 20 faults in half an hour."""
    counts = Counter(fault.kind for fault in fault_plan(seed, duration_s=1_800, every_s=75))
    assert counts.total() >= 20
    assert set(counts) == set(KINDS)
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("every_s", [5.0, 20.0, 75.0])
def test_faults_never_overlap_and_leave_the_ends_alone(every_s: float) -> None:
    for seed in range(20):
        plan = fault_plan(seed, duration_s=600, every_s=every_s)
        assert plan[0].at_s >= QUIET_S
        assert plan[-1].at_s + plan[-1].for_s <= 600 - QUIET_S
        assert all(one.at_s + one.for_s <= other.at_s for one, other in pairwise(plan))


def test_what_is_too_short_has_no_faults() -> None:
    assert fault_plan(1, duration_s=50, every_s=10) == ()


def test_days_are_whole_and_of_the_rate_on_the_average() -> None:
    course = Course(rate=500, duration_s=1_800)
    assert course.plan.split(",") == ["diurnal:200-800:300s"] * 6
    assert Course(rate=500, duration_s=400).plan == "diurnal:200-800:400s"
