"""Finds the functions that are installed beside us, and loads one when it is first called."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pipelines.functions.function import Function

GROUP = "hifi.functions"


class NoFunctionError(Exception):
    """There is no such function, or what is installed under its name is none."""


@cache
def installed() -> Mapping[str, EntryPoint]:
    """By the names that documents say; what is installed later, a new process finds."""
    return {each.name: each for each in entry_points(group=GROUP)}


@cache
def function_of(name: str) -> Function:
    """NoFunctionError if it cannot be had."""
    found = installed().get(name)
    if found is None:
        raise NoFunctionError(f"no function {name!r} is installed here")
    try:
        loaded = found.load()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise NoFunctionError(f"{name!r} cannot be loaded: {why}") from error
    if not isinstance(loaded, Function):
        raise NoFunctionError(f"{found.value} is not made by `@function(reads=..., returns=...)`")
    return loaded
