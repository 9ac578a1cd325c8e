"""The search finds a server's capacity in few steps, and says when the generator was the limit."""

import math
import random

import pytest

from loadtests.arrivals import due_times, hold
from loadtests.search import CLOSE, STEPS_MAX, Search
from loadtests.slo import Slo, StepFigures, Word, judge

CAPACITY, BURST, HOLD_S = 700.0, 70.0, 20.0


def token_bucket(rate: float, *, seed: int) -> Word:
    """Judge a server of 700 requests/s that has a tenth of a second in reserve."""
    random_ = random.Random(seed)
    dues = list(due_times(hold(rate, HOLD_S), "poisson", random_.random))
    # When the server would have finished everything so far.
    free_s, waits = 0.0, []
    for due_s in dues:
        free_s = max(free_s, due_s) + 1 / CAPACITY
        waits.append(max(0.0, free_s - due_s - BURST / CAPACITY) + 0.001)
    waits.sort()
    found = StepFigures(
        planned=rate * HOLD_S,
        offered=len(dues),
        unsent=0,
        failed=0,
        due_p99_ms=1000 * waits[math.ceil(0.99 * len(waits)) - 1],
        late_p99_ms=1,
        cpu_share=0.3,
    )
    return judge(Slo(), found).word


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("start", [100.0, 250.0])
def test_a_scripted_servers_capacity_is_found_within_5_percent_in_9_steps(
    seed: int, start: float
) -> None:
    """Issue 16, A5: the search's accuracy and number of steps."""
    search = Search(start)
    while (rate := search.next_rate()) is not None:
        search.note(rate, token_bucket(rate, seed=100 * seed + len(search.steps)))
    assert search.is_confirmed
    assert search.closed_after is not None
    assert search.closed_after <= 9
    assert search.low == pytest.approx(CAPACITY, rel=0.05)


def run(search: Search, holds: float, other: Word = "broken") -> Search:
    while (rate := search.next_rate()) is not None:
        search.note(rate, "met" if rate <= holds else other)
    return search


def test_a_first_guess_that_is_far_too_high_is_halved() -> None:
    search = run(Search(10_000), 700)
    assert 700 / CLOSE <= search.low <= 700
    assert search.is_confirmed


def test_what_does_not_repeat_is_lowered() -> None:
    search = Search(600)
    while not search.is_closed:
        rate = search.next_rate()
        assert rate is not None
        search.note(rate, "met" if rate <= 700 else "broken")
    first = search.low
    search.note(first, "broken")
    again = search.next_rate()
    assert again is not None
    assert again == pytest.approx(first / CLOSE)
    # A rate that was met by luck may be far too high: from here on the search goes down faster.
    search.note(again, "broken")
    again = search.next_rate()
    assert again is not None
    assert again == pytest.approx(first / CLOSE**3)
    search.note(again, "met")
    assert search.low == again
    assert search.next_rate() is None


def test_what_never_repeats_is_not_confirmed() -> None:
    search = Search(600)
    while (rate := search.next_rate()) is not None:
        search.note(rate, "broken" if search.is_closed or rate > 700 else "met")
    assert not search.is_confirmed
    assert len(search.steps) <= STEPS_MAX


def test_a_slow_generator_ends_the_way_up_and_is_named() -> None:
    assert run(Search(100), 700, "invalid").is_limited_by_generator
    assert not run(Search(100), 700, "broken").is_limited_by_generator


def test_nothing_holds() -> None:
    search = run(Search(100), 0)
    assert search.low == 0
    assert not search.is_confirmed
