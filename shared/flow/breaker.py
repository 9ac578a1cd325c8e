"""Stops requests to a destination that keeps failing, and sets when it is tried again.

It counts requests, so a failed batch is one failure. It is closed, open or half open: while it is
open nothing is sent; then one small request at a time probes, three answers close it, and a failure
opens it for twice as long.
"""

from dataclasses import dataclass
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from shared.retry.schedule import jittered

# Ten failures in a row, or as many as run in parallel if that is more: with 17 in parallel and room
# for 16, one request can fail ten times in a row while the others are answered slowly. Or seven
# tenths of at least twenty requests within a minute.
FAILURES_IN_ROW = 10
REQUESTS_MIN = 20
FAILED_FRACTION = 0.7
# A minute in six steps, so that older requests fall out a sixth at a time.
STEP_MS = 10_000
STEPS = 6
# It opens for as long as the first retry tier (30 s), and for at most thirty times that (15 min).
OPEN_FACTOR_MAX = 30.0
SUCCESSES_TO_CLOSE = 3
# A destination whose breaker was closed for this long is well: its next outage begins with 30 s.
WELL_AFTER_MS = 300_000
# A task that meets another task's probe, or has used up its share of requests, waits this long
# before it asks again.
ASK_AGAIN_MS = 250


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Step(Struct, frozen=True):
    """The requests of ten seconds."""

    started_at_ms: int
    request_count: int
    failed_count: int


class Breaker(Struct, frozen=True):
    state: BreakerState = BreakerState.CLOSED
    failures_in_row: int = 0
    steps: tuple[Step, ...] = ()
    # Times it opened since the destination was last well.
    open_count: int = 0
    # When the next probe may go.
    until_ms: int = 0
    # After this time, a probe that is under way counts as lost: its worker may have died.
    probe_until_ms: int = 0
    successes: int = 0
    closed_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """Send the request; a probe must be a single event."""

    is_probe: bool


@dataclass(frozen=True, slots=True)
class Refrain:
    """Send nothing, and ask again at `until_ms`."""

    until_ms: int


def asked(
    breaker: Breaker, *, open_ms_min: float, probe_lease_ms: int, now_ms: int
) -> tuple[Breaker, Start | Refrain]:
    """Say whether a request may go now. If it is a probe, it counts as under way at once."""
    if breaker.state is BreakerState.CLOSED:
        return breaker, Start(is_probe=False)
    # A clock that was set back must not keep it open for longer than the longest time.
    longest_ms = _open_ms(breaker.open_count, open_ms_min, roll=1.0)
    wait_ms = min(breaker.until_ms - now_ms, longest_ms)
    if wait_ms > 0:
        return breaker, Refrain(now_ms + wait_ms)
    if now_ms < breaker.probe_until_ms <= now_ms + probe_lease_ms:
        return breaker, Refrain(now_ms + ASK_AGAIN_MS)
    half_open = replace(
        breaker, state=BreakerState.HALF_OPEN, probe_until_ms=now_ms + probe_lease_ms
    )
    return half_open, Start(is_probe=True)


def answered(
    breaker: Breaker,
    *,
    is_failure: bool,
    is_probe: bool,
    parallel: int,
    open_ms_min: float,
    now_ms: int,
    roll: float,
) -> Breaker:
    """The breaker after one of `parallel` concurrent requests has ended; `roll` is in [0, 1)."""
    if breaker.state is BreakerState.CLOSED:
        counted = _counted(breaker, is_failure=is_failure, now_ms=now_ms)
        if not _is_too_much(counted, parallel):
            return counted
        return opened(counted, open_ms_min=open_ms_min, now_ms=now_ms, roll=roll)
    if not is_probe:
        # The request was sent before the breaker opened, so it proves nothing about the present.
        return breaker
    if is_failure:
        return opened(breaker, open_ms_min=open_ms_min, now_ms=now_ms, roll=roll)
    if breaker.successes + 1 < SUCCESSES_TO_CLOSE:
        return replace(breaker, successes=breaker.successes + 1, probe_until_ms=0)
    return Breaker(open_count=breaker.open_count, closed_at_ms=now_ms)


def noted_refusal(breaker: Breaker) -> Breaker:
    """The breaker after a refusal by a destination that takes other requests: it stays closed."""
    return replace(breaker, failures_in_row=breaker.failures_in_row + 1)


def opened(breaker: Breaker, *, open_ms_min: float, now_ms: int, roll: float) -> Breaker:
    """Open the breaker, for twice as long as the last time."""
    is_new = breaker.state is BreakerState.CLOSED and now_ms - breaker.closed_at_ms >= WELL_AFTER_MS
    count = 1 if is_new else breaker.open_count + 1
    return Breaker(
        state=BreakerState.OPEN,
        open_count=count,
        until_ms=now_ms + _open_ms(count, open_ms_min, roll=roll),
    )


def unanswered(breaker: Breaker, *, is_probe: bool) -> Breaker:
    """Cancel a probe that was not sent, through no fault of the destination."""
    return replace(breaker, probe_until_ms=0) if is_probe else breaker


def _open_ms(open_count: int, open_ms_min: float, *, roll: float) -> int:
    # The fifth doubling reaches the longest time anyway; a power of hundreds overflows a float.
    factor = min(2.0 ** min(open_count - 1, STEPS), OPEN_FACTOR_MAX)
    # Upwards only, so that many hosts do not probe at the same moment.
    return round(jittered(open_ms_min * factor, roll=roll))


def _counted(breaker: Breaker, *, is_failure: bool, now_ms: int) -> Breaker:
    begun_ms = now_ms - now_ms % STEP_MS
    steps = tuple(
        step
        for step in breaker.steps
        if begun_ms - STEPS * STEP_MS < step.started_at_ms <= begun_ms
    )
    last = steps[-1] if steps and steps[-1].started_at_ms == begun_ms else Step(begun_ms, 0, 0)
    grown = Step(begun_ms, last.request_count + 1, last.failed_count + is_failure)
    return replace(
        breaker,
        failures_in_row=breaker.failures_in_row + 1 if is_failure else 0,
        steps=(*(step for step in steps if step is not last), grown),
    )


def _is_too_much(breaker: Breaker, parallel: int) -> bool:
    if breaker.failures_in_row >= max(FAILURES_IN_ROW, parallel):
        return True
    requests = sum(step.request_count for step in breaker.steps)
    failed = sum(step.failed_count for step in breaker.steps)
    return (
        # Only a failure opens it: later answers are good news.
        breaker.failures_in_row > 0
        and requests >= REQUESTS_MIN
        and failed >= FAILED_FRACTION * requests
    )
