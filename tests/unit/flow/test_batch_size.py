"""The size of a batch is learned from which batches are accepted."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.destination import Destination
from shared.flow.batch_size import ROW, BatchSize, most, per_request, refused, taken
from shared.flow.flow import EndedRequest, Flow, SendLimits, after_attempt
from shared.flow.rejects import HALVES_IN_ROW
from shared.retry.attempt import Response, classify
from shared.retry.schedule import RetrySchedule

MAX = 500


def told(
    state: BatchSize, event_count: int, *, is_taken: bool, is_too_large: bool = False
) -> BatchSize:
    if is_taken:
        return taken(state, event_count, count_max=MAX, is_last_suspect=False)
    return refused(
        state, event_count, count_max=MAX, is_too_large=is_too_large, is_half=event_count < 40
    )


@pytest.mark.parametrize(("fraction", "best"), [(0.001, 500), (0.01, 69), (0.06, 11), (0.3, 2)])
def test_it_comes_to_the_size_that_is_refused_as_often_as_not(fraction: float, best: int) -> None:
    dice, state, sizes = random.Random(7), BatchSize(), []
    for _ in range(1_000):
        size = most(state, MAX)
        sizes.append(size)
        state = told(state, size, is_taken=dice.random() < (1 - fraction) ** size)
    assert 0.6 * best <= sum(sizes[200:]) / 800 <= 1.5 * best


def test_who_takes_everything_gets_what_its_owner_has_set() -> None:
    state = told(BatchSize(), MAX, is_taken=True)
    assert state == BatchSize()
    assert (most(state, MAX), per_request(state, MAX)) == (MAX, MAX)


def test_the_first_refusals_halve_it_and_what_was_sent_before_does_not_count() -> None:
    state = told(BatchSize(), MAX, is_taken=False)
    assert most(state, MAX) == 250
    # Refused requests that were already under way, and a smaller last batch, change nothing.
    assert told(told(state, MAX, is_taken=False), 30, is_taken=False) == state
    assert most(told(state, 250, is_taken=False), MAX) == 125


def test_where_batches_are_small_a_refused_one_counts_unless_it_is_a_half() -> None:
    state = refused(BatchSize(), 50, count_max=MAX, is_too_large=False, is_half=False)
    assert most(state, MAX) == 250
    assert refused(state, 50, count_max=MAX, is_too_large=False, is_half=True) == state


def test_many_in_a_row_move_it_faster_and_it_is_whole_again() -> None:
    state, count = BatchSize(events=2.0, step=0.125, row=-1), 0
    while state.events:
        state = told(state, most(state, MAX), is_taken=True)
        count += 1
    assert count <= 4 * ROW
    assert state == BatchSize()


def test_what_is_too_large_is_halved_and_tells_nothing_of_its_halves() -> None:
    state = told(BatchSize(events=100.0, step=0.125), 100, is_taken=False, is_too_large=True)
    assert most(state, MAX) == 50
    # The last suspect of a refused batch was accepted by itself, so the batch's size was the cause.
    state = taken(BatchSize(events=10.0), 1, count_max=MAX, is_last_suspect=True)
    assert state.is_by_size
    # This holds until an event is refused by itself.
    assert not told(state, 1, is_taken=False).is_by_size


@given(st.lists(st.tuples(st.integers(1, 600), st.booleans(), st.booleans()), max_size=60))
def test_whatever_is_answered_it_is_one_at_least_and_what_is_set_at_most(
    answers: list[tuple[int, bool, bool]],
) -> None:
    state = BatchSize()
    for event_count, is_taken, is_too_large in answers:
        state = told(state, event_count, is_taken=is_taken, is_too_large=is_too_large)
        assert 1 <= most(state, MAX) <= MAX
        assert 0 < per_request(state, MAX) <= MAX


@pytest.mark.parametrize("known", [{"is_last_suspect": True}, {"is_redriven": True}])
def test_that_it_refuses_what_it_was_to_refuse_says_nothing_of_the_others(
    known: dict[str, bool],
) -> None:
    limits = SendLimits(Destination("orders", "shop", "https://shop.example/in"), RetrySchedule())
    bad = Response(422)
    ended = EndedRequest(bad, classify(bad), 1, 5.0, 5.0, is_probe=False, is_half=True, **known)
    flow = Flow()
    for _ in range(HALVES_IN_ROW):
        flow = after_attempt(flow, limits, ended, now_ms=1_000, roll=0.0)
    assert not flow.is_rejecting
