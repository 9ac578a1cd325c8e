"""One rule decides which outcome counts, and forgetting delivered events changes no answer."""

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.proof.intervals import Offsets
from shared.proof.outcome_sets import OutcomeSets
from shared.proof.receipt import ReceiptOutcome

DELIVERED, WAITING, DEAD = (
    ReceiptOutcome.DELIVERED,
    ReceiptOutcome.WAITING,
    ReceiptOutcome.DEAD,
)
RANKS = (WAITING, DEAD)
END = 20

# An outcome, the interval of offsets, and the number of redrives before it.
Entry: TypeAlias = tuple[ReceiptOutcome, int, int, int]
entries = st.lists(
    st.tuples(
        st.sampled_from(ReceiptOutcome), st.integers(0, END), st.integers(0, END), st.integers(0, 2)
    ),
    max_size=25,
)


def outcomes_of(taken: list[Entry], *, settles: bool = False) -> OutcomeSets:
    outcomes = OutcomeSets()
    for outcome, first, end, redrives in taken:
        outcomes.take(outcome, first, end, redrive_count=redrives)
        if settles:
            outcomes.settle()
    return outcomes


def what_counts(taken: list[Entry], offset: int) -> ReceiptOutcome | None:
    """Find the outcome of each offset on its own, without intervals."""
    said = [(redrives, o) for o, first, end, redrives in taken if first <= offset < end]
    if any(outcome is DELIVERED for _, outcome in said):
        return DELIVERED
    ranked = sorted(said, key=lambda one: (one[0], RANKS.index(one[1])))
    return ranked[-1][1] if ranked else None


@given(entries.flatmap(lambda drawn: st.permutations(drawn + drawn[:5])))
def test_the_rule_is_that_of_a_plain_count(taken: list[Entry]) -> None:
    told = outcomes_of(taken)
    for offset in range(END):
        found = [
            outcome
            for outcome, offsets in (
                (DELIVERED, told.delivered),
                (DEAD, told.dead),
                (WAITING, told.waiting),
            )
            if offset in offsets
        ]
        expected = what_counts(taken, offset)
        assert found == ([] if expected is None else [expected])


@given(entries)
def test_forgetting_what_is_delivered_changes_no_answer(taken: list[Entry]) -> None:
    whole = outcomes_of(taken)
    told = outcomes_of(taken, settles=True)
    assert told.dead == whole.dead
    assert told.waiting == whole.waiting
    # So the delivered events are the same: neither dead, nor waiting, nor without an outcome.
    assert told.no_outcome(END) == whole.no_outcome(END)
    counting = [what_counts(taken, offset) for offset in range(END)]
    assert len(told.no_outcome(END)) == counting.count(None)
    for outcome in RANKS:
        assert told.count(outcome, 3, 15) == counting[3:15].count(outcome)
    assert told.end == whole.end
    # Below the base every event has an outcome.
    known = whole.delivered.union(whole.dead).union(whole.waiting)
    assert not len(Offsets.of([(0, told.base)]).minus(known))


def test_a_dead_letter_below_the_base_waits_again_and_is_delivered() -> None:
    told = outcomes_of([(DELIVERED, 0, 10, 0), (DEAD, 3, 5, 0), (DEAD, 10, 12, 0)], settles=True)
    assert (told.base, list(told.dead)) == (12, [(10, 12)])
    told.take(WAITING, 10, 12, redrive_count=1, cause="retry")
    assert (list(told.dead), list(told.waiting)) == ([], [(10, 12)])
    told.take(DEAD, 10, 11, redrive_count=1)
    told.take(DELIVERED, 11, 12, redrive_count=1)
    told.settle()
    assert (list(told.dead), list(told.waiting), list(told.delivered)) == ([(10, 11)], [], [])
    assert not told.no_outcome(12)


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (0, 30, []),
        (5, 5, [(0, 10), (20, 30)]),
        (10, 20, [(0, 10), (20, 30)]),
        (3, 5, [(0, 3), (5, 10), (20, 30)]),
        (5, 25, [(0, 5), (25, 30)]),
        (9, 20, [(0, 9), (20, 30)]),
        (10, 21, [(0, 10), (21, 30)]),
    ],
)
def test_offsets_are_taken_out_and_the_rest_stays(
    start: int, end: int, left: list[tuple[int, int]]
) -> None:
    offsets = Offsets.of([(0, 10), (20, 30)])
    offsets.discard(start, end)
    assert list(offsets) == left
