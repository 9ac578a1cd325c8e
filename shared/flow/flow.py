"""Holds the state of a destination, and learns from each request.

A `Flow` is the knowledge about a destination: its concurrent requests, its rate gate, its breaker,
its retry tokens, whether it is held or disabled. Every worker that sends to it asks `may_start`
(starting.py) and reports to `after_attempt`; both are pure, so that outages can be simulated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from shared.config.destination import Destination
from shared.flow import batch_size, rate_gate, rejects, sharing
from shared.flow.batch_size import BatchSize
from shared.flow.breaker import (
    Breaker,
    BreakerState,
    answered,
    noted_refusal,
    opened,
    unanswered,
)
from shared.flow.concurrency import Concurrency, Sample, recovered, sampled
from shared.flow.neighbours import Neighbours
from shared.flow.rate_gate import RateGate, rate_limited, refused, took
from shared.proof.last_answer import LastAnswer, shown_text
from shared.retry.attempt import (
    TOO_MANY_REQUESTS,
    Attempt,
    Failure,
    NoResponse,
    Outcome,
    Response,
    Verdict,
    WebhookDirective,
)
from shared.retry.schedule import RetrySchedule

# Local retries: a bucket of fifty tokens. A retry costs one (two after a timeout, which costs both
# sides more), a success returns a fifth: in the long run, at most a fifth of requests are retries.
RETRY_TOKENS_MAX = 50.0
RETRY_COST, TIMEOUT_RETRY_COST = 1.0, 2.0
RETRY_REFUND = 0.2
# A destination that gets an event a week is not disabled for one bad answer.
FAILURES_TO_DISABLE = 10
GONE = 410
# A worker may report this much later than its request is due.
LEASE_MARGIN_MS = 5_000
# A destination that accepted a request within this time, or within the time of two usual answers,
# is not down.
TAKING_MS = 2_000
# A destination that lets a request wait for this long is slow, until it has answered this many
# requests sooner: one late answer among many must not move it from lane to lane (ADR 0051).
SLOW_MS, QUICK_MS = 1_000, 750
QUICK_ANSWERS = 10


class FlowState(Enum):
    """The state that people see: the strictest that applies."""

    CLOSED = "closed"
    RATE_LIMITED = "rate-limited"
    HALF_OPEN = "half_open"
    OPEN = "open"
    HELD = "held"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class SendLimits:
    """The settings of the destination's owner, and the schedule of its retries."""

    to: Destination
    schedule: RetrySchedule

    @property
    def open_ms_min(self) -> float:
        """How long the breaker opens for the first time: the first retry tier's delay."""
        return 1000 * self.schedule.tiers[0].delay_s

    @property
    def lease_ms(self) -> int:
        """After this, which is longer than a request can take, a silent worker counts as gone."""
        return round(1000 * self.to.timeout_s) + LEASE_MARGIN_MS


class ChangeCounts(Struct, frozen=True, omit_defaults=True):
    """How often the knowledge that machines share has changed: the highest count is the newest."""

    breaker: int = 0
    gate: int = 0
    limit: int = 0


class Blocking(Struct, frozen=True, omit_defaults=True):
    """The event that holds up all behind it, where nothing may overtake it (order = "stream")."""

    offset: int = 0
    # 0 if there is none.
    since_ms: int = 0
    # When it is tried next, and how often it was tried.
    until_ms: int = 0
    attempts: int = 0


NOTHING = Blocking()


class Flow(Struct, frozen=True):
    concurrency: Concurrency = field(default_factory=Concurrency)
    gate: RateGate = field(default_factory=RateGate)
    breaker: Breaker = field(default_factory=Breaker)
    retry_tokens: float = RETRY_TOKENS_MAX
    last_ok_at_ms: int = 0
    failing_since_ms: int = 0
    failures_in_row: int = 0
    rejects_in_row: int = 0
    # Kept until the next refusal, even if requests were taken in between.
    last_refusal: LastAnswer | None = None
    halves_refused: int = 0
    minutes: tuple[rejects.MinuteOfRequests, ...] = ()
    # 0 if it is not held, or not disabled.
    held_at_ms: int = 0
    disabled_at_ms: int = 0
    # The last time that a person resumed it, as far as this flow knows (resuming.py).
    resumed_at_ms: int = 0
    # Requests by the outcome of their verdict, and events parked by cause; they only grow.
    attempts: Mapping[str, int] = field(default_factory=dict)
    parks: Mapping[str, int] = field(default_factory=dict)
    tasks: sharing.Tasks = field(default_factory=dict)
    # When the next request may go to a destination that gets less than one request at a time.
    paced_until_ms: float = 0.0
    # This many more quick answers until it is no longer slow.
    slow_left: int = 0
    # Other machines that send to it, and how often their shared knowledge has changed.
    neighbours: Neighbours = field(default_factory=Neighbours)
    changes: ChangeCounts = field(default_factory=ChangeCounts)
    blocking: Blocking = NOTHING
    # How many events go together; each machine finds that out for itself.
    batch_size: BatchSize = field(default_factory=BatchSize)

    @property
    def is_blocked(self) -> bool:
        return bool(self.blocking.since_ms)

    @property
    def is_slow(self) -> bool:
        return self.slow_left > 0

    @property
    def is_held(self) -> bool:
        return bool(self.held_at_ms)

    @property
    def is_rejecting(self) -> bool:
        return self.halves_refused >= rejects.HALVES_IN_ROW


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """One request, and its result."""

    attempt: Attempt
    verdict: Verdict
    event_count: int
    latency_ms: float
    # The part of the latency in which its sender had nothing else to do.
    waited_ms: float
    is_probe: bool
    # Whether it was part of a batch that was refused.
    is_half: bool = False
    # Whether it was the last part, after all others were taken.
    is_last_suspect: bool = False
    # Whether its event was a dead letter that somebody has sent again.
    is_redriven: bool = False


def state_of(flow: Flow, *, now_ms: int) -> FlowState:
    if flow.disabled_at_ms:
        return FlowState.DISABLED
    if flow.is_held or flow.is_blocked:
        return FlowState.HELD
    match flow.breaker.state:
        case BreakerState.OPEN:
            return FlowState.OPEN
        case BreakerState.HALF_OPEN:
            return FlowState.HALF_OPEN
        case BreakerState.CLOSED:
            return (
                FlowState.RATE_LIMITED if now_ms < flow.gate.closed_until_ms else FlowState.CLOSED
            )
        case _:
            assert_never(flow.breaker.state)


def permits_of(flow: Flow, limits: SendLimits) -> int:
    """How many requests all tasks together may have under way."""
    return min(flow.concurrency.permits, limits.to.requests_at_once_max)


def after_attempt(
    flow: Flow, limits: SendLimits, ended: EndedRequest, *, now_ms: int, roll: float
) -> Flow:
    """The flow after a request; `roll` is in [0, 1)."""
    outcome = ended.verdict.outcome
    flow = replace(
        flow,
        attempts=_added(flow.attempts, outcome.value, 1),
        slow_left=QUICK_ANSWERS if _was_slow(flow, ended) else max(0, flow.slow_left - 1),
    )
    if outcome is Outcome.PARK:
        # Not the destination's fault: nothing is learned, and a probe must still be made.
        breaker = unanswered(flow.breaker, is_probe=ended.is_probe)
        return replace(flow, breaker=breaker, last_refusal=_refusal(ended, now_ms=now_ms))
    was_shut = flow.breaker.state is not BreakerState.CLOSED
    is_ok = outcome is Outcome.OK
    is_at_limit = _is_at_limit(flow, ended, now_ms=now_ms)
    is_failure = ended.verdict.is_breaker_failure
    if not is_at_limit:
        breaker = answered(
            flow.breaker,
            # While it is held or refuses everything, only a 2xx is a good answer.
            is_failure=is_failure or ((flow.is_held or flow.is_rejecting) and not is_ok),
            is_probe=ended.is_probe,
            parallel=permits_of(flow, limits),
            open_ms_min=limits.open_ms_min,
            now_ms=now_ms,
            roll=roll,
        )
    else:
        breaker = noted_refusal(flow.breaker) if is_failure else flow.breaker
    flow = replace(flow, breaker=breaker)
    asked_s = rate_gate.asked_s(ended.attempt, ended.verdict, now_ms=now_ms)
    flow = _gated(flow, ended, asked_s, is_at_limit=is_at_limit, now_ms=now_ms, roll=roll)
    flow = _sized(flow, limits, ended)
    flow = _judged(flow, limits, ended, now_ms=now_ms, roll=roll)
    if was_shut and ended.is_probe and is_ok:
        return replace(flow, held_at_ms=0, concurrency=recovered(flow.concurrency))
    if was_shut:
        return flow
    sample = Sample(
        latency_ms=ended.latency_ms,
        event_count=ended.event_count,
        is_ok=is_ok,
        is_congested=is_at_limit or (is_failure and not ended.verdict.is_config_fault),
        wait_ms=1000 * (asked_s or 0.0),
    )
    limit_max = limits.to.requests_at_once_max
    concurrency = sampled(flow.concurrency, sample, limit_max=limit_max, now_ms=now_ms)
    return replace(flow, concurrency=concurrency)


def may_retry_locally(flow: Flow) -> bool:
    """Whether the tokens allow repeating a failed attempt in place."""
    return flow.retry_tokens >= RETRY_COST and flow.breaker.state is BreakerState.CLOSED


def retried_locally(flow: Flow, attempt: Attempt) -> Flow:
    """The flow after a decision to repeat a request in place."""
    cost = RETRY_COST if isinstance(attempt, Response) else TIMEOUT_RETRY_COST
    return replace(flow, retry_tokens=max(0.0, flow.retry_tokens - cost))


def blocked(flow: Flow, blocking: Blocking) -> Flow:
    """The flow when an event holds up those behind it."""
    return replace(flow, blocking=blocking)


def parked(flow: Flow, cause: str, event_count: int) -> Flow:
    return replace(flow, parks=_added(flow.parks, cause, event_count))


def _is_at_limit(flow: Flow, ended: EndedRequest, *, now_ms: int) -> bool:
    """Whether a destination refuses a request because it is busy with others.

    This is assumed if it accepted one just now, or has not had the time to accept any.
    """
    attempt, verdict = ended.attempt, ended.verdict
    if flow.breaker.state is not BreakerState.CLOSED or not isinstance(attempt, Response):
        return False
    span_ms = max(TAKING_MS, 2 * flow.concurrency.mean_ms)
    since_ms = max(flow.last_ok_at_ms, flow.failing_since_ms or now_ms)
    is_refusal = verdict.is_breaker_failure or attempt.status == TOO_MANY_REQUESTS
    return is_refusal and not verdict.is_config_fault and now_ms - since_ms <= span_ms


def _was_slow(flow: Flow, ended: EndedRequest) -> bool:
    """Whether the destination was slow: not if we were busy, but always if we gave up waiting.

    A slow one must be well below the limit, or a busy moment would make us give up again.
    """
    is_given_up = (
        isinstance(ended.attempt, NoResponse) and ended.attempt.failure is Failure.SLOW_ANSWER
    )
    return is_given_up or ended.waited_ms >= (QUICK_MS if flow.is_slow else SLOW_MS)


def _gated(
    flow: Flow,
    ended: EndedRequest,
    asked_s: float | None,
    *,
    is_at_limit: bool,
    now_ms: int,
    roll: float,
) -> Flow:
    """The rate gate and the retry tokens after a request."""
    if ended.verdict.outcome is Outcome.OK:
        gate = took(flow.gate)
        tokens = min(RETRY_TOKENS_MAX, flow.retry_tokens + RETRY_REFUND)
        return replace(flow, gate=gate, retry_tokens=tokens)
    if asked_s is None and is_at_limit:
        return replace(flow, gate=refused(flow.gate, now_ms=now_ms))
    if asked_s is None and _status(ended.attempt) != TOO_MANY_REQUESTS:
        return flow
    return replace(flow, gate=rate_limited(flow.gate, asked_s=asked_s, now_ms=now_ms, roll=roll))


def _sized(flow: Flow, limits: SendLimits, ended: EndedRequest) -> Flow:
    """The flow with its batch size after a request."""
    count, count_max = ended.event_count, limits.to.request_count_max
    size = flow.batch_size
    if ended.verdict.outcome is Outcome.OK:
        is_last = ended.is_last_suspect
        size = batch_size.taken(size, count, count_max=count_max, is_last_suspect=is_last)
    elif ended.verdict.is_splittable:
        size = batch_size.refused(
            size,
            count,
            count_max=count_max,
            is_too_large=ended.verdict.is_too_large,
            is_half=ended.is_half,
        )
    return flow if size is flow.batch_size else replace(flow, batch_size=size)


def _refusal(ended: EndedRequest, *, now_ms: int) -> LastAnswer:
    """The result of a request that was not taken, to show to people."""
    return LastAnswer(now_ms, ended.verdict.reason, shown_text(ended.attempt.detail))


def _status(attempt: Attempt) -> int | None:
    return attempt.status if isinstance(attempt, Response) else None


def _judged(
    flow: Flow, limits: SendLimits, ended: EndedRequest, *, now_ms: int, roll: float
) -> Flow:
    """The flow after a request, held or disabled if need be."""
    status = _status(ended.attempt)
    is_unwanted = status == GONE or (
        isinstance(ended.attempt, Response) and ended.attempt.directive is WebhookDirective.DISABLE
    )
    is_rejected = ended.verdict.outcome is Outcome.NON_RECOVERABLE
    # Two refusals were to be expected: that of the last suspect after all others were taken, and
    # that of an event that had been refused before.
    is_news = not (ended.is_last_suspect or ended.is_redriven)
    is_alone = ended.is_half and ended.event_count == 1 and is_news
    minutes = rejects.counted(flow.minutes, is_rejected=is_rejected, now_ms=now_ms)
    if ended.verdict.outcome is Outcome.OK:
        return replace(
            flow,
            blocking=NOTHING,
            last_ok_at_ms=now_ms,
            failing_since_ms=0,
            failures_in_row=0,
            rejects_in_row=0,
            halves_refused=0,
            minutes=minutes,
            disabled_at_ms=now_ms if is_unwanted else flow.disabled_at_ms,
        )
    flow = replace(
        flow,
        failing_since_ms=flow.failing_since_ms or now_ms,
        failures_in_row=flow.failures_in_row + 1,
        last_refusal=_refusal(ended, now_ms=now_ms),
        rejects_in_row=flow.rejects_in_row + 1 if status in rejects.REJECTED else 0,
        halves_refused=flow.halves_refused + (is_alone and is_rejected),
        minutes=minutes,
    )
    is_long = now_ms - flow.failing_since_ms >= 1000 * limits.to.disable_after_s
    if is_unwanted or (is_long and flow.failures_in_row >= FAILURES_TO_DISABLE):
        return replace(flow, disabled_at_ms=now_ms)
    was_well = flow.last_ok_at_ms > 0
    is_storm = rejects.is_storm(minutes, in_row=flow.rejects_in_row, was_well=was_well)
    is_to_hold = limits.to.hold_on_rejects and not flow.is_held and is_storm
    if is_to_hold or (flow.is_rejecting and flow.breaker.state is BreakerState.CLOSED):
        breaker = opened(flow.breaker, open_ms_min=limits.open_ms_min, now_ms=now_ms, roll=roll)
        held_at_ms = now_ms if is_to_hold else flow.held_at_ms
        return replace(flow, held_at_ms=held_at_ms, breaker=breaker)
    return flow


def _added(counts: Mapping[str, int], name: str, count: int) -> Mapping[str, int]:
    return {**counts, name: counts.get(name, 0) + count}
