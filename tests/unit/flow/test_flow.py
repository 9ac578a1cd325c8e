"""The state of a destination: permission to send, the effect of each answer, and giving it up."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from shared.config.destination import Destination
from shared.flow.breaker import ASK_AGAIN_MS, BreakerState, Start
from shared.flow.failing import failing_part
from shared.flow.flow import (
    EndedRequest,
    Flow,
    FlowState,
    SendLimits,
    after_attempt,
    may_retry_locally,
    parked,
    permits_of,
    retried_locally,
    state_of,
)
from shared.flow.resuming import resumed
from shared.flow.sharing import LOOK_AGAIN_MS
from shared.flow.starting import Answer, Never, NotNow, is_calm, left, may_start, started
from shared.proof.last_answer import ANSWER_BYTES_MAX, LastAnswer
from shared.retry.attempt import Attempt, Failure, NoResponse, Response, WebhookDirective, classify
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import NOW_MS

DAY_MS = 86_400_000
TO = Destination("orders", "shop", "https://shop.example/in", parallel_max=8)
LIMITS = SendLimits(TO, RetrySchedule())
OK, DOWN, NO = Response(200), Response(503), Response(401)
AWAY, SLOW = NoResponse(Failure.CONNECT_REFUSED), NoResponse(Failure.SLOW_ANSWER)
LATE = NoResponse(Failure.READ_TIMEOUT)


def limits_with(**settings: Any) -> SendLimits:
    return replace(LIMITS, to=replace(TO, **settings))


def told(
    flow: Flow,
    *attempts: Attempt,
    limits: SendLimits = LIMITS,
    now_ms: int = NOW_MS,
    is_probe: bool = False,
    is_half: bool = False,
    latency_ms: float = 20.0,
    waited_ms: float | None = None,
) -> Flow:
    for it in attempts:
        waited = latency_ms if waited_ms is None else waited_ms
        count = 500 - 499 * is_half
        ended = EndedRequest(it, classify(it), count, latency_ms, waited, is_probe, is_half)
        flow = after_attempt(flow, limits, ended, now_ms=now_ms, roll=0.0)
    return flow


def ask(
    flow: Flow,
    *,
    limits: SendLimits = LIMITS,
    now_ms: int = NOW_MS,
    task: str = "a",
    running: int = 0,
) -> tuple[Flow, Answer]:
    return may_start(flow, limits, task=task, running_count=running, now_ms=now_ms)


def test_an_unknown_destination_gets_two_requests_at_once() -> None:
    flow, answer = ask(Flow())
    assert answer == Start(is_probe=False)
    assert ask(flow, running=1)[1] == Start(is_probe=False)
    full, answer = ask(flow, running=2)
    assert answer == NotNow(Failure.BUDGET_USED_UP, NOW_MS + 250)
    assert full.concurrency.window.was_full


def test_tasks_share_the_requests() -> None:
    flow = structs.replace(Flow(), concurrency=structs.replace(Flow().concurrency, limit=6))
    for task in "abcd":
        flow, _ = ask(flow, task=task)
    assert permits_of(flow, LIMITS) == 6
    assert permits_of(flow, limits_with(parallel_max=2)) == 2
    assert ask(flow, task="d", running=1)[1] == Start(is_probe=False)
    assert ask(flow, task="d", running=2)[1] == NotNow(Failure.BUDGET_USED_UP, NOW_MS + 250)
    alone = left(left(flow, "a"), "b")
    assert ask(alone, task="d", running=2)[1] == Start(is_probe=False)
    # A task whose worker was killed is silent for longer than a request can take.
    late_ms = NOW_MS + round(1_000 * TO.timeout_s) + 5_000
    alone, _ = ask(flow, task="e", now_ms=late_ms)
    assert set(alone.tasks) == {"e"}
    # Within half of that time there is nothing to record.
    assert ask(alone, task="e", now_ms=late_ms + 1)[0].tasks is alone.tasks


def test_nobody_sends_to_a_paused_or_disabled_destination() -> None:
    paused = ask(Flow(), limits=limits_with(is_paused=True))[1]
    assert paused == NotNow(Failure.PAUSED, NOW_MS + 300_000)
    assert ask(Flow(), limits=limits_with(is_disabled=True))[1] == Never()
    assert ask(structs.replace(Flow(), disabled_at_ms=NOW_MS))[1] == Never()


def test_the_owners_rate_is_kept_across_tasks() -> None:
    limits = limits_with(rate_per_s=100.0)
    flow, _ = ask(Flow(), limits=limits)
    flow = started(flow, limits, event_count=500, now_ms=NOW_MS)
    assert ask(flow, limits=limits, task="b")[1] == NotNow(Failure.OVER_RATE, NOW_MS + 4_900)
    assert started(flow, LIMITS, event_count=500, now_ms=NOW_MS) is flow


def test_a_429_closes_the_gate_and_is_no_failure() -> None:
    flow = told(Flow(), OK, Response(429, "30"))
    assert ask(flow)[1] == NotNow(Failure.OVER_RATE, NOW_MS + 30_000)
    assert flow.breaker.failures_in_row == 0
    assert state_of(flow, now_ms=NOW_MS) is FlowState.RATE_LIMITED
    assert state_of(flow, now_ms=NOW_MS + 30_000) is FlowState.CLOSED


def test_a_refusal_by_a_destination_that_takes_others_stops_requests_for_a_moment() -> None:
    for refusal in (DOWN, Response(429)):
        flow = told(Flow(), OK, refusal)
        assert ask(flow)[1] == NotNow(Failure.OVER_RATE, NOW_MS + 50)
        assert state_of(flow, now_ms=NOW_MS) is FlowState.CLOSED
        # Requests that were under way with the first refusal say nothing new; the next one does.
        assert ask(told(flow, refusal))[1] == NotNow(Failure.OVER_RATE, NOW_MS + 50)
        again = told(flow, refusal, now_ms=NOW_MS + 60)
        assert ask(again, now_ms=NOW_MS + 60)[1] == NotNow(Failure.OVER_RATE, NOW_MS + 160)
        assert ask(again, now_ms=NOW_MS - 3_600_000)[1] == Start(is_probe=False)


def test_refusals_count_against_a_destination_that_takes_nothing_for_two_seconds() -> None:
    many = told(Flow(), OK, *[DOWN] * 1_000)
    assert state_of(many, now_ms=NOW_MS) is FlowState.CLOSED
    late_ms = NOW_MS + 2_001
    assert state_of(told(many, DOWN, now_ms=late_ms), now_ms=late_ms) is FlowState.OPEN
    late = told(many, Response(429), now_ms=late_ms)
    assert ask(late, now_ms=late_ms)[1] == NotNow(Failure.OVER_RATE, late_ms + 1_000)


def test_a_503_with_a_time_closes_the_gate_and_is_a_failure() -> None:
    flow = told(Flow(), Response(503, "30"))
    assert ask(flow)[1] == NotNow(Failure.OVER_RATE, NOW_MS + 30_000)
    assert flow.breaker.failures_in_row == 1


def test_ten_failures_open_the_breaker_and_a_probe_brings_one_request_back() -> None:
    flow = told(Flow(), *[AWAY] * 10)
    assert ask(flow)[1] == NotNow(Failure.BREAKER_OPEN, NOW_MS + 30_000)
    assert state_of(flow, now_ms=NOW_MS) is FlowState.OPEN
    later_ms = NOW_MS + 30_000
    flow, answer = ask(flow, now_ms=later_ms)
    assert answer == Start(is_probe=True)
    assert state_of(flow, now_ms=later_ms) is FlowState.HALF_OPEN
    concurrency = structs.replace(flow.concurrency, limit=8, mean_ms=100)
    flow = structs.replace(flow, concurrency=concurrency)
    flow = told(flow, OK, now_ms=later_ms, is_probe=True)
    assert (flow.concurrency.limit, flow.concurrency.doubling_max) == (1, 4)
    for _ in range(2):
        flow, _ = ask(flow, now_ms=later_ms)
        flow = told(flow, OK, now_ms=later_ms, is_probe=True)
    assert flow.breaker.state is BreakerState.CLOSED
    assert ask(flow, now_ms=later_ms)[1] == Start(is_probe=False)


def test_a_probe_that_was_not_the_destinations_to_answer_is_made_again() -> None:
    later_ms = NOW_MS + 30_000
    flow, _ = ask(told(Flow(), *[AWAY] * 10), now_ms=later_ms)
    flow = told(flow, NoResponse(Failure.SECRET_UNAVAILABLE), now_ms=later_ms, is_probe=True)
    assert ask(flow, now_ms=later_ms)[1] == Start(is_probe=True)
    assert flow.attempts == {"recoverable": 10, "park": 1}


def test_an_answer_of_4xx_is_an_answer() -> None:
    later_ms = NOW_MS + 30_000
    flow, _ = ask(told(Flow(), *[AWAY] * 10), now_ms=later_ms)
    flow = told(flow, Response(400), now_ms=later_ms, is_probe=True)
    assert (flow.breaker.state, flow.breaker.successes) == (BreakerState.HALF_OPEN, 1)


def test_local_retries_are_a_fifth_of_the_traffic() -> None:
    flow, retries = told(Flow(), OK), 0
    for _ in range(1_000):
        flow = told(flow, OK, DOWN)
        if may_retry_locally(flow):
            flow, retries = retried_locally(flow, DOWN), retries + 1
    assert 200 <= retries <= 50 + 1_000 * 0.2
    spent = structs.replace(flow, retry_tokens=1.0)
    assert may_retry_locally(spent)
    assert retried_locally(spent, LATE).retry_tokens == 0.0
    assert not may_retry_locally(structs.replace(spent, retry_tokens=0.99))
    assert not may_retry_locally(told(Flow(), *[AWAY] * 10))


def test_a_410_disables_at_once_and_a_person_enables_again() -> None:
    flow = told(Flow(), OK, Response(410))
    assert ask(flow)[1] == Never()
    assert state_of(flow, now_ms=NOW_MS) is FlowState.DISABLED
    assert resumed(flow, LIMITS) is flow
    limits = limits_with(resumed_at_ms=NOW_MS)
    again = resumed(flow, limits)
    assert ask(again)[1] == Start(is_probe=False)
    assert again.attempts == {"ok": 1, "non_recoverable": 1}
    # A resume counts once: a destination that is gone again stays gone until the next resume.
    gone = told(again, Response(410), now_ms=NOW_MS - 5)
    assert resumed(gone, limits) is gone
    assert ask(resumed(gone, limits_with(resumed_at_ms=NOW_MS + 1)))[1] == Start(is_probe=False)


def test_a_person_who_says_try_now_is_not_kept_waiting() -> None:
    down = told(Flow(), *[AWAY] * 10)
    for _ in range(5):
        down = told(down, AWAY, now_ms=down.breaker.until_ms, is_probe=True)
    assert down.breaker.until_ms - NOW_MS > 900_000
    limits = limits_with(resumed_at_ms=NOW_MS)
    again, answer = ask(resumed(down, limits), limits=limits)
    assert answer == Start(is_probe=True)
    # One request at a time probes it; if the destination is down, its next wait is the shortest.
    assert isinstance(ask(again, limits=limits, running=1)[1], NotNow)
    still = told(again, AWAY, limits=limits, is_probe=True)
    assert still.breaker.until_ms == NOW_MS + 30_000


def test_a_person_who_says_try_now_outdoes_what_the_destination_asked_for() -> None:
    asked = told(Flow(), Response(429, "3600"))
    assert isinstance(ask(asked)[1], NotNow)
    limits = limits_with(resumed_at_ms=NOW_MS, rate_per_s=1)
    again = resumed(started(asked, limits, event_count=9, now_ms=NOW_MS), limits)
    # Limits that the owner has set still apply.
    assert ask(again, limits=limits)[1] == NotNow(Failure.OVER_RATE, NOW_MS + 8_000)


def test_the_last_refusal_is_kept_whatever_is_taken_after_it() -> None:
    hostile = "<b>no</b>\x1b[2Jhealthy\r\n\u202eupstream" + "!" * 5_000
    flow = told(Flow(), Response(503, detail=hostile), OK)
    assert flow.last_refusal is not None
    assert (flow.last_refusal.reason, flow.last_refusal.at_ms) == ("status_503", NOW_MS)
    assert flow.last_refusal.text.startswith("<b>no</b> [2Jhealthy upstream!!")
    assert len(flow.last_refusal.text) == ANSWER_BYTES_MAX
    away = told(flow, NoResponse(Failure.SECRET_UNAVAILABLE, "no key"), now_ms=NOW_MS + 1)
    assert away.last_refusal == LastAnswer(NOW_MS + 1, "secret_unavailable", "no key")


@pytest.mark.parametrize("status", [200, 400, 503])
def test_a_destination_may_ask_to_be_disabled(status: int) -> None:
    flow = told(Flow(), OK, Response(status, directive=WebhookDirective.ABORT))
    assert ask(flow)[1] == Start(is_probe=False)
    flow = told(flow, Response(status, directive=WebhookDirective.DISABLE))
    assert ask(flow)[1] == Never()
    # The answer to a request that was already under way changes nothing.
    assert ask(told(flow, OK))[1] == Never()


def test_five_days_without_one_success_disable() -> None:
    flow = told(Flow(), *[NO] * 9)
    assert ask(told(flow, NO, now_ms=NOW_MS + 5 * DAY_MS - 1))[1] == Start(is_probe=False)
    assert ask(told(flow, NO, now_ms=NOW_MS + 5 * DAY_MS))[1] == Never()
    saved = told(told(flow, OK), *[NO] * 10, now_ms=NOW_MS + 5 * DAY_MS)
    assert saved.disabled_at_ms == 0
    # Two bad answers in a week do not disable a destination.
    rare = told(told(Flow(), NO), NO, now_ms=NOW_MS + 7 * DAY_MS)
    assert rare.disabled_at_ms == 0


HOLDING = limits_with(hold_on_rejects=True)


def test_fifty_rejections_in_a_row_hold_a_destination_that_asked_for_it() -> None:
    assert told(Flow(), *[NO] * 60).held_at_ms == 0
    assert told(Flow(), *[NO] * 49, limits=HOLDING).held_at_ms == 0
    assert told(Flow(), *[NO] * 30, Response(400), *[NO] * 30, limits=HOLDING).held_at_ms == 0
    held = told(Flow(), *[NO] * 50, limits=HOLDING)
    assert state_of(held, now_ms=NOW_MS) is FlowState.HELD
    assert ask(held, limits=HOLDING)[1] == NotNow(Failure.HELD, NOW_MS + 30_000)


def test_nearly_all_of_five_minutes_rejected_after_health_holds_it_too() -> None:
    well = told(Flow(), OK, now_ms=NOW_MS - DAY_MS)
    assert told(well, *[Response(400)] * 19, limits=HOLDING).held_at_ms == 0
    assert told(well, *[Response(400)] * 20, limits=HOLDING).held_at_ms == NOW_MS
    assert told(Flow(), *[Response(400)] * 40, limits=HOLDING).held_at_ms == 0
    assert told(well, *[OK] * 3, *[Response(400)] * 40, limits=HOLDING).held_at_ms == 0
    old = told(well, *[Response(400)] * 19, limits=HOLDING)
    assert told(old, Response(400), limits=HOLDING, now_ms=NOW_MS + 300_000).held_at_ms == 0


def test_a_held_destination_is_released_by_an_answer_of_2xx_and_nothing_less() -> None:
    held = told(Flow(), *[NO] * 50, limits=HOLDING)
    later_ms = NOW_MS + 30_000
    held, answer = ask(held, limits=HOLDING, now_ms=later_ms)
    assert answer == Start(is_probe=True)
    still = told(held, NO, limits=HOLDING, now_ms=later_ms, is_probe=True)
    assert ask(still, limits=HOLDING, now_ms=later_ms)[1] == NotNow(Failure.HELD, later_ms + 60_000)
    back = told(held, OK, limits=HOLDING, now_ms=later_ms, is_probe=True)
    assert back.held_at_ms == 0
    assert ask(back, limits=HOLDING, now_ms=later_ms)[1] == Start(is_probe=True)


def test_twenty_refused_halves_in_a_row_shut_a_destination_until_it_takes_something() -> None:
    bad = Response(400)
    flow = told(Flow(), *[bad] * 19, is_half=True)
    # An accepted request, or one that was not split off a batch, says nothing about others.
    assert told(flow, OK).halves_refused == told(Flow(), *[bad] * 50).halves_refused == 0
    flow = told(flow, bad, is_half=True)
    assert state_of(flow, now_ms=NOW_MS) is FlowState.OPEN
    assert ask(flow)[1] == NotNow(Failure.REJECTING, flow.breaker.until_ms)
    for number in (1, 2, 3):
        at_ms = flow.breaker.until_ms
        flow, answer = ask(flow, now_ms=at_ms)
        assert answer == Start(is_probe=True)
        # Only a 2xx lets other requests follow; until then they come less and less often.
        flow = told(flow, bad, now_ms=at_ms, is_probe=True)
        assert flow.breaker.until_ms - at_ms == 30_000 * 2**number
    at_ms = flow.breaker.until_ms
    for _ in range(3):
        flow, answer = ask(flow, now_ms=at_ms)
        assert answer == Start(is_probe=True)
        flow = told(flow, OK, now_ms=at_ms, is_probe=True)
    assert ask(flow, now_ms=at_ms)[1] == Start(is_probe=False)


def test_a_destination_is_slow_until_it_has_answered_ten_requests_sooner() -> None:
    assert not told(Flow(), OK, latency_ms=999.0).is_slow
    slow = told(Flow(), SLOW, latency_ms=1_000.0)
    assert slow.is_slow
    assert told(slow, *[OK] * 9).is_slow
    assert not told(slow, *[OK] * 10).is_slow
    assert told(told(slow, *[OK] * 9), OK, latency_ms=5_000.0).slow_left == 10


def test_a_destination_is_not_slow_because_we_are_busy() -> None:
    """Otherwise all destinations would be slow at once, and a slow one costs more."""
    assert not told(Flow(), OK, latency_ms=5_000.0, waited_ms=999.0).is_slow
    assert told(Flow(), OK, latency_ms=5_000.0, waited_ms=1_000.0).is_slow


def test_who_was_given_up_is_slow_however_busy_we_were() -> None:
    """Otherwise the next try would give it up again, with no more patience than before."""
    assert told(Flow(), SLOW, latency_ms=1_000.0, waited_ms=1.0).is_slow
    assert not told(Flow(), LATE, latency_ms=1_000.0, waited_ms=1.0).is_slow


def test_what_is_parked_is_counted_by_cause() -> None:
    flow = parked(parked(parked(Flow(), "over_rate", 500), "over_rate", 2), "held", 1)
    assert flow.parks == {"over_rate": 502, "held": 1}


@pytest.mark.parametrize(
    ("attempt", "is_congestion"),
    [
        (DOWN, True),
        (LATE, True),
        (NoResponse(Failure.CONNECT_REFUSED), True),
        (NoResponse(Failure.TLS_FAILED), False),
        (Response(302), False),
        (NO, False),
        (Response(429), True),
    ],
)
def test_what_is_congestion(
    attempt: Attempt,
    is_congestion: bool,  # noqa: FBT001 - a row of the table
) -> None:
    flow = told(Flow(), attempt)
    assert flow.concurrency.window.congested_count == is_congestion


@pytest.mark.parametrize(("after_s", "part"), [(-5, 0), (0, 0), (30, 0.3), (100, 1), (900, 1)])
def test_a_failing_destination_uses_up_its_time(after_s: int, part: float) -> None:
    at_ms = NOW_MS + 1_000 * after_s
    failing = told(Flow(), OK, DOWN, now_ms=NOW_MS)
    assert failing_part(failing, disable_after_s=100, now_ms=at_ms) == part
    assert failing_part(told(failing, OK), disable_after_s=100, now_ms=at_ms) == 0


def test_who_waits_for_requests_of_others_looks_again_soon_as_nobody_tells_when_they_end() -> None:
    def again_ms(running: int, unasked: int) -> int | None:
        _, answer = may_start(
            *(Flow(), LIMITS), task="a", running_count=running, now_ms=NOW_MS, unasked=unasked
        )
        return answer.until_ms - NOW_MS if isinstance(answer, NotNow) else None

    assert again_ms(0, 1) is None
    assert again_ms(0, 2) == LOOK_AGAIN_MS
    assert again_ms(1, 1) == again_ms(2, 0) == ASK_AGAIN_MS


def test_only_a_destination_without_doubt_limit_or_stop_may_be_left_alone_for_a_moment() -> None:
    well = told(Flow(), OK)
    assert is_calm(Flow(), LIMITS, now_ms=NOW_MS)
    assert is_calm(well, LIMITS, now_ms=NOW_MS)
    assert not is_calm(well, limits_with(is_paused=True), now_ms=NOW_MS)
    assert not is_calm(well, limits_with(is_disabled=True), now_ms=NOW_MS)
    assert not is_calm(well, limits_with(rate_per_s=100.0), now_ms=NOW_MS)
    assert not is_calm(told(well, *[AWAY] * 20), LIMITS, now_ms=NOW_MS)
    limited = told(well, Response(429, retry_after="5"))
    assert not is_calm(limited, LIMITS, now_ms=NOW_MS)
