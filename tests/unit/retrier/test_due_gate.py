"""How far a micro-batch of the retrier goes."""

from hypothesis import given
from hypothesis import strategies as st

from retrier.due_gate import bounded
from shared.event.record import KafkaPartition, Position
from shared.event.topics import retry_topic

A, B = (KafkaPartition(retry_topic(tier), 0) for tier in ("30s", "5m"))
PARKED = KafkaPartition(retry_topic("30s", is_parked=True), 0)
positions = st.fixed_dictionaries({where: st.integers(0, 50) for where in (A, B, PARKED)})


def test_it_goes_to_what_is_due() -> None:
    assert bounded({A: 3, B: 5}, {A: 7, B: 5}, events_max=100) == {A: (3, 7)}


def test_it_goes_no_further_than_the_bound() -> None:
    assert bounded({A: 3}, {A: 900}, events_max=10) == {A: (3, 13)}


def test_it_never_goes_back() -> None:
    """After a clock was set back, fewer events are due than before."""
    assert bounded({A: 9}, {A: 4}, events_max=10) == {}


def test_what_does_not_answer_keeps_its_position() -> None:
    assert bounded({A: 4}, {}, events_max=10) == {}


@given(start=positions, due=positions, events_max=st.integers(1, 20))
def test_steps_reach_all_that_is_due_once_and_in_order(
    start: Position, due: Position, events_max: int
) -> None:
    read: dict[KafkaPartition, list[int]] = {}
    at = dict(start)
    while ranges := bounded(at, due, events_max=events_max):
        for where, (begin, end) in ranges.items():
            assert begin == at[where]
            assert 0 < end - begin <= events_max
            read.setdefault(where, []).extend(range(begin, end))
            at[where] = end
    for where, due_end in due.items():
        assert read.get(where, []) == list(range(start[where], due_end))
