"""In an ordered stream an event waits in its place; it is given up like any other."""

from dataclasses import replace

import pytest

from shared.event.envelope import History
from shared.retry.attempt import Failure, NoResponse, Response
from shared.retry.decision import (
    DEADLINE_PASSED,
    DESTINATION_REFUSED_RETRY,
    DeadLetter,
    Hold,
    RetryLocally,
    Situation,
    Split,
    Success,
    refuse,
    settle,
)
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import NOW_MS, a_history, an_envelope, decided

SCHEDULE = RetrySchedule()
IN_LINE = Situation(
    1, NOW_MS, may_retry_locally=True, local_attempt_count=3, budget_s=5.0, is_in_line=True
)


def waiting(decision: object) -> History:
    assert isinstance(decision, Hold)
    return decision.history


@pytest.mark.parametrize(("attempts", "wait_s"), [(0, 30), (1, 300), (2, 300), (40, 300)])
def test_it_waits_as_in_the_first_two_tiers_however_often_it_was_tried(
    attempts: int, wait_s: int
) -> None:
    """No tier is ever used up: only the deadline ends it."""
    before = a_history(attempt_count=attempts)
    after = waiting(decided(before, Response(503), SCHEDULE, IN_LINE))
    assert after.attempt_count == attempts + 1
    assert after.not_before_ms == NOW_MS + 1_000 * wait_s
    assert after.last_attempt_at_ms == NOW_MS


def test_the_destination_may_ask_for_longer_and_the_last_try_is_at_the_deadline() -> None:
    asked = waiting(decided(a_history(), Response(503, retry_after="900"), SCHEDULE, IN_LINE))
    assert asked.not_before_ms == NOW_MS + 900_000
    late = replace(a_history(), deadline_at_ms=NOW_MS + 7_000)
    last = waiting(decided(late, Response(503, retry_after="900"), SCHEDULE, IN_LINE))
    assert last.not_before_ms == NOW_MS + 7_000
    over = replace(a_history(), deadline_at_ms=NOW_MS)
    gone = decided(over, Response(503), SCHEDULE, IN_LINE)
    assert isinstance(gone, DeadLetter)
    assert gone.reason == DEADLINE_PASSED


def test_what_is_not_recoverable_ends_as_anywhere() -> None:
    assert isinstance(decided(a_history(), Response(404), SCHEDULE, IN_LINE), DeadLetter)
    several = replace(IN_LINE, batch_count=2)
    assert isinstance(decided(a_history(), Response(400), SCHEDULE, several), Split)
    refused = decided(a_history(), Response(503, retry_after="-1"), SCHEDULE, IN_LINE)
    assert isinstance(refused, DeadLetter)
    assert refused.reason == DESTINATION_REFUSED_RETRY
    assert decided(a_history(), Response(200), SCHEDULE, IN_LINE) == Success("status_200")
    first = replace(IN_LINE, local_attempt_count=1)
    assert isinstance(decided(a_history(), Response(503), SCHEDULE, first), RetryLocally)


def test_what_was_nobodys_fault_is_tried_again_at_once_nearly() -> None:
    slow = waiting(decided(a_history(), NoResponse(Failure.SLOW_ANSWER), SCHEDULE, IN_LINE))
    assert (slow.not_before_ms, slow.attempt_count) == (NOW_MS + 1_000, 0)
    rejecting = replace(IN_LINE, is_held=True)
    assert waiting(decided(a_history(), Response(403), SCHEDULE, rejecting)).attempt_count == 0


def test_what_may_not_be_sent_now_waits_no_longer_than_a_persons_word_may_take() -> None:
    def refused(failure: Failure, until_ms: int) -> object:
        return refuse(
            a_history(), failure, SCHEDULE, until_ms=until_ms, now_ms=NOW_MS, is_in_line=True
        )

    hour_ms = NOW_MS + 3_600_000
    assert waiting(refused(Failure.BREAKER_OPEN, hour_ms)).not_before_ms == NOW_MS + 300_000
    assert waiting(refused(Failure.BREAKER_OPEN, NOW_MS + 500)).not_before_ms == NOW_MS + 500
    assert waiting(refused(Failure.PAUSED, NOW_MS - 5)).not_before_ms == NOW_MS
    assert isinstance(refused(Failure.DISABLED, hour_ms), DeadLetter)


def test_what_no_tier_could_hold_waits_in_its_stream() -> None:
    hold = Hold(a_history())
    assert settle(hold, replace(an_envelope(), value=b"x" * 2_000_000)) == hold
