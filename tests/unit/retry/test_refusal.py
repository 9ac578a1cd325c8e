"""Events that are not tried now wait uncharged in the tier nearest to their time, or die."""

from dataclasses import replace

import pytest

from shared.event.envelope import EVENT_BYTES_MAX, History
from shared.retry.attempt import Failure, Response
from shared.retry.decision import (
    DEADLINE_PASSED,
    TOO_LARGE,
    DeadLetter,
    Decision,
    Park,
    RetryLater,
    RetryLocally,
    Situation,
    Split,
    refuse,
    settle,
)
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import DAY_S, NOW_MS, a_history, an_envelope, decided

SCHEDULE = RetrySchedule()
SITUATION = Situation(9, NOW_MS, may_retry_locally=True, local_attempt_count=3, budget_s=5.0)


def test_what_a_held_destination_rejects_waits() -> None:
    held = replace(SITUATION, is_held=True)
    decision = decided(a_history(), Response(401), SCHEDULE, held)
    assert isinstance(decision, Park)
    assert (decision.history.attempt_count, decision.history.cause) == (0, "status_401")
    assert isinstance(decided(a_history(), Response(400), SCHEDULE, held), Split)


def test_what_the_destination_cannot_bear_is_not_tried_again_in_place() -> None:
    first = replace(SITUATION, local_attempt_count=1)
    assert isinstance(decided(a_history(), Response(503), SCHEDULE, first), RetryLocally)
    unbearable = replace(first, may_retry_locally=False)
    assert isinstance(decided(a_history(), Response(503), SCHEDULE, unbearable), RetryLater)


# cause, seconds until a try is allowed, seconds to the deadline -> tier, and seconds without a try
REFUSALS = [
    (Failure.BREAKER_OPEN, 30, DAY_S, "30s", 0),
    (Failure.BREAKER_OPEN, 164, DAY_S, "30s", 0),
    (Failure.BREAKER_OPEN, 166, DAY_S, "5m", 0),
    (Failure.HELD, 900, DAY_S, "5m", 0),
    (Failure.HELD, 1_200, DAY_S, "5m", 0),
    (Failure.OVER_RATE, 40, DAY_S, "30s", 40),
    (Failure.OVER_RATE, 50_000, 2 * DAY_S, "8h", 50_000),
    # Near the deadline: a shorter tier, and one last try.
    (Failure.OVER_RATE, 50_000, 400, "5m", 340),
    (Failure.BREAKER_OPEN, 900, 31, "30s", 0),
    (Failure.BUDGET_USED_UP, -5, DAY_S, "30s", 0),
]


@pytest.mark.parametrize(("failure", "wait_s", "left_s", "tier", "not_before_s"), REFUSALS)
def test_what_is_not_tried_waits_in_the_tier_nearest_to_its_time(
    failure: Failure, wait_s: float, left_s: float, tier: str, not_before_s: float
) -> None:
    decision = refuse(
        a_history(attempt_count=3, deadline_s=left_s),
        failure,
        RetrySchedule(),
        until_ms=NOW_MS + round(wait_s * 1000),
        now_ms=NOW_MS,
    )
    assert isinstance(decision, Park)
    assert decision.tier.name == tier
    assert (decision.history.attempt_count, decision.history.park_count) == (3, 1)
    assert decision.history.cause == failure.value
    assert decision.history.not_before_ms == NOW_MS + round(not_before_s * 1000)


def test_what_cannot_wait_any_more_is_dead_and_so_is_what_a_disabled_one_would_get() -> None:
    def refused(failure: Failure, history: History) -> Decision:
        return refuse(history, failure, RetrySchedule(), until_ms=0, now_ms=NOW_MS)

    late = refused(Failure.BREAKER_OPEN, a_history(deadline_s=30))
    assert isinstance(late, DeadLetter)
    assert late.reason == DEADLINE_PASSED
    disabled = refused(Failure.DISABLED, a_history(attempt_count=2))
    assert isinstance(disabled, DeadLetter)
    assert (disabled.reason, disabled.history.attempt_count) == ("endpoint_disabled", 2)


def test_what_no_tier_can_hold_does_not_wait() -> None:
    event = an_envelope(7)
    too_large = replace(event, value=b"v" * (EVENT_BYTES_MAX + 1))
    history = a_history()
    waits = RetryLater(SCHEDULE.tiers[0], history)
    assert settle(waits, event) is waits
    assert settle(waits, too_large) == DeadLetter(TOO_LARGE, history)
    dead = DeadLetter("status_400", history)
    assert settle(dead, too_large) is dead
