"""A step without Locust counts as Locust does: every answer, from its due time, in an open loop."""

import pytest

from loadtests.rating import run_step, running_step
from loadtests.rating_file import RatingPlan
from shared.runtime.setup_error import SetupError
from tests.support.servers.rated_server import running_rated_server


def test_a_step_without_locust_offers_its_plan_and_counts_every_answer() -> None:
    with running_rated_server() as host:
        step = run_step(lean(host, hold_s=3.0), 200)
    # Poisson: 600 are expected, give or take 24.
    assert 480 < step["offered"] < 720
    assert step["answers"] == {"200": step["sent"]}
    assert step["sent"] == step["offered"]
    assert (step["acked_events"], step["acked"]) == (step["sent"], [[0, [[0, step["sent"]]]]])


def test_a_stall_is_seen_from_due() -> None:
    """Issue 16, A1: a closed loop would hide the stall."""
    with running_rated_server(stall_after_s=1.0, stall_s=1.0) as host:
        step = run_step(lean(host, hold_s=5.0), 300)
    assert step["sent"] == step["offered"]
    # A fifth of the requests fell into the second without answers.
    assert 0.7 < step["due_ms"]["p99"] / 950 < 1.3
    assert step["due_ms"]["p50"] < 100


def test_a_plan_goes_before_a_rate() -> None:
    with running_rated_server() as host:
        step = run_step(lean(host, hold_s=2.0, plan="ramp:0-400:2s"), 1)
    rates = {second: offered for second, offered, *_ in step["seconds"]}
    assert rates[0] < rates[1]
    assert 300 < step["offered"] < 500


def test_whoever_does_not_answer_is_counted() -> None:
    step = run_step(lean("http://127.0.0.1:9", hold_s=1.0), 100)
    assert step["failed"] == step["sent"] == step["answers"]["ConnectionRefusedError"]
    assert step["acked_events"] == 0
    assert step["acked"] == [[0, []]]


def test_a_plan_that_is_none_is_said() -> None:
    with pytest.raises(SetupError, match="without a result"):
        run_step(lean("http://127.0.0.1:9", hold_s=1.0, plan="uphill"), 100)


def test_the_generator_ends_with_whoever_runs_it() -> None:
    """Otherwise the generator would run on for half an hour after an interrupted soak."""
    with (
        running_rated_server() as host,
        running_step(lean(host, hold_s=600.0), 10) as running,
    ):
        assert not running.is_over
    assert running.is_over


def lean(host: str, *, hold_s: float, plan: str = "") -> RatingPlan:
    return RatingPlan(
        gateway=host, batch=1, hold_s=hold_s, warmup_s=0.0, is_lean=True, plan=plan, p99_ms=1e6
    )
