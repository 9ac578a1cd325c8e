"""The next step of an event: spelled out case by case, then over random lives."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.event.envelope import History
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from shared.retry.decision import (
    DEADLINE_PASSED,
    DESTINATION_REFUSED_RETRY,
    RETRIES_EXHAUSTED,
    DeadLetter,
    Decision,
    Hop,
    Park,
    RetryLater,
    RetryLocally,
    Send,
    Situation,
    Split,
    Success,
    admit,
    admit_unknown,
)
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import DAY_S, NOW_MS, a_history, decided, histories

SCHEDULE = RetrySchedule()
HOUR_S = 3_600.0


def a_situation(**settings: Any) -> Situation:
    """Return the situation after the third attempt in a micro-batch: no local retry is left."""
    third = Situation(1, NOW_MS, may_retry_locally=True, local_attempt_count=3, budget_s=5.0)
    return replace(third, **settings)


def after(attempt: Attempt, history: History | None = None) -> Decision:
    return decided(history or a_history(), attempt, SCHEDULE, a_situation())


def test_a_2xx_is_delivered() -> None:
    assert after(Response(204, retry_after="-1")) == Success("status_204")


def test_a_4xx_is_dead_and_its_attempt_is_counted() -> None:
    decision = after(Response(404, detail="no such path" + "!" * 1_000))
    assert decision == DeadLetter(
        "status_404",
        replace(
            a_history(attempt_count=1),
            cause="status_404",
            last_status=404,
            # Each waiting event carries the detail, so it is cut to its first words.
            last_detail="no such path" + "!" * 244,
            last_attempt_at_ms=a_situation().now_ms,
        ),
    )


def test_only_what_was_sent_is_an_attempt_with_a_time() -> None:
    parked = after(NoResponse(Failure.BREAKER_OPEN))
    assert isinstance(parked, Park)
    assert parked.history.last_attempt_at_ms is None
    sent = after(NoResponse(Failure.READ_TIMEOUT))
    assert isinstance(sent, RetryLater)
    assert sent.history.last_attempt_at_ms == a_situation().now_ms


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_batch_that_one_event_may_have_spoilt_is_split(status: int) -> None:
    situation = a_situation(batch_count=2)
    assert decided(a_history(), Response(status), SCHEDULE, situation) == Split(f"status_{status}")
    assert isinstance(decided(a_history(), Response(status), SCHEDULE, a_situation()), DeadLetter)


def test_a_batch_that_no_single_event_has_spoilt_is_not_split() -> None:
    situation = a_situation(batch_count=500)
    assert isinstance(decided(a_history(), Response(401), SCHEDULE, situation), DeadLetter)


# attempts made here, seconds of budget left -> local delay, or None for a retry tier
LOCAL = [
    (1, 5.0, 0.2),
    (2, 5.0, 1.0),
    (3, 5.0, None),
    (1, 0.2, 0.2),
    (1, 0.19, None),
    (2, 0.99, None),
    (1, 0.0, None),
    (1, -3.0, None),
]


@pytest.mark.parametrize(("made", "budget_s", "delay_s"), LOCAL)
def test_a_recoverable_failure_is_tried_again_in_place_while_the_budget_lasts(
    made: int, budget_s: float, delay_s: float | None
) -> None:
    situation = a_situation(local_attempt_count=made, budget_s=budget_s)
    decision = decided(a_history(), Response(503), SCHEDULE, situation)
    if delay_s is None:
        assert isinstance(decision, RetryLater)
        assert decision.history.attempt_count == 1
    else:
        assert isinstance(decision, RetryLocally)
        assert decision.delay_s == delay_s
        assert decision.history.attempt_count == 0


def test_a_local_wait_is_as_long_as_the_destination_asked() -> None:
    situation = a_situation(local_attempt_count=1)
    decision = decided(a_history(), Response(429, retry_after="3"), SCHEDULE, situation)
    assert isinstance(decision, RetryLocally)
    assert decision.delay_s == 3.0
    longer = decided(a_history(), Response(429, retry_after="5.001"), SCHEDULE, situation)
    assert isinstance(longer, RetryLater)


# completed rounds -> the next tier, or the reason why the event is given up
WALK = [
    (0, "30s"),
    (1, "5m"),
    (2, "30m"),
    (3, "2h"),
    (4, "8h"),
    (11, "8h"),
    (12, RETRIES_EXHAUSTED),
    (99, RETRIES_EXHAUSTED),
]


@pytest.mark.parametrize(("rounds", "expected"), WALK)
def test_each_round_moves_an_event_along_the_tiers(rounds: int, expected: str) -> None:
    decision = after(Response(500), a_history(attempt_count=rounds))
    match decision:
        case RetryLater(tier=tier):
            assert tier.name == expected
        case DeadLetter(reason=reason):
            assert reason == expected
        case _:
            pytest.fail(f"unexpected: {decision}")


# Retry-After -> tier, and the earliest next attempt in seconds from now
ASKED = [
    (None, "30s", 0),
    ("soon", "30s", 0),
    ("0", "30s", 1),
    ("20", "30s", 20),
    ("30.0004", "30s", 30.001),
    ("60", "30s", 60),
    ("299", "30s", 299),
    ("300", "5m", 300),
    ("7200", "2h", 7_200),
    ("86400", "8h", 86_400),
    ("999999", "8h", 86_400),
    ("9" * 400, "8h", 86_400),
    ("Tue, 14 Nov 2023 22:23:20 GMT", "5m", 600),
    ("Tue, 14 Nov 2023 22:00:00 GMT", "30s", 1),
]


@pytest.mark.parametrize(("retry_after", "tier", "not_before_s"), ASKED)
def test_the_later_of_tier_and_destination_decides(
    retry_after: str | None, tier: str, not_before_s: float
) -> None:
    decision = after(Response(503, retry_after))
    assert isinstance(decision, RetryLater)
    assert decision.tier.name == tier
    assert decision.history.not_before_ms == NOW_MS + round(not_before_s * 1000)


def test_a_tier_longer_than_asked_is_kept() -> None:
    decision = after(Response(503, "60"), a_history(attempt_count=3))
    assert isinstance(decision, RetryLater)
    assert decision.tier.name == "2h"


def test_a_negative_retry_after_is_a_refusal_for_good() -> None:
    decision = after(Response(503, "-1"))
    assert isinstance(decision, DeadLetter)
    assert decision.reason == DESTINATION_REFUSED_RETRY
    assert decision.history.attempt_count == 1


def test_what_was_never_tried_costs_no_attempt() -> None:
    decision = after(NoResponse(Failure.PAUSED, "by ops"), a_history(attempt_count=4, park_count=1))
    assert isinstance(decision, Park)
    assert decision.tier.name == "30s"
    assert (decision.history.attempt_count, decision.history.park_count) == (4, 2)
    assert (decision.history.cause, decision.history.last_detail) == ("paused", "by ops")


@pytest.mark.parametrize("attempt", [Response(500), NoResponse(Failure.PAUSED)])
@pytest.mark.parametrize(("left_s", "is_dead"), [(30.001, False), (30.0, True), (-5.0, True)])
def test_nothing_waits_past_its_deadline(attempt: Attempt, left_s: float, is_dead: bool) -> None:  # noqa: FBT001 - a row of the table
    decision = after(attempt, a_history(deadline_s=left_s))
    assert isinstance(decision, DeadLetter) is is_dead
    if isinstance(decision, DeadLetter):
        assert decision.reason == DEADLINE_PASSED


def test_asked_to_wait_past_the_deadline_an_event_gets_a_last_try_before_it() -> None:
    decision = after(Response(503, "86400"), a_history(deadline_s=10 * HOUR_S))
    assert isinstance(decision, RetryLater)
    assert decision.tier.name == "8h"
    last_try_at_ms = decision.history.deadline_at_ms - 60_000
    assert decision.history.not_before_ms == last_try_at_ms


def test_ambiguity_once_seen_stays() -> None:
    timed_out = after(NoResponse(Failure.READ_TIMEOUT))
    assert isinstance(timed_out, RetryLater)
    assert timed_out.history.is_ambiguous
    later = after(Response(500), timed_out.history)
    assert isinstance(later, RetryLater)
    assert later.history.is_ambiguous
    parked = after(NoResponse(Failure.PAUSED), later.history)
    assert isinstance(parked, Park)
    assert parked.history.is_ambiguous


def test_the_last_status_is_kept_when_no_new_one_came() -> None:
    first = after(Response(503))
    assert isinstance(first, RetryLater)
    second = after(NoResponse(Failure.CONNECT_REFUSED, "no one there"), first.history)
    assert isinstance(second, RetryLater)
    assert second.history.last_status == 503
    assert second.history.cause == "connect_refused"


# seconds to the asked time, seconds to the deadline -> the decision at the tier's release
ADMISSIONS = [
    (0.0, DAY_S, "Send"),
    (-100.0, DAY_S, "Send"),
    (0.001, DAY_S, "30s"),
    (29.0, DAY_S, "30s"),
    (400.0, DAY_S, "5m"),
    (30_000.0, DAY_S, "8h"),
    (0.0, 0.001, "Send"),
    (0.0, 0.0, DEADLINE_PASSED),
    (400.0, -1.0, DEADLINE_PASSED),
]


@pytest.mark.parametrize(("wait_s", "left_s", "expected"), ADMISSIONS)
def test_a_released_event_goes_where_the_table_says(
    wait_s: float, left_s: float, expected: str
) -> None:
    history = replace(a_history(deadline_s=left_s), not_before_ms=NOW_MS + round(wait_s * 1000))
    match admit(history, RetrySchedule(), now_ms=NOW_MS):
        case Send(history=same):
            assert (expected, same) == ("Send", history)
        case Hop(tier=tier, history=same):
            assert (expected, same) == (tier.name, history)
        case DeadLetter(reason=reason, history=same):
            assert (expected, same) == (reason, history)


attempts: st.SearchStrategy[Attempt] = st.one_of(
    st.builds(
        Response,
        st.integers(100, 599),
        st.none()
        | st.floats(-10, 200_000).map(lambda wait_s: f"{wait_s:.3f}")
        | st.sampled_from(["soon", "Fri, 31 Dec 9999 23:59:59 GMT"]),
    ),
    st.builds(NoResponse, st.sampled_from(Failure)),
)
situations = st.builds(
    Situation,
    batch_count=st.integers(1, 500),
    may_retry_locally=st.booleans(),
    local_attempt_count=st.integers(1, 5),
    budget_s=st.floats(-5, 10),
    now_ms=st.just(NOW_MS),
    roll=st.floats(0, 1, exclude_max=True),
)


@given(histories, histories, attempts, situations)
def test_events_that_were_sent_together_stay_together(
    one: History, other: History, attempt: Attempt, situation: Situation
) -> None:
    """`deliver` relies on it: a batch is only retried in place, or split, as a whole."""
    kinds = [type(decided(each, attempt, SCHEDULE, situation)) for each in (one, other)]
    if any(kind in {Success, RetryLocally, Split} for kind in kinds):
        assert kinds[0] is kinds[1]


@given(histories, attempts, situations)
def test_no_decision_forgets_what_went_before(
    history: History, attempt: Attempt, situation: Situation
) -> None:
    decision = decided(history, attempt, SCHEDULE, situation)
    if isinstance(decision, Success | Split):
        return
    kept = decision.history
    assert kept.first_attempt_at_ms == history.first_attempt_at_ms
    assert kept.deadline_at_ms == history.deadline_at_ms
    assert kept.is_ambiguous >= history.is_ambiguous
    assert 0 <= kept.attempt_count - history.attempt_count <= 1
    assert 0 <= kept.park_count - history.park_count <= 1


@dataclass
class Life:
    """An event's life in the tiers: released by the broker's clock, always somewhat late."""

    lags_s: list[float]
    now_ms: int = NOW_MS
    # The earliest next attempt that tier and destination allow.
    allowed_at_ms: int = NOW_MS
    tried_at_ms: list[int] = field(default_factory=list)
    hop_count: int = 0
    reason: str = ""

    def wait(self, delay_s: float) -> None:
        lag_s = self.lags_s[self.hop_count % len(self.lags_s)]
        self.now_ms += round((delay_s + lag_s) * 1000)
        self.hop_count += 1

    def live(self, replies: list[Attempt], schedule: RetrySchedule) -> None:
        history = History.fresh(now_ms=NOW_MS, deadline_s=schedule.deadline_s)
        released: Send | Hop | DeadLetter = Send(history)
        while True:
            assert self.hop_count < 20_000, "the event's life does not end"
            match released:
                case DeadLetter(reason=reason):
                    self.reason = reason
                    return
                case Hop(tier=tier):
                    self.wait(tier.delay_s)
                case Send(history=history):
                    reply = replies[len(self.tried_at_ms) % len(replies)]
                    self.tried_at_ms.append(self.now_ms)
                    assert self.now_ms >= self.allowed_at_ms, "the event was tried too early"
                    assert self.now_ms < history.deadline_at_ms, "it was tried past its deadline"
                    situation = a_situation(now_ms=self.now_ms)
                    decision = decided(history, reply, schedule, situation)
                    if isinstance(decision, Success | DeadLetter):
                        self.reason = decision.reason
                        return
                    assert isinstance(decision, RetryLater | Park)
                    history = decision.history
                    tier_end_ms = self.now_ms + round(decision.tier.delay_s * 1000)
                    self.allowed_at_ms = max(tier_end_ms, history.not_before_ms)
                    self.wait(decision.tier.delay_s)
            released = admit(history, schedule, now_ms=self.now_ms)


# The due gate looks every few seconds; a tier's release is late by up to that time.
lags = st.lists(st.floats(0, 10), min_size=1, max_size=8)


@given(st.lists(attempts, min_size=1, max_size=8), lags)
def test_every_life_ends_and_no_attempt_is_early_or_past_the_deadline(
    replies: list[Attempt], lags_s: list[float]
) -> None:
    life = Life(lags_s)
    life.live(replies, RetrySchedule(deadline_s=DAY_S))
    assert life.reason
    assert life.now_ms <= NOW_MS + (DAY_S + 8 * HOUR_S + 10) * 1000


def test_a_destination_that_is_always_down_sees_thirteen_rounds() -> None:
    life = Life([0.0])
    life.live([Response(500)], RetrySchedule())
    assert len(life.tried_at_ms) == 13
    assert life.reason == RETRIES_EXHAUSTED
    assert life.tried_at_ms[-1] == NOW_MS + 239_730_000


def test_a_destination_that_stays_paused_lets_events_rest_until_the_deadline() -> None:
    life = Life([1.0])
    life.live([NoResponse(Failure.PAUSED)], RetrySchedule(deadline_s=HOUR_S))
    assert life.reason == DEADLINE_PASSED
    assert life.tried_at_ms[-1] > NOW_MS + (HOUR_S - 62) * 1000


@given(st.floats(120, DAY_S - 1), st.lists(st.floats(0, 25), min_size=1, max_size=8))
def test_asked_past_the_deadline_the_last_try_comes_in_its_last_minutes(
    deadline_s: float, lags_s: list[float]
) -> None:
    life = Life(lags_s)
    life.live([Response(503, "86400"), Response(200)], RetrySchedule(deadline_s=deadline_s))
    assert life.reason == "status_200"
    assert NOW_MS + (deadline_s - 62) * 1000 <= life.tried_at_ms[1]


def test_an_event_of_an_unknown_destination_waits_until_its_deadline_and_is_not_charged() -> None:
    history = a_history()
    waits = admit_unknown(history, SCHEDULE, now_ms=history.deadline_at_ms - 1)
    assert waits == Hop(SCHEDULE.tier_for_wait(300), history)
    dies = admit_unknown(history, SCHEDULE, now_ms=history.deadline_at_ms)
    assert dies == DeadLetter(DEADLINE_PASSED, history)
