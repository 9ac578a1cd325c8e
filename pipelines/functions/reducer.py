"""Defines a reducer: the members that it reads of events, and how its states are merged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

# Any value that JSON has.
State: TypeAlias = Any


def _as_it_is(state: State) -> State:
    return state


@dataclass(frozen=True, slots=True)
class Reducer:
    """An aggregate of windows.

    Like a function, it reads members of the event, and `value`, the event's bytes. Merging states
    must give the same result in any order: their order is not defined.
    """

    reads: str
    # The states of the events, in order; None for an event that adds nothing.
    begin: Callable[[pa.RecordBatch], Sequence[State]]
    # Merges two states into one.
    merge: Callable[[State, State], State]
    # Makes the value that a row gets.
    finish: Callable[[State], Any] = _as_it_is
