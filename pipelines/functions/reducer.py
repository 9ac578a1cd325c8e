"""Says what a reducer reads of events, and how what it makes of them is put together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

# Whatever JSON can say.
State: TypeAlias = Any


def _as_it_is(state: State) -> State:
    return state


@dataclass(frozen=True, slots=True)
class Reducer:
    """An aggregate of windows.

    It reads members of the event, and `value`, its bytes, as a function does. States must come to
    the same in whatever order they are merged: which come first, nobody can say.
    """

    reads: str
    # A state of each event, in their order; None of one that adds nothing.
    begin: Callable[[pa.RecordBatch], Sequence[State]]
    # One state of two.
    merge: Callable[[State, State], State]
    # What a row says of it.
    finish: Callable[[State], Any] = _as_it_is
