"""Decides what happens to an event next; no other place in Hifi does.

`decide` is asked after an attempt, `admit` when a retry tier releases a waiting event. Both are
pure: the time, the dice and the budget come in as numbers. Nothing here sends, writes or counts.
"""

import math
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from shared.event.envelope import Envelope, History
from shared.retry.attempt import Attempt, Failure, NoResponse, Outcome, Response, Verdict, classify
from shared.retry.retry_after import Wait, parse_retry_after
from shared.retry.schedule import SLOW, RetrySchedule, Tier

RETRIES_EXHAUSTED = "retries_exhausted"
DEADLINE_PASSED = "deadline_passed"
DESTINATION_REFUSED_RETRY = "destination_refused_retry"
DESTINATION_GONE = "destination_gone"
FILTERED = "filtered"
TOO_LARGE = "too_large"
MALFORMED_RETRY_RECORD = "malformed_retry_record"
# Failures that a person can end by resuming the destination. The events that waited for that must
# follow soon, so they are tried again after the second tier (5 min) at the latest.
_ENDED_BY_A_WORD = frozenset({Failure.BREAKER_OPEN, Failure.HELD})
# How many characters of a reply a dead letter shows and each waiting event carries at most.
DETAIL_CHARS_MAX = 256

# About as long as it takes to upgrade some processes; each check rewrites the event.
_UNKNOWN_S = 300.0
# How long an event that nothing may overtake waits in place after a failure that is nobody's fault:
# no other event is ahead of it.
_IN_LINE_S = 1.0


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts besides the attempt itself that affect the decision."""

    batch_count: int
    now_ms: int
    # Whether the destination refuses everything: its events wait, and do not die, until it is well.
    is_held: bool = False
    # Whether the destination may get another attempt in place.
    may_retry_locally: bool = False
    local_attempt_count: int = 0
    # Seconds left of the micro-batch's time box; a local wait must fit into it.
    budget_s: float = 0.0
    roll: float = 0.0
    # Whether nothing may overtake the event (order = "stream"): it waits in place, not in a tier.
    is_in_line: bool = False


@dataclass(frozen=True, slots=True)
class Success:
    reason: str


@dataclass(frozen=True, slots=True)
class RetryLocally:
    """Wait in place and send the same batch again."""

    delay_s: float
    history: History


@dataclass(frozen=True, slots=True)
class Split:
    """Send the halves: one bad event must not make the others fail."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The event waits in a retry tier."""

    tier: Tier
    history: History


class RetryLater(Waiting):
    """The event waits after an attempt, which is charged."""


class Park(Waiting):
    """The event waits, through no fault of the destination, so no attempt is charged."""


class Hop(Waiting):
    """The event waits in one more tier: the destination asked for longer than a tier's delay."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The event keeps its place in its stream until a later try, and so do all behind it."""

    history: History


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The event is given up for this reason, until somebody redrives it."""

    reason: str
    history: History


@dataclass(frozen=True, slots=True)
class Send:
    """The wait is over: try the event now."""

    history: History


Decision: TypeAlias = Success | RetryLocally | Split | RetryLater | Park | Hold | DeadLetter
# The decisions after which nothing more happens to an event in this task.
Final: TypeAlias = Success | RetryLater | Park | DeadLetter
Ended: TypeAlias = Final | Hold
Admission: TypeAlias = Send | Hop | DeadLetter


def decide(
    history: History,
    attempt: Attempt,
    verdict: Verdict,
    schedule: RetrySchedule,
    situation: Situation,
) -> Decision:
    """Say what happens to an event after an attempt with this verdict."""
    seen = _with_attempt(history, attempt, verdict, now_ms=situation.now_ms)
    match verdict.outcome:
        case Outcome.OK:
            return Success(verdict.reason)
        case Outcome.NON_RECOVERABLE:
            if verdict.is_splittable and situation.batch_count > 1:
                return Split(verdict.reason)
            if situation.is_held:
                return _parked(seen, schedule, situation)
            return DeadLetter(verdict.reason, replace(seen, attempt_count=seen.attempt_count + 1))
        case Outcome.RECOVERABLE:
            header = attempt.retry_after if isinstance(attempt, Response) else None
            asked = parse_retry_after(header, now_ms=situation.now_ms)
            return _retry(seen, asked, schedule, situation)
        case Outcome.PARK:
            return _parked(seen, schedule, situation)
        case _:
            assert_never(verdict.outcome)


def refuse(
    history: History,
    failure: Failure,
    schedule: RetrySchedule,
    *,
    until_ms: int,
    now_ms: int,
    is_in_line: bool = False,
    is_next: bool = False,
) -> Park | Hold | DeadLetter:
    """Say what happens to an event that is not tried now; `until_ms` is when it may be tried.

    With `is_next` it was due and had its turn, but there was no time: it is parked without a delay.
    """
    verdict = classify(NoResponse(failure))
    seen = replace(history, cause=verdict.reason)
    if verdict.outcome is Outcome.NON_RECOVERABLE:
        return DeadLetter(verdict.reason, seen)
    if failure in _ENDED_BY_A_WORD:
        until_ms = min(until_ms, now_ms + round(1000 * schedule.tiers[:2][-1].delay_s))
    if is_in_line:
        return _hold(seen, (until_ms - now_ms) / 1000, now_ms=now_ms)
    if is_next and now_ms < history.deadline_at_ms:
        return Park(SLOW, replace(seen, park_count=seen.park_count + 1, not_before_ms=now_ms))
    # Only a wait that the destination asked for must be kept; otherwise the tier decides.
    not_before_ms = until_ms if failure is Failure.OVER_RATE else now_ms
    return _park(seen, schedule, now_ms=now_ms, until_ms=until_ms, not_before_ms=not_before_ms)


def settle(decision: Ended, envelope: Envelope) -> Ended:
    """Say what happens to this event of a batch: one that no tier can take must not wait."""
    if isinstance(decision, Waiting) and not envelope.may_wait:
        return DeadLetter(TOO_LARGE, decision.history)
    return decision


def admit(history: History, schedule: RetrySchedule, *, now_ms: int) -> Admission:
    """Say what happens to a waiting event whose tier has released it."""
    if now_ms >= history.deadline_at_ms:
        return DeadLetter(DEADLINE_PASSED, history)
    left_s = (history.not_before_ms - now_ms) / 1000
    if left_s > 0:
        return Hop(schedule.tier_for_wait(left_s), history)
    return Send(history)


def admit_unknown(history: History, schedule: RetrySchedule, *, now_ms: int) -> Hop | DeadLetter:
    """Say what happens to a waiting event of a destination that is unknown here.

    Nobody has removed it either: a process of another release may know it, or its record cannot be
    read here. The event waits for us to learn of the destination, until its own deadline.
    """
    if now_ms >= history.deadline_at_ms:
        return DeadLetter(DEADLINE_PASSED, history)
    return Hop(schedule.tier_for_wait(_UNKNOWN_S), history)


def _with_attempt(history: History, attempt: Attempt, verdict: Verdict, *, now_ms: int) -> History:
    """Record the result of an attempt in the history."""
    answered = attempt if isinstance(attempt, Response) else None
    was_sent = verdict.outcome is not Outcome.PARK
    return replace(
        history,
        cause=verdict.reason,
        last_status=answered.status if answered else history.last_status,
        last_detail=attempt.detail[:DETAIL_CHARS_MAX],
        is_ambiguous=history.is_ambiguous or verdict.is_ambiguous,
        last_attempt_at_ms=now_ms if was_sent else history.last_attempt_at_ms,
    )


def _retry(
    history: History,
    asked: Wait | None,
    schedule: RetrySchedule,
    situation: Situation,
) -> RetryLocally | RetryLater | Hold | DeadLetter:
    charged = replace(history, attempt_count=history.attempt_count + 1)
    if asked is not None and asked.is_refusal:
        return DeadLetter(DESTINATION_REFUSED_RETRY, charged)
    asked_s = asked.clamped_s if asked is not None else 0.0
    # The history does not matter here: events that are sent together are retried in place together.
    if situation.may_retry_locally:
        local_s = schedule.local_delay_s(situation.local_attempt_count, roll=situation.roll)
        if local_s is not None and max(local_s, asked_s) <= situation.budget_s:
            return RetryLocally(max(local_s, asked_s), history)
    if situation.is_in_line:
        wait_s = schedule.hold_s(charged.attempt_count)
        return _hold(charged, max(wait_s, asked_s), now_ms=situation.now_ms)
    tier = schedule.tier_after(charged.attempt_count)
    if tier is None:
        return DeadLetter(RETRIES_EXHAUSTED, charged)
    return _wait(charged, schedule, tier, asked_s, situation.now_ms)


def _wait(
    history: History,
    schedule: RetrySchedule,
    tier: Tier,
    asked_s: float,
    now_ms: int,
) -> RetryLater | DeadLetter:
    """Wait for the longer of tier and destination, unless the deadline comes first."""
    left_s = (history.deadline_at_ms - now_ms) / 1000
    if tier.delay_s >= left_s:
        return DeadLetter(DEADLINE_PASSED, history)
    # If asked to wait past the deadline, make one last try earlier than that, by twice the shortest
    # tier's delay: the last hop may begin just before the wait is over, and may be released late.
    asked_s = min(asked_s, left_s - 2 * schedule.tiers[0].delay_s)
    chosen = schedule.tier_for_wait(asked_s) if asked_s > tier.delay_s else tier
    not_before_ms = now_ms + math.ceil(max(asked_s, 0.0) * 1000)
    return RetryLater(chosen, replace(history, not_before_ms=not_before_ms))


def _hold(history: History, wait_s: float, *, now_ms: int) -> Hold | DeadLetter:
    """Wait in place; the last try is at the deadline."""
    left_ms = history.deadline_at_ms - now_ms
    if left_ms <= 0:
        return DeadLetter(DEADLINE_PASSED, history)
    wait_ms = min(left_ms, math.ceil(1000 * max(0.0, wait_s)))
    return Hold(replace(history, not_before_ms=now_ms + wait_ms))


def _parked(
    history: History, schedule: RetrySchedule, situation: Situation
) -> Park | Hold | DeadLetter:
    """Park an event after an attempt that says nothing about it."""
    if situation.is_in_line:
        return _hold(history, _IN_LINE_S, now_ms=situation.now_ms)
    return _park(history, schedule, now_ms=situation.now_ms)


def _park(
    history: History,
    schedule: RetrySchedule,
    *,
    now_ms: int,
    until_ms: int = 0,
    not_before_ms: int = 0,
) -> Park | DeadLetter:
    """Wait in the tier nearest to the time, as far as the deadline allows."""
    left_s = (history.deadline_at_ms - now_ms) / 1000
    tier = schedule.tier_nearest((until_ms - now_ms) / 1000, below_s=left_s)
    if tier is None:
        return DeadLetter(DEADLINE_PASSED, history)
    # As after a failure, one last try before the deadline.
    last_ms = history.deadline_at_ms - round(2000 * schedule.tiers[0].delay_s)
    not_before_ms = max(now_ms, min(not_before_ms, last_ms))
    return Park(
        tier, replace(history, park_count=history.park_count + 1, not_before_ms=not_before_ms)
    )
