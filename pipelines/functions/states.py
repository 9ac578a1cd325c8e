"""Says what is asked of reducers, and answered, when states of a window are put together. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias


class ToFold(NamedTuple):
    """What a reducer has made of the events of one window: states, and how often each came."""

    function: str
    states: Mapping[str, int]


class Folded(NamedTuple):
    """The one state that they come to, and what a row says of it."""

    state: str
    says: str


# Runs what an operator has installed; elsewhere, as it may do anything.
Fold: TypeAlias = Callable[[Sequence[ToFold]], Sequence[Folded]]
