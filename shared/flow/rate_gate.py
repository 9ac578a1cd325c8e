"""Lets events through at the rate that an owner set, and none while the destination asks to wait.

A 429, or a Retry-After, closes the gate until the requested time. After that,
shared.flow.concurrency finds out how much the destination can take.
"""

from msgspec import Struct
from msgspec.structs import replace

from shared.retry.attempt import Attempt, Outcome, Response, Verdict
from shared.retry.retry_after import parse_retry_after

# After a 429 without a requested wait: a second, doubled by each further one without a success.
CLOSED_S_MIN = 1.0
CLOSED_S_MAX = 60.0
# Upwards only, and by a few seconds at most: a requested wait is never cut short.
JITTER_FRACTION = 0.2
JITTER_S_MAX = 5.0
# The events of a tenth of a second may go at once; after that, the rate decides. A larger allowance
# would go out in one burst to a destination that accepts everything at once.
BURST_S = 0.1
# After a refusal by a destination that takes other requests and does not say how long to wait: a
# moment, doubled by each further refusal without a success, so that few requests are wasted until
# the destination takes some again in its next second.
REFUSED_S_MIN = 0.05
REFUSED_S_MAX = 0.4


class RateGate(Struct, frozen=True):
    closed_until_ms: int = 0
    limits_in_row: int = 0
    # Closed so briefly that it need not be published.
    refused_until_ms: int = 0
    refusals_in_row: int = 0
    # The tokens in the bucket. If a batch takes more than there are, the number falls below zero,
    # and the next batch waits.
    tokens: float = 0.0
    tokens_at_ms: int = 0


def opens_at_ms(gate: RateGate, rate: float | None, *, now_ms: int) -> int:
    """Return when the next request may go; a time that is not in the future means at once."""
    if now_ms < gate.closed_until_ms:
        return gate.closed_until_ms
    # A clock that was set back must not make it longer.
    if now_ms < gate.refused_until_ms <= now_ms + 1000 * REFUSED_S_MAX:
        return gate.refused_until_ms
    if rate is None:
        return now_ms
    tokens = _filled(gate, rate, now_ms)
    return now_ms if tokens > 0 else now_ms + max(1, round(-tokens / rate * 1000))


def spent(gate: RateGate, rate: float | None, *, event_count: int, now_ms: int) -> RateGate:
    """The gate after these events have gone through it."""
    if rate is None:
        return gate
    tokens = _filled(gate, rate, now_ms) - event_count
    return replace(gate, tokens=tokens, tokens_at_ms=now_ms)


def took(gate: RateGate) -> RateGate:
    """The gate after the destination has taken a request."""
    if not gate.limits_in_row and not gate.refusals_in_row:
        return gate
    return replace(gate, limits_in_row=0, refusals_in_row=0)


def rate_limited(gate: RateGate, *, asked_s: float | None, now_ms: int, roll: float) -> RateGate:
    """The gate after the destination has asked for less; `roll` is in [0, 1)."""
    backoff_s = min(CLOSED_S_MIN * 2.0 ** min(gate.limits_in_row, 6), CLOSED_S_MAX)
    wait_s = backoff_s if asked_s is None else asked_s
    jitter_s = min(JITTER_FRACTION * wait_s, JITTER_S_MAX) * roll
    until_ms = max(gate.closed_until_ms, now_ms + round((wait_s + jitter_s) * 1000))
    if now_ms < gate.closed_until_ms:
        # Other requests under way get the same answer: slow down only once.
        return replace(gate, closed_until_ms=until_ms)
    return replace(gate, closed_until_ms=until_ms, limits_in_row=gate.limits_in_row + 1)


def reopened(gate: RateGate) -> RateGate:
    """The gate without the wait that the destination asked for; its owner's rate still holds."""
    return RateGate(tokens=gate.tokens, tokens_at_ms=gate.tokens_at_ms)


def refused(gate: RateGate, *, now_ms: int) -> RateGate:
    """The gate after a refusal by a destination that takes other requests."""
    if now_ms < gate.refused_until_ms:
        return gate
    closed_s = min(REFUSED_S_MIN * 2.0 ** min(gate.refusals_in_row, 6), REFUSED_S_MAX)
    return replace(
        gate,
        refused_until_ms=now_ms + round(1000 * closed_s),
        refusals_in_row=gate.refusals_in_row + 1,
    )


def _filled(gate: RateGate, rate: float, now_ms: int) -> float:
    """The tokens in the bucket now; it is full when first used."""
    burst = max(rate * BURST_S, 1.0)
    if not 0 < gate.tokens_at_ms <= now_ms:
        # Never used, or used by a clock that has since been set back.
        return burst if not gate.tokens_at_ms else min(gate.tokens, burst)
    return min(burst, gate.tokens + rate * (now_ms - gate.tokens_at_ms) / 1000)


def asked_s(attempt: Attempt, verdict: Verdict, *, now_ms: int) -> float | None:
    """For how long the destination asks us to send nothing."""
    if verdict.outcome is not Outcome.RECOVERABLE or not isinstance(attempt, Response):
        return None
    asked = parse_retry_after(attempt.retry_after, now_ms=now_ms)
    return None if asked is None else asked.clamped_s
