"""Sets how many requests a destination gets at once: more while it answers well, fewer if not.

Additive increase, multiplicative decrease, once per window: W doubles per healthy window up to
where there was congestion before, then grows by one; congestion takes three tenths of it. A
destination that asks for fewer events per second (429) is no congestion: that is for the rate gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

# The first two requests to an unknown destination; the next window has four.
LIMIT_START = 2
# What congestion leaves of W, and the share of failed requests that is congestion (Vector: 0.9, 1).
DECREASE = 0.7
CONGESTED_FRACTION = 0.1
# A window lasts for the usual answer time, and for this at least: a server's reaction to more
# requests is not seen sooner.
WINDOW_MS_MIN = 250.0
# How fast what is usual follows what is: the last five windows are nine tenths of it (Vector's).
ALPHA = 0.4
# So many deviations above the usual are congestion (Vector's).
DEVIATIONS = 2.5
# Answers that are later by less, or by less than half of the usual time, are the scheduler's noise,
# ours or theirs.
NOISE_MS = 25.0
NOISE_FRACTION = 0.5
# Later by more than this, and W is not raised: one more request may be what made them late.
SAME_MS = 5.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What one request showed."""

    latency_ms: float
    event_count: int
    is_ok: bool
    # A timeout, a 5xx or a connection that was not to be had.
    is_congested: bool


@dataclass(frozen=True, slots=True)
class Window:
    """What the requests showed that ended since `started_at_ms`."""

    started_at_ms: int = 0
    request_count: int = 0
    congested_count: int = 0
    # Somebody would have sent more if W had let him.
    was_full: bool = False
    # Of the answers, by size of batch: how many, and their latencies' sum.
    answers: Mapping[int, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Concurrency:
    limit: int = LIMIT_START
    # W doubles while it is below this: half of what last was too much. None: nothing ever was.
    doubling_max: int | None = None
    # The usual latency, by size of batch, of all answers, and by how much windows differ from it.
    usual_ms: Mapping[int, float] = field(default_factory=dict)
    mean_ms: float = 0.0
    variance: float = 0.0
    window: Window = field(default_factory=Window)


def noted_full(state: Concurrency) -> Concurrency:
    """W was reached and there was more to send: only then is there a reason to raise it."""
    if state.window.was_full:
        return state
    return replace(state, window=replace(state.window, was_full=True))


def recovered(state: Concurrency) -> Concurrency:
    """What a destination starts from that comes back after an outage: one request, then two."""
    return Concurrency(limit=1, doubling_max=max(1, state.limit // 2))


def sampled(state: Concurrency, sample: Sample, *, limit_max: int, now_ms: int) -> Concurrency:
    """The state after one more request; the last one of a window decides on W."""
    window = state.window
    # A window of the future was begun by a clock that has since been set back.
    if not 0 < window.started_at_ms <= now_ms:
        window = replace(window, started_at_ms=now_ms)
    window = _with_sample(window, sample)
    if now_ms - window.started_at_ms < max(state.mean_ms, WINDOW_MS_MIN):
        return replace(state, window=window)
    return _closed(state, window, limit_max=limit_max, now_ms=now_ms)


def _with_sample(window: Window, sample: Sample) -> Window:
    answers = window.answers
    if sample.is_ok:
        # Powers of two: 300 and 500 events are alike, one and 500 are not.
        size = sample.event_count.bit_length()
        count, sum_ms = answers.get(size, (0, 0.0))
        answers = {**answers, size: (count + 1, sum_ms + sample.latency_ms)}
    return replace(
        window,
        request_count=window.request_count + 1,
        congested_count=window.congested_count + sample.is_congested,
        answers=answers,
    )


def _closed(state: Concurrency, window: Window, *, limit_max: int, now_ms: int) -> Concurrency:
    excess_ms = _excess_ms(state, window)
    deviation_ms = max(DEVIATIONS * state.variance**0.5, NOISE_MS, NOISE_FRACTION * state.mean_ms)
    fresh = replace(_learned(state, window, excess_ms), window=Window(started_at_ms=now_ms))
    limit = min(state.limit, limit_max)
    is_failing = window.congested_count >= CONGESTED_FRACTION * window.request_count
    if (window.congested_count and is_failing) or excess_ms >= deviation_ms:
        less = max(1, int(limit * DECREASE))
        return replace(fresh, limit=less, doubling_max=less)
    if window.was_full and not window.congested_count and excess_ms <= SAME_MS:
        limit = _grown(limit, state.doubling_max)
    return replace(fresh, limit=max(1, min(limit, limit_max)))


def _grown(limit: int, doubling_max: int | None) -> int:
    if doubling_max is None:
        return limit * 2
    return min(limit * 2, doubling_max) if limit < doubling_max else limit + 1


def _excess_ms(state: Concurrency, window: Window) -> float:
    """By how much the window's answers were later than is usual for batches of their size."""
    known = {size: answer for size, answer in window.answers.items() if size in state.usual_ms}
    count = sum(answer[0] for answer in known.values())
    if not count:
        return 0.0
    usual_ms = sum(state.usual_ms[size] * answer[0] for size, answer in known.items())
    return (sum(answer[1] for answer in known.values()) - usual_ms) / count


def _learned(state: Concurrency, window: Window, excess_ms: float) -> Concurrency:
    """What is usual, after this window."""
    count = sum(answer[0] for answer in window.answers.values())
    if not count:
        return state
    usual_ms = dict(state.usual_ms)
    for size, (answers, sum_ms) in window.answers.items():
        usual_ms[size] = _moved(usual_ms.get(size), sum_ms / answers)
    mean_ms = sum(answer[1] for answer in window.answers.values()) / count
    return replace(
        state,
        usual_ms=usual_ms,
        mean_ms=_moved(state.mean_ms or None, mean_ms),
        variance=(1 - ALPHA) * (state.variance + ALPHA * excess_ms**2),
    )


def _moved(usual: float | None, seen: float) -> float:
    return seen if usual is None else usual + ALPHA * (seen - usual)
