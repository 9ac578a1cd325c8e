"""A destination gets more requests while it answers well, and fewer when it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.flow.concurrency import (
    Concurrency,
    Sample,
    Window,
    noted_full,
    recovered,
    sampled,
)
from tests.support.suite.samples import NOW_MS


def ok(latency_ms: float = 20.0, event_count: int = 500) -> Sample:
    return Sample(latency_ms, event_count, is_ok=True, is_congested=False)


FAILED = Sample(20.0, 500, is_ok=False, is_congested=True)
REJECTED = Sample(20.0, 500, is_ok=False, is_congested=False)


def after_window(
    state: Concurrency, samples: list[Sample], *, limit_max: int = 64, is_full: bool = True
) -> Concurrency:
    """Return the state after a second with these requests, which ends a window."""
    start_ms = state.window.started_at_ms or NOW_MS
    state = replace(state, window=Window(started_at_ms=start_ms, was_full=is_full))
    for at, sample in enumerate(samples, start=1):
        # All but the last request end at the start of the window.
        now_ms = start_ms + (1_000 if at == len(samples) else 1)
        state = sampled(state, sample, limit_max=limit_max, now_ms=now_ms)
    return state


def test_it_starts_with_two_and_doubles_until_it_meets_the_cap() -> None:
    state, limits = Concurrency(), []
    for _ in range(5):
        state = after_window(state, [ok()] * 5, limit_max=12)
        limits.append(state.limit)
    assert limits == [4, 8, 12, 12, 12]


def test_after_the_first_congestion_it_stays_for_a_while_and_grows_by_one() -> None:
    state = after_window(Concurrency(limit=10), [ok()] * 9 + [FAILED])
    assert (state.limit, state.doubling_max) == (9, 9)
    assert sampled(noted_full(state), ok(), limit_max=64, now_ms=NOW_MS + 1_900).limit == 9
    assert after_window(state, [ok()] * 5).limit == 10


# failed requests of 20 -> a limit of 10 after the window
@pytest.mark.parametrize(("failed", "limit"), [(0, 11), (1, 9), (10, 7), (20, 7)])
def test_a_twentieth_of_failures_is_congestion(failed: int, limit: int) -> None:
    steady = Concurrency(limit=10, doubling_max=1)
    assert after_window(steady, [FAILED] * failed + [ok()] * (20 - failed)).limit == limit


def test_answers_that_are_much_later_than_usual_are_congestion() -> None:
    state = Concurrency(limit=10, doubling_max=1)
    for _ in range(10):
        state = after_window(state, [ok(100), ok(110), ok(90)], is_full=False)
    assert state.limit == 10
    assert after_window(state, [ok(131)] * 3).limit == 9
    assert after_window(state, [ok(161)] * 3).limit == 7
    # Slightly slower answers neither lower the limit nor raise it.
    assert after_window(state, [ok(104)] * 3).limit == 11
    assert after_window(state, [ok(120)] * 3).limit == 10
    assert after_window(state, [ok(129)] * 3).limit == 10
    assert after_window(replace(state, variance=900.0), [ok(160)] * 3).limit == 10


def test_small_and_large_batches_are_not_compared() -> None:
    state = after_window(Concurrency(limit=10, doubling_max=1), [ok(10, 1)] * 3)
    for _ in range(3):
        state = after_window(state, [ok(900, 500)] * 3)
    assert state.limit == 14
    assert set(state.usual_ms) == {1, 9}


def test_it_is_not_raised_while_nobody_wants_more() -> None:
    assert after_window(Concurrency(), [ok()] * 5, is_full=False).limit == 2
    assert not Concurrency().window.was_full
    noted = noted_full(Concurrency())
    assert noted.window.was_full
    assert noted_full(noted) is noted


def test_what_is_rejected_says_nothing_of_how_many_it_can_take() -> None:
    state = after_window(Concurrency(limit=10, doubling_max=1), [REJECTED] * 9)
    assert (state.limit, state.usual_ms, state.mean_ms) == (11, {}, 0.0)


def test_nothing_changes_within_a_window() -> None:
    state = sampled(noted_full(Concurrency()), FAILED, limit_max=9, now_ms=NOW_MS)
    for now_ms in range(NOW_MS, NOW_MS + 250, 10):
        state = sampled(state, FAILED, limit_max=9, now_ms=now_ms)
        assert state.limit == 2
    assert sampled(state, FAILED, limit_max=9, now_ms=NOW_MS + 250).limit == 1


def test_a_window_is_as_long_as_a_usual_answer_takes() -> None:
    state = replace(Concurrency(limit=8), mean_ms=2_000.0)
    state = sampled(state, FAILED, limit_max=9, now_ms=NOW_MS)
    assert sampled(state, FAILED, limit_max=9, now_ms=NOW_MS + 1_999).limit == 8
    assert sampled(state, FAILED, limit_max=9, now_ms=NOW_MS + 2_000).limit == 5


def test_who_asks_for_long_waits_gets_a_request_a_second_and_is_not_given_up() -> None:
    asked = Sample(20.0, 500, is_ok=False, is_congested=True, wait_ms=60_000.0)
    state, limits = replace(Concurrency(limit=0.04, doubling_max=0.04), mean_ms=20.0), []
    for _ in range(4):
        state = after_window(replace(state, settles_at_ms=0), [ok()] * 7 + [asked])
        limits.append(state.limit)
    assert limits == pytest.approx([0.028, 0.02, 0.02, 0.02])
    assert (state.hold_ms, state.given_up_until_ms) == (40 * 60_000, 0)


def test_a_clock_that_is_set_back_begins_a_new_window() -> None:
    state = sampled(Concurrency(limit=8), FAILED, limit_max=9, now_ms=NOW_MS)
    state = sampled(state, FAILED, limit_max=9, now_ms=NOW_MS - 3_600_000)
    assert state.limit == 8
    assert sampled(state, FAILED, limit_max=9, now_ms=NOW_MS - 3_599_000).limit == 5


def test_a_cap_that_was_lowered_holds_from_the_next_window_on() -> None:
    assert after_window(Concurrency(limit=64), [ok()] * 3, limit_max=4).limit == 4


def test_after_an_outage_it_starts_from_one_and_doubles_again() -> None:
    # Three probes are answered.
    state, limits = recovered(recovered(Concurrency(limit=12, mean_ms=100))), []
    for _ in range(5):
        state = after_window(state, [ok()] * 3)
        limits.append(state.limit)
    # The limit doubles until it is half of the old one, which may have caused the outage.
    assert limits == pytest.approx([2, 4, 6, 6.6, 7])
    assert recovered(Concurrency(limit=1, mean_ms=100)).doubling_max == 1


def test_one_that_never_answered_before_starts_as_a_new_one_does() -> None:
    state = recovered(Concurrency(limit=1, doubling_max=1, hold_ms=1_000))
    limits = []
    for _ in range(5):
        state = after_window(state, [ok()] * 3)
        limits.append(state.limit)
    assert limits == [2, 4, 8, 16, 32]


def test_now_and_then_it_sends_fewer_for_a_window_and_goes_back() -> None:
    fewer = after_window(Concurrency(limit=10, doubling_max=10, look_at_ms=NOW_MS), [ok()] * 5)
    assert (fewer.limit, fewer.back_to) == (7, 10)
    assert fewer.look_at_ms == NOW_MS + 1_000 + 30_000
    again = after_window(fewer, [ok()] * 5)
    assert (again.limit, again.back_to) == (10, 0)
    assert after_window(fewer, [ok()] * 5, limit_max=9).limit == 9
    two = Concurrency(doubling_max=2, look_at_ms=NOW_MS)
    assert after_window(two, [ok()] * 5).limit > 2, "the limit is too low to send fewer"


def test_what_fails_at_any_pace_is_not_slowed_down_until_its_time_is_over() -> None:
    state = Concurrency(limit=1, doubling_max=1)
    assert after_window(state, [FAILED] * 8).limit == pytest.approx(0.7)
    given_up = replace(state, given_up_until_ms=NOW_MS + 60_000)
    assert after_window(given_up, [FAILED] * 8).limit == 1


def test_below_one_it_grows_by_a_twentieth_and_stops_at_one() -> None:
    for limit, grown in ((0.5, 0.525), (0.98, 1.0)):
        state = Concurrency(limit=limit, doubling_max=limit)
        assert after_window(state, [ok()] * 8).limit == pytest.approx(grown)


samples = st.builds(
    Sample, st.floats(0, 30_000), st.integers(1, 10_000), st.booleans(), st.booleans()
)


@given(st.lists(st.tuples(samples, st.integers(0, 2_000)), max_size=60), st.integers(1, 256))
def test_it_is_never_below_one_nor_above_the_cap(
    lived: list[tuple[Sample, int]], limit_max: int
) -> None:
    state, now_ms = Concurrency(limit=1), NOW_MS
    for sample, passed_ms in lived:
        now_ms += passed_ms
        state = sampled(noted_full(state), sample, limit_max=limit_max, now_ms=now_ms)
        assert 1 <= state.limit <= limit_max
