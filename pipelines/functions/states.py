"""Defines the request to a reducer, and its answer, when a window's states are merged. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias


class ToFold(NamedTuple):
    """The states that a reducer has made of one window's events, and how often it made each."""

    function: str
    states: Mapping[str, int]


class FoldedState(NamedTuple):
    """The one state that the states merge into, and its value in a row."""

    state: str
    says: str


# Runs code that an operator has installed, in another process, as that code may do anything.
Fold: TypeAlias = Callable[[Sequence[ToFold]], Sequence[FoldedState]]
