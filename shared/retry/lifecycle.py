"""The states of an event and the moves between them: one table, and nothing else.

docs/lifecycle.md is written from the table, and its picture is compared with it. An illegal move
raises: it means that the code breaks its promises, and the event must not continue.
"""

from collections.abc import Mapping
from enum import Enum

from shared.retry.decision import (
    DeadLetter,
    Decision,
    Hold,
    Hop,
    Park,
    RetryLater,
    RetryLocally,
    Split,
    Success,
)


class State(Enum):
    RECEIVED = "received"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    STORED = "stored"
    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


class Move(Enum):
    REFUSE = "refused with 4xx or 503, nothing stored"
    LOSE_REPORT = "no report from Kafka in time: 504"
    STORE = "Kafka reported it stored: 2xx"
    DELIVER = "destination answered 2xx"
    TRY_AGAIN = "retried in place, or in halves"
    RETRY_LATER = "recoverable failure: next tier"
    PARK = "not tried: same state of attempts"
    HOP = "asked to wait longer than a tier"
    GIVE_UP = "non-recoverable, exhausted or past its deadline"
    REDRIVE = "sent again by a person"


MEANINGS: Mapping[State, str] = {
    State.RECEIVED: "The gateway has it in memory; the caller has no answer yet.",
    State.REFUSED: "The caller got a refusal; the event was not stored.",
    State.UNKNOWN: "The caller got 'unknown'; sending it again is right.",
    State.STORED: "Kafka has it, and the caller got a 2xx.",
    State.WAITING: "It waits in a retry tier until it is due.",
    State.DELIVERED: "The destination answered 2xx; a receipt says when.",
    State.DEAD: "It was given up for a stated reason and can be sent again.",
}

TABLE: Mapping[State, Mapping[Move, State]] = {
    State.RECEIVED: {
        Move.REFUSE: State.REFUSED,
        Move.LOSE_REPORT: State.UNKNOWN,
        Move.STORE: State.STORED,
    },
    State.REFUSED: {},
    # The record may turn out to be in the log after all; delivery then takes it as stored.
    State.UNKNOWN: {Move.STORE: State.STORED},
    State.STORED: {
        Move.DELIVER: State.DELIVERED,
        Move.TRY_AGAIN: State.STORED,
        Move.RETRY_LATER: State.WAITING,
        Move.PARK: State.WAITING,
        Move.GIVE_UP: State.DEAD,
    },
    State.WAITING: {
        Move.DELIVER: State.DELIVERED,
        Move.TRY_AGAIN: State.WAITING,
        Move.RETRY_LATER: State.WAITING,
        Move.PARK: State.WAITING,
        Move.HOP: State.WAITING,
        Move.GIVE_UP: State.DEAD,
    },
    State.DELIVERED: {},
    State.DEAD: {Move.REDRIVE: State.WAITING},
}

MOVE_OF: Mapping[type[Decision | Hop], Move] = {
    Success: Move.DELIVER,
    RetryLocally: Move.TRY_AGAIN,
    Hold: Move.TRY_AGAIN,
    Split: Move.TRY_AGAIN,
    RetryLater: Move.RETRY_LATER,
    Park: Move.PARK,
    Hop: Move.HOP,
    DeadLetter: Move.GIVE_UP,
}


class IllegalMoveError(Exception):
    """The table has no such move."""


def next_state(state: State, move: Move) -> State:
    """Return the state that a move leads to."""
    try:
        return TABLE[state][move]
    except KeyError:
        raise IllegalMoveError(f"an event that is {state.value} cannot be {move.name}") from None
