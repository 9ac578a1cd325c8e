"""An event moves as the table says and in no other way."""

import itertools
from typing import get_args

import pytest

from shared.retry.decision import Admission, Decision, Send
from shared.retry.lifecycle import (
    MEANINGS,
    MOVE_OF,
    TABLE,
    IllegalMoveError,
    Move,
    State,
    next_state,
)

# from -> move -> to; all other moves are illegal
MOVES = {
    ("received", "REFUSE"): "refused",
    ("received", "LOSE_REPORT"): "unknown",
    ("received", "STORE"): "stored",
    ("unknown", "STORE"): "stored",
    ("stored", "DELIVER"): "delivered",
    ("stored", "TRY_AGAIN"): "stored",
    ("stored", "RETRY_LATER"): "waiting",
    ("stored", "PARK"): "waiting",
    ("stored", "GIVE_UP"): "dead",
    ("waiting", "DELIVER"): "delivered",
    ("waiting", "TRY_AGAIN"): "waiting",
    ("waiting", "RETRY_LATER"): "waiting",
    ("waiting", "PARK"): "waiting",
    ("waiting", "HOP"): "waiting",
    ("waiting", "GIVE_UP"): "dead",
    ("dead", "REDRIVE"): "waiting",
}


@pytest.mark.parametrize(("state", "move"), list(itertools.product(State, Move)))
def test_only_the_moves_of_the_table_are_legal(state: State, move: Move) -> None:
    expected = MOVES.get((state.value, move.name))
    if expected is None:
        with pytest.raises(IllegalMoveError, match=f"{state.value} cannot be {move.name}"):
            next_state(state, move)
    else:
        assert next_state(state, move) is State(expected)


def test_every_decision_has_its_move() -> None:
    # Send is not a move: the event is tried, and the next decision moves it.
    decisions = {*get_args(Decision), *get_args(Admission)} - {Send}
    assert set(MOVE_OF) == decisions


@pytest.mark.parametrize("state", [State.STORED, State.WAITING])
def test_every_decision_is_legal_where_it_is_made(state: State) -> None:
    made = get_args(Decision) if state is State.STORED else set(MOVE_OF)
    for decision in made:
        next_state(state, MOVE_OF[decision])


def test_every_state_has_its_row_its_meaning_and_a_way_to_it() -> None:
    assert set(TABLE) == set(MEANINGS) == set(State)
    reached = {to for moves in TABLE.values() for to in moves.values()}
    assert reached == set(State) - {State.RECEIVED}


def test_every_move_is_in_the_table() -> None:
    assert {move for moves in TABLE.values() for move in moves} == set(Move)


def is_settled(state: State) -> bool:
    """Return whether nothing more happens to such an event by itself."""
    return set(TABLE[state]) <= {Move.REDRIVE}


def test_only_refused_delivered_and_dead_events_rest() -> None:
    assert {state for state in State if is_settled(state)} == {
        State.REFUSED,
        State.DELIVERED,
        State.DEAD,
    }


def test_an_event_that_kafka_holds_can_always_come_to_rest() -> None:
    for state in (State.STORED, State.WAITING):
        assert any(is_settled(to) for to in TABLE[state].values())
