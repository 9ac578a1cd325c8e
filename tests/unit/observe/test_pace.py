"""The pace shows what will be late, and does not judge a burst by the quiet time before it."""

from collections.abc import Iterable
from math import inf

from observe.lag.pace import PACE_S, Pace
from shared.proof.balance import Balance


def drains(samples: Iterable[tuple[int, int]]) -> list[float]:
    """Return the drain times, at one sample of acknowledged and queued events a second."""
    pace = Pace()
    return [
        pace.drain_s(Balance(acked=acked, delivered=acked - queued, queued=queued), 1000 * second)
        for second, (acked, queued) in enumerate(samples)
    ]


def test_a_backlog_that_shrinks_slowly_is_told_after_ten_seconds() -> None:
    # The backlog of a hundred falls by one each second.
    found = drains((100, 100 - second) for second in range(PACE_S + 3))
    assert found == [0.0] * PACE_S + [90.0, 89.0, 88.0]


def test_a_backlog_of_which_nothing_moves_takes_for_ever() -> None:
    assert drains([(7, 7)] * (PACE_S + 1))[-1] == inf
    # More events arrive meanwhile.
    assert drains((second, second) for second in range(1, PACE_S + 2))[-1] == inf


def test_who_keeps_up_is_not_late_however_much_comes() -> None:
    steady = [(10 * second, 5) for second in range(2 * PACE_S)]
    assert set(drains(steady)) == {0.0}
    # A burst of ten thousand, which falls by a thousand a second.
    last, _ = steady[-1]
    burst = [(last + 10_000, 10_000 - 1000 * second) for second in range(10)]
    assert set(drains(steady + burst)) == {0.0}


def test_books_that_are_counted_from_elsewhere_do_not_run_backwards() -> None:
    assert drains([(100, 10)] + [(50, 10)] * PACE_S)[-1] == inf
