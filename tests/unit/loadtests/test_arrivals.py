"""Plans say exactly how many requests are due at which time, for one worker and for many."""

import random
from itertools import pairwise
from statistics import fmean, pvariance

import pytest

from loadtests.arrivals import (
    PlanError,
    RatePlan,
    diurnal,
    due_times,
    hold,
    plan_of,
    ramp,
    seconds_of,
    spike,
    trace,
    trace_lines,
)


def dues(
    plan: RatePlan, spacing: str = "poisson", *, worker: int = 0, workers: int = 1
) -> list[float]:
    roll = random.Random(f"7/{worker}").random
    return list(due_times(plan, spacing, roll, worker=worker, workers=workers))  # type: ignore[arg-type]


PLANS: dict[str, tuple[RatePlan, list[tuple[float, float]]]] = {
    "hold": (hold(300, 30), [(0, 300), (29.9, 300), (30, 0)]),
    "ramp": (ramp(0, 600, 30), [(0, 0), (15, 300)]),
    "spike": (spike(100, 700, 30), [(5, 100), (10, 700), (19.9, 700), (20, 100)]),
    "diurnal": (diurnal(100, 500, 30), [(0, 100), (15, 500), (7.5, 300)]),
    "trace": (trace([(0, 100), (10, 500), (20, 300), (30, 0)]), [(5, 100), (15, 500), (25, 300)]),
    "typed": (plan_of("ramp:0-500:15s, hold:350:15"), [(15, 350)]),
}


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_has_the_rate_it_says_at_each_moment(kind: str) -> None:
    plan, rates = PLANS[kind]
    assert plan.duration_s == pytest.approx(30)
    for second, rate in rates:
        assert plan.rate_at(second) == pytest.approx(rate), f"at {second} s"


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("spacing", ["poisson", "even"])
def test_as_many_are_due_as_the_plan_wants_in_each_third_of_it(kind: str, spacing: str) -> None:
    plan, _ = PLANS[kind]
    found = dues(plan, spacing)
    for third in range(3):
        steps = 3_000
        wanted = sum(plan.rate_at(10 * (third + (nth + 0.5) / steps)) for nth in range(steps))
        wanted *= 10 / steps
        count = sum(10 * third <= due < 10 * (third + 1) for due in found)
        # Five standard deviations of a Poisson count; even arrivals differ by one at most.
        assert abs(count - wanted) <= (5 * wanted**0.5 if spacing == "poisson" else 2)
    assert found == sorted(found)


def test_the_offered_rate_is_within_a_hundredth_and_its_counts_scatter_as_poisson_does() -> None:
    """Issue 16, A2: 300 requests/s over 30 s; the noisy scatter is measured for longer."""
    assert len(dues(hold(300, 30))) == pytest.approx(9_000, rel=0.01)
    found = dues(hold(300, 1_000))
    counts = [0] * 10_000
    for due in found:
        counts[int(due * 10)] += 1
    assert 0.9 <= pvariance(counts) / fmean(counts) <= 1.1


def test_even_arrivals_are_apart_by_the_same_time() -> None:
    """Issue 16, A2: the plan itself adds nothing to the deviation of the spacing."""
    gaps = [later - sooner for sooner, later in pairwise(dues(hold(300, 30), "even"))]
    assert max(gaps) - min(gaps) < 1e-9
    assert fmean(gaps) == pytest.approx(1 / 300)


def test_workers_share_a_plan_without_knowing_each_other() -> None:
    plan = ramp(0, 600, 30)
    shares = [dues(plan, "even", worker=nth, workers=3) for nth in range(3)]
    assert sorted(due for share in shares for due in share) == pytest.approx(dues(plan, "even"))
    poisson = [dues(hold(300, 100), worker=nth, workers=3) for nth in range(3)]
    assert len({tuple(share[:5]) for share in poisson}) == 3
    together = sorted(due for share in poisson for due in share)
    assert len(together) == pytest.approx(30_000, rel=0.02)
    counts = [0] * 1_000
    for due in together:
        counts[int(due * 10)] += 1
    assert 0.85 <= pvariance(counts) / fmean(counts) <= 1.15


def test_the_same_seed_gives_the_same_moments() -> None:
    assert dues(hold(50, 5)) == dues(hold(50, 5))


def test_a_trace_is_read_as_a_file_has_it() -> None:
    plan = trace_lines("seconds,rate\n0,100\n60,400\n\n120,0\n")
    assert [plan.rate_at(second) for second in (0, 59, 61, 119, 121)] == [100, 100, 400, 400, 0]


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("1h", 3600)])
def test_times_are_read_as_they_are_typed(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a plan is hold:RATE:TIME"),
        ("hold:fast:60s", "'hold:fast:60s' is not a part of a plan"),
        ("hold:500:soon", "'soon' is not a time"),
        ("ramp:500:60s", "'ramp:500:60s' is not a part of a plan"),
        ("leap:1-2:3s", "'leap:1-2:3s' is not a part of a plan"),
        ("hold:500:0s", "times longer than 0"),
        ("ramp:nan-1:3s", "rates must be 0 or more"),
    ],
)
def test_what_is_no_plan_is_said_with_how_one_is_written(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        plan_of(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [("0,100", "at least two lines"), ("0,100\nten,200", "line 2 of the trace"), ("", "two lines")],
)
def test_what_is_no_trace_is_said(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        trace_lines(text)
