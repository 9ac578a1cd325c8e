"""A step is met, broken or invalid, and its reason names the figure and its bound."""

from dataclasses import replace

import pytest

from loadtests.slo import Slo, StepFigures, judge

GOOD = StepFigures(
    planned=10_000,
    offered=9_990,
    unsent=0,
    failed=5,
    due_p99_ms=80,
    late_p99_ms=3,
    cpu_share=0.5,
    age_p95_ms=700,
    age_p99_ms=1_900,
    backlog_share=0.001,
    unaccounted=0,
)
WHOLE = Slo(age_p95_ms=1_000, age_p99_ms=2_000, backlog_share=0.01)


def test_what_keeps_every_promise_is_met() -> None:
    assert judge(WHOLE, GOOD).word == "met"
    assert judge(WHOLE, GOOD).reasons == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"due_p99_ms": 101.0}, "p99 101.0 ms, 100 ms promised"),
        ({"failed": 11}, "11 of 9,990 requests failed"),
        ({"unsent": 1}, "1 requests were not sent"),
        ({"age_p95_ms": 1_001.0}, "p95 1001 ms at the destination"),
        ({"age_p95_ms": None}, "nothing at the destination"),
        ({"age_p99_ms": 2_001.0}, "p99 2001 ms at the destination, 2000 ms promised"),
        ({"backlog_share": 0.02}, "backlog growth: 2.0% of the rate"),
        ({"backlog_share": None}, "backlog growth: unknown"),
        ({"unaccounted": 1}, "1 acknowledged events are unaccounted for"),
    ],
)
def test_each_promise_can_be_broken(change: dict[str, float], says: str) -> None:
    verdict = judge(WHOLE, replace(GOOD, **change))  # type: ignore[arg-type]
    assert verdict.word == "broken"
    assert len(verdict.reasons) == 1
    assert says in verdict.reasons[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"late_p99_ms": 20.1}, "the generator was late: p99 20.1 ms, at most 20 ms"),
        ({"cpu_share": 0.86}, "busy for 86% of the time"),
        ({"offered": 9_000}, "the generator offered 9,000 of 10,000"),
        ({"planned": 99.0}, "99 requests are too few"),
    ],
)
def test_a_generator_that_was_the_limit_rates_nothing(change: dict[str, float], says: str) -> None:
    """Issue 16: invalid, never a rating, even where the server also broke its promise."""
    verdict = judge(WHOLE, replace(GOOD, due_p99_ms=5_000, **change))  # type: ignore[arg-type]
    assert verdict.word == "invalid"
    assert says in verdict.reasons[0]
