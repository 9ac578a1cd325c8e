"""Finds the functions that are installed beside Hifi, and loads each when it is first called."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pipelines.functions.function import Function
from pipelines.functions.reducer import Reducer

GROUP = "hifi.functions"
_NOT_MADE = "not made by `@function(reads=..., returns=...)`"


class NoFunctionError(Exception):
    """There is no function of this name, or the object installed under it is not a function."""


@cache
def installed() -> Mapping[str, EntryPoint]:
    """The entry points, by their names in documents. Later installations need a new process."""
    return {each.name: each for each in entry_points(group=GROUP)}


def function_of(name: str) -> Function:
    """Return a function; raise NoFunctionError if there is none."""
    loaded = loaded_of(name)
    if not isinstance(loaded, Function):
        what = "a reducer, which windows call" if isinstance(loaded, Reducer) else _NOT_MADE
        raise NoFunctionError(f"{installed()[name].value} is {what}")
    return loaded


def reducer_of(name: str) -> Reducer:
    """Return a reducer; raise NoFunctionError if there is none."""
    loaded = loaded_of(name)
    if not isinstance(loaded, Reducer):
        raise NoFunctionError(f"{installed()[name].value} is not made by `Reducer(...)`")
    return loaded


@cache
def loaded_of(name: str) -> Any:
    """Return the object that is installed under a name, of any kind."""
    entry = installed().get(name)
    if entry is None:
        raise NoFunctionError(f"no function {name!r} is installed here")
    try:
        return entry.load()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise NoFunctionError(f"{name!r} cannot be loaded: {why}") from error
