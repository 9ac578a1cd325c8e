"""A destination that keeps failing is left alone, probed, and taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.flow.breaker import (
    Breaker,
    BreakerState,
    Refrain,
    Start,
    answered,
    asked,
    noted_refusal,
    opened,
    unanswered,
)
from tests.support.suite.samples import NOW_MS

LEASE_MS = 20_000


def after(
    breaker: Breaker,
    results: str,
    *,
    now_ms: int = NOW_MS,
    is_probe: bool = False,
    parallel: int = 2,
) -> Breaker:
    """Return the breaker after requests that failed (x) or did not (.)."""
    for result in results:
        breaker = answered(
            breaker,
            is_failure=result == "x",
            is_probe=is_probe,
            parallel=parallel,
            open_ms_min=30_000,
            now_ms=now_ms,
            roll=0.0,
        )
    return breaker


def ask(breaker: Breaker, now_ms: int) -> tuple[Breaker, Start | Refrain]:
    return asked(breaker, open_ms_min=30_000, probe_lease_ms=LEASE_MS, now_ms=now_ms)


# results of requests -> whether the breaker opens
STORIES = [
    ("x" * 9, False),
    ("x" * 10, True),
    ("xxxxxxxxx." + "x" * 9, False),
    # Seven in ten of twenty failed within the minute, but never ten in a row.
    ("xx.xxx." * 2 + "xxx.xx", True),
    ("xx.xxx." * 2 + "xxx.x", False),
    ("x." * 20, False),
    # A success never opens the breaker.
    ("xxxxxxxxx." * 2, False),
    ("xxxxxxxxx." * 2 + "x", True),
]


@pytest.mark.parametrize(("results", "is_open"), STORIES)
def test_it_opens_after_ten_in_a_row_or_seven_tenths_of_twenty(
    results: str,
    is_open: bool,  # noqa: FBT001 - a row of the table
) -> None:
    state = after(Breaker(), results).state
    assert state is (BreakerState.OPEN if is_open else BreakerState.CLOSED)


def test_where_more_are_under_way_more_must_fail_in_a_row() -> None:
    assert after(Breaker(), ".xxxxx" + "x" * 11, parallel=17).state is BreakerState.CLOSED
    assert after(Breaker(), ".xxxxx" + "x" * 12, parallel=17).state is BreakerState.OPEN


def test_what_is_older_than_a_minute_does_not_count() -> None:
    old = after(Breaker(), "xx.xxx." * 2)
    assert after(old, "xxx.xx", now_ms=NOW_MS + 49_000).state is BreakerState.OPEN
    assert after(old, "xxx.xx", now_ms=NOW_MS + 61_000).state is BreakerState.CLOSED
    # Failures noted before the clock was set back do not count, either.
    assert after(old, "xxx.xx", now_ms=NOW_MS - 61_000).state is BreakerState.CLOSED


def test_while_it_is_closed_everything_passes() -> None:
    breaker, answer = ask(after(Breaker(), "x" * 9), NOW_MS)
    assert answer == Start(is_probe=False)
    assert breaker == after(Breaker(), "x" * 9)


def test_it_stays_open_for_30_s_and_each_time_for_twice_as_long() -> None:
    breaker, waits = after(Breaker(), "x" * 10), []
    now_ms = NOW_MS
    for _ in range(8):
        _, shut = ask(breaker, now_ms)
        assert isinstance(shut, Refrain)
        waits.append((shut.until_ms - now_ms) / 1000)
        now_ms = shut.until_ms
        breaker, probe = ask(breaker, now_ms)
        assert probe == Start(is_probe=True)
        breaker = after(breaker, "x", now_ms=now_ms, is_probe=True)
    assert waits == [30, 60, 120, 240, 480, 900, 900, 900]


def test_hosts_do_not_probe_at_the_same_moment() -> None:
    assert (
        opened(Breaker(), open_ms_min=30_000, now_ms=NOW_MS, roll=0.5).until_ms == NOW_MS + 33_000
    )


def test_one_probe_at_a_time_and_three_answers_close_it() -> None:
    now_ms = NOW_MS + 30_000
    breaker = after(Breaker(), "x" * 10)
    for _ in range(3):
        breaker, probe = ask(breaker, now_ms)
        assert probe == Start(is_probe=True)
        assert breaker.state is BreakerState.HALF_OPEN
        breaker, other = ask(breaker, now_ms)
        assert other == Refrain(now_ms + 250)
        breaker = after(breaker, ".", now_ms=now_ms, is_probe=True)
    assert breaker == Breaker(open_count=1, closed_at_ms=now_ms)
    # An outage soon afterwards continues the last one's backoff; a later one starts from the
    # minimum.
    assert (
        opened(breaker, open_ms_min=30_000, now_ms=now_ms + 299_999, roll=0.0).until_ms
        == now_ms + 359_999
    )
    assert (
        opened(breaker, open_ms_min=30_000, now_ms=now_ms + 300_000, roll=0.0).until_ms
        == now_ms + 330_000
    )


def test_a_probe_whose_worker_died_is_made_again() -> None:
    now_ms = NOW_MS + 30_000
    breaker, _ = ask(after(Breaker(), "x" * 10), now_ms)
    assert ask(breaker, now_ms + LEASE_MS - 1)[1] == Refrain(now_ms + LEASE_MS - 1 + 250)
    assert ask(breaker, now_ms + LEASE_MS)[1] == Start(is_probe=True)


def test_a_probe_that_was_not_sent_is_made_again() -> None:
    now_ms = NOW_MS + 30_000
    breaker, _ = ask(after(Breaker(), "x" * 10), now_ms)
    assert ask(unanswered(breaker, is_probe=False), now_ms)[1] == Refrain(now_ms + 250)
    assert ask(unanswered(breaker, is_probe=True), now_ms)[1] == Start(is_probe=True)


def test_what_was_sent_before_it_opened_says_nothing_any_more() -> None:
    breaker = after(Breaker(), "x" * 10)
    assert after(breaker, "x.x.", now_ms=NOW_MS + 40_000) == breaker


def test_a_clock_that_is_set_back_keeps_it_open_no_longer_than_it_can_be() -> None:
    breaker = after(Breaker(), "x" * 10)
    _, shut = ask(breaker, NOW_MS - 3_600_000)
    assert shut == Refrain(NOW_MS - 3_600_000 + 36_000)


def test_refusals_of_a_destination_that_takes_others_do_not_open_it_but_what_follows_may() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker = noted_refusal(breaker)
    assert ask(breaker, NOW_MS)[1] == Start(is_probe=False)
    assert ask(after(breaker, "."), NOW_MS)[0].failures_in_row == 0
    assert isinstance(ask(after(breaker, "x"), NOW_MS)[1], Refrain)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40_000)), max_size=100))
def test_it_is_open_for_at_most_a_quarter_of_an_hour_and_the_jitter(
    lived: list[tuple[bool, int]],
) -> None:
    breaker, now_ms = Breaker(), NOW_MS
    for is_failure, passed_ms in lived:
        now_ms += passed_ms
        breaker, answer = ask(breaker, now_ms)
        if isinstance(answer, Refrain):
            assert now_ms < answer.until_ms <= now_ms + 1_080_000
        else:
            breaker = answered(
                breaker,
                is_failure=is_failure,
                is_probe=answer.is_probe,
                parallel=2,
                open_ms_min=30_000,
                now_ms=now_ms,
                roll=0.999,
            )
