"""Finds out how many requests a destination takes at once: W.

W doubles in each window until it is too high, goes back to the last good value, and tries a little
more from time to time (ADR 0040). W may be a fraction: 2.5 allows at most three requests at once,
but only as many per second as two and a half at once would make. Below one it is a rate, for a
destination that counts requests per second and answers quickly.
"""

import math
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

# The first two requests to an unknown destination; the next window has four.
LIMIT_START = 2.0
# Above the first share of failed or refused requests, W is too high. Above the second, or after
# this many in a row, it is far too high, and falls to seven tenths (Vector: nine).
CONGESTED_FRACTION = 0.05
STORM_FRACTION = 0.5
STORM_ROW = 3
DECREASE = 0.7
# From this value on, W moves by one; below it, W moves by a tenth and stops at each whole number.
COARSE_FROM = 8.0
STEP_DOWN, STEP_UP = 0.9, 1.1
# Below one, only W protects a destination from too many requests.
STEP_UP_RATE = 1.05
# W is not raised for this long after it was too high, and for twice as long if the same W was too
# high before.
HOLD_MS_MIN, HOLD_MS_MAX = 1_000, 10_000
HOLD_ANSWERS = 10
# A refusal that asks for a wait costs all of that time, so it is risked less often.
HOLD_WAITS = 40
# A slower pace does not help a destination that fails at any pace. At one request a second, W goes
# back to one and stays there for a minute, and each time for twice as long.
SLOWEST_PER_MS = 0.001
GIVEN_UP_MS_MIN, GIVEN_UP_MS_MAX = 60_000, 960_000
# A window lasts for the usual answer time, and at least for this: a server's reaction to more
# requests is not seen sooner. With one request at a time, it has at least this many requests.
WINDOW_MS_MIN = 250.0
REQUESTS_MIN = 8
# How fast the usual latency adapts: the last five windows make up nine tenths of it, as in Vector.
ALPHA = 0.4
# Our own requests may make the answers later. This often, a fully used destination gets fewer
# requests for one window: only the latency in that window is the usual one.
LOOK_MS = 30_000
LOOK_ANSWERS = 50
# This many deviations above the usual latency are congestion (Vector's).
DEVIATIONS = 2.5
# Answers that are later by less than this, or than three tenths, are noise of schedulers, ours or
# theirs.
NOISE_MS = 25.0
NOISE_FRACTION = 0.3
# If answers are later by more than this, W is not raised: the last request added may be the cause.
SAME_MS = 10.0
SAME_FRACTION = 0.1


class Sample(Struct, frozen=True):
    """The result of one request."""

    latency_ms: float
    event_count: int
    is_ok: bool
    # A timeout, a 5xx, a failed connection, or a 429.
    is_congested: bool
    # How long the destination wants no other request, if it says so.
    wait_ms: float = 0.0


class Window(Struct, frozen=True):
    """The results of the requests that ended since `started_at_ms`."""

    started_at_ms: int = 0
    request_count: int = 0
    congested_count: int = 0
    # Congested requests in a row: up to now, and the most.
    row: int = 0
    longest_row: int = 0
    # The longest wait that was asked for.
    wait_ms: float = 0.0
    # Whether somebody would have sent more if W had allowed it.
    was_full: bool = False
    # The number of answers by size of batch, and the sum of their latencies.
    answers: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def is_congested(self) -> bool:
        is_much = 0 < self.congested_count >= CONGESTED_FRACTION * self.request_count
        return is_much or self.wait_ms > 0

    @property
    def is_storm(self) -> bool:
        is_half = self.congested_count >= STORM_FRACTION * self.request_count
        return is_half or self.longest_row >= STORM_ROW


class Concurrency(Struct, frozen=True):
    limit: float = LIMIT_START
    # W doubles up to this limit, which was not too high; no limit if W was never too high.
    doubling_max: float | None = None
    # The end of the time in which W stays at or below `doubling_max`, and its whole length.
    hold_until_ms: int = 0
    hold_ms: int = 0
    # Requests that end before then were sent before the last change of W.
    settles_at_ms: int = 0
    # The end of the time in which W is at least one, and its whole length.
    given_up_until_ms: int = 0
    given_up_ms: int = 0
    # When to send fewer requests for one window, which shows the usual latency; and during that
    # window, the previous W.
    look_at_ms: int = 0
    back_to: float = 0.0
    # The usual latency by size of batch, that of all answers, and how much windows differ from it.
    usual_ms: Mapping[int, float] = field(default_factory=dict)
    mean_ms: float = 0.0
    variance: float = 0.0
    window: Window = field(default_factory=Window)

    @property
    def permits(self) -> int:
        """How many requests there may be at once."""
        return math.ceil(self.limit)

    @property
    def gap_ms(self) -> float:
        """The time from one request to the next; 0 while W is a whole number."""
        return 0.0 if self.limit == self.permits else self.mean_ms / self.limit


def noted_full(state: Concurrency) -> Concurrency:
    """Note that W was reached while more could be sent: only then is there a reason to raise W."""
    if state.window.was_full:
        return state
    return replace(state, window=replace(state.window, was_full=True))


def recovered(state: Concurrency) -> Concurrency:
    """The state of a destination that comes back after an outage: one request, then two.

    If it has never answered, it is unknown how many concurrent requests were too many.
    """
    if state.limit == 1 and not state.hold_ms and not state.mean_ms:
        # It has had this state since its first probe.
        return state
    doubling_max = max(1.0, state.limit // 2) if state.mean_ms else None
    return Concurrency(limit=1.0, doubling_max=doubling_max)


def sampled(state: Concurrency, sample: Sample, *, limit_max: int, now_ms: int) -> Concurrency:
    """The state after one more request; the last one of a window decides on W."""
    if now_ms < state.settles_at_ms <= now_ms + _answer_ms(state):
        return state
    window = state.window
    # A clock that has since been set back may have begun a window in the future.
    if not 0 < window.started_at_ms <= now_ms:
        window = replace(window, started_at_ms=now_ms)
    window = _with_sample(window, sample)
    is_doubtful = state.limit < 1 or (state.limit == 1 and window.congested_count)
    is_sparse = is_doubtful and window.request_count < REQUESTS_MIN
    if is_sparse or now_ms - window.started_at_ms < _answer_ms(state):
        return replace(state, window=window)
    return _closed(state, window, limit_max=limit_max, now_ms=now_ms)


def _answer_ms(state: Concurrency) -> float:
    return max(state.mean_ms, WINDOW_MS_MIN)


def _with_sample(window: Window, sample: Sample) -> Window:
    answers = window.answers
    if sample.is_ok:
        # Powers of two: 300 and 500 events are alike, one and 500 are not.
        size = sample.event_count.bit_length()
        count, sum_ms = answers.get(size, (0, 0.0))
        answers = {**answers, size: (count + 1, sum_ms + sample.latency_ms)}
    row = window.row + 1 if sample.is_congested else 0
    return replace(
        window,
        request_count=window.request_count + 1,
        congested_count=window.congested_count + sample.is_congested,
        row=row,
        longest_row=max(row, window.longest_row),
        wait_ms=max(sample.wait_ms, window.wait_ms),
        answers=answers,
    )


def _closed(state: Concurrency, window: Window, *, limit_max: int, now_ms: int) -> Concurrency:
    excess_ms = _excess_ms(state, window)
    deviation_ms = max(DEVIATIONS * state.variance**0.5, NOISE_MS, NOISE_FRACTION * state.mean_ms)
    back_to = state.back_to
    state = _learned(state, window, excess_ms, is_usual=back_to > 0 or state.limit <= LIMIT_START)
    state = replace(
        state,
        limit=min(state.limit, float(limit_max)),
        back_to=0.0,
        look_at_ms=state.look_at_ms or now_ms + LOOK_MS,
        window=Window(started_at_ms=now_ms, row=window.row),
    )
    if window.is_congested or excess_ms >= deviation_ms:
        is_storm = window.is_storm or excess_ms >= 2 * deviation_ms
        return _lowered(state, window, is_storm=is_storm, now_ms=now_ms)
    if back_to:
        return replace(state, limit=min(back_to, float(limit_max)))
    if window.was_full and state.limit > LIMIT_START and now_ms >= state.look_at_ms:
        less = max(LIMIT_START, math.floor(DECREASE * state.limit))
        look_at_ms = now_ms + max(LOOK_MS, round(LOOK_ANSWERS * state.mean_ms))
        state = replace(state, look_at_ms=look_at_ms, back_to=state.limit)
        return _changed(state, less, now_ms)
    if window.congested_count or excess_ms > max(SAME_MS, SAME_FRACTION * state.mean_ms):
        return state
    if not window.was_full and state.limit >= 1:
        return state
    # A clock that was set back must not hold W for longer.
    is_held = now_ms < state.hold_until_ms <= now_ms + state.hold_ms
    return replace(state, limit=min(_grown(state, is_held=is_held), float(limit_max)))


def _lowered(state: Concurrency, window: Window, *, is_storm: bool, now_ms: int) -> Concurrency:
    """The state after W was too high."""
    limit = state.limit
    if limit > 1 and (not window.answers or (is_storm and limit > COARSE_FROM)):
        less = max(1.0, math.floor(DECREASE * limit))
    elif limit > COARSE_FROM:
        less = limit - 1
    elif limit > 1:
        less = max(1.0, _whole_between((DECREASE if is_storm else STEP_DOWN) * limit, limit))
    elif not is_storm and not window.wait_ms:
        # Occasional failures occur at any pace.
        less = limit
    elif now_ms < state.given_up_until_ms:
        less = 1.0
    else:
        less = limit * DECREASE
    if less == limit:
        return state
    slowest = SLOWEST_PER_MS * state.mean_ms
    if less < slowest and window.wait_ms:
        less = min(limit, slowest)
    elif less < slowest:
        given_up_ms = min(max(2 * state.given_up_ms, GIVEN_UP_MS_MIN), GIVEN_UP_MS_MAX)
        until_ms = now_ms + given_up_ms
        state = replace(state, given_up_until_ms=until_ms, given_up_ms=given_up_ms)
        less = 1.0
    known = state.doubling_max
    was_tried = known is not None and limit <= max(known + 1, STEP_UP * known)
    hold_ms = min(2 * state.hold_ms, HOLD_MS_MAX) if was_tried else 0
    hold_ms = max(hold_ms, HOLD_MS_MIN, round(HOLD_ANSWERS * state.mean_ms))
    hold_ms = max(hold_ms, round(HOLD_WAITS * window.wait_ms))
    state = replace(state, doubling_max=less, hold_ms=hold_ms, hold_until_ms=now_ms + hold_ms)
    return _changed(state, less, now_ms)


def _changed(state: Concurrency, limit: float, now_ms: int) -> Concurrency:
    """The state with another W, which takes effect once the requests under way have ended."""
    return replace(state, limit=float(limit), settles_at_ms=now_ms + round(state.mean_ms))


def _grown(state: Concurrency, *, is_held: bool) -> float:
    limit, known = state.limit, state.doubling_max
    if known is None:
        return 2 * limit
    if limit < known:
        return min(2 * limit, known)
    if is_held:
        return limit
    if limit < 1:
        return min(1.0, STEP_UP_RATE * limit)
    return limit + 1 if limit >= COARSE_FROM else _whole_between(STEP_UP * limit, limit)


def _whole_between(wanted: float, limit: float) -> float:
    """The next W on the way to the wanted one: it stops at whole numbers."""
    whole = math.floor(limit) + 1 if wanted > limit else math.ceil(limit) - 1
    is_between = min(wanted, limit) < whole < max(wanted, limit)
    return float(whole) if is_between else wanted


def _excess_ms(state: Concurrency, window: Window) -> float:
    """How much later than usual the window's answers were, for batches of their size."""
    known = {size: answer for size, answer in window.answers.items() if size in state.usual_ms}
    count = sum(answer[0] for answer in known.values())
    if not count:
        return 0.0
    usual_ms = sum(state.usual_ms[size] * answer[0] for size, answer in known.items())
    return (sum(answer[1] for answer in known.values()) - usual_ms) / count


def _learned(
    state: Concurrency, window: Window, excess_ms: float, *, is_usual: bool
) -> Concurrency:
    """The state with the window's latency, and with a new usual latency if the window shows it."""
    count = sum(answer[0] for answer in window.answers.values())
    if not count:
        return state
    mean_ms = _moved(state.mean_ms or None, sum(a[1] for a in window.answers.values()) / count)
    usual_ms = {
        size: _moved(state.usual_ms.get(size), sum_ms / answers)
        for size, (answers, sum_ms) in window.answers.items()
        if is_usual or size not in state.usual_ms
    }
    variance = (1 - ALPHA) * (state.variance + ALPHA * excess_ms**2) if is_usual else state.variance
    return replace(
        state, mean_ms=mean_ms, usual_ms={**state.usual_ms, **usual_ms}, variance=variance
    )


def _moved(usual: float | None, seen: float) -> float:
    return seen if usual is None else usual + ALPHA * (seen - usual)
