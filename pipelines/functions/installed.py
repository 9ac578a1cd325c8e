"""Finds the functions that are installed beside us, and loads one when it is first called."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pipelines.functions.function import Function
from pipelines.functions.reducer import Reducer

GROUP = "hifi.functions"
_NOT_MADE = "not made by `@function(reads=..., returns=...)`"


class NoFunctionError(Exception):
    """There is no such function, or what is installed under its name is none."""


@cache
def installed() -> Mapping[str, EntryPoint]:
    """By the names that documents say; what is installed later, a new process finds."""
    return {each.name: each for each in entry_points(group=GROUP)}


def function_of(name: str) -> Function:
    """NoFunctionError if it cannot be had."""
    loaded = loaded_of(name)
    if not isinstance(loaded, Function):
        what = "a reducer, which windows call" if isinstance(loaded, Reducer) else _NOT_MADE
        raise NoFunctionError(f"{installed()[name].value} is {what}")
    return loaded


def reducer_of(name: str) -> Reducer:
    """NoFunctionError if it cannot be had."""
    loaded = loaded_of(name)
    if not isinstance(loaded, Reducer):
        raise NoFunctionError(f"{installed()[name].value} is not made by `Reducer(...)`")
    return loaded


@cache
def loaded_of(name: str) -> Any:
    """What is installed under a name, whatever it is."""
    found = installed().get(name)
    if found is None:
        raise NoFunctionError(f"no function {name!r} is installed here")
    try:
        return found.load()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise NoFunctionError(f"{name!r} cannot be loaded: {why}") from error
