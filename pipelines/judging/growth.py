"""Reckons how much an expression may make of an event: of which of its members, how many times."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

# By the path of a member, how many times its bytes there may be.
Growth: TypeAlias = Mapping[tuple[str, ...], float]

NOTHING: Growth = {}
# More than any sensible step, and little enough to have in memory.
GROWTH_MAX = 32.0
# The most bytes that the literals of one expression may make; they do not depend on the event.
WRITTEN_MAX = 65_536
# No member has this name.
_WRITTEN = ("",)


def of_member(*path: str) -> Growth:
    return {path: 1.0}


def of_written(byte_count: int) -> Growth:
    """The growth of a literal."""
    return {_WRITTEN: float(byte_count)}


def within(whole: Growth, names: list[str]) -> Growth:
    """Of a member of what has this growth."""
    if not names or list(whole.values()) != [1.0] or _WRITTEN in whole:
        return whole
    ((path, times),) = whole.items()
    return {(*path, *names): times}


def together(growths: Iterable[Growth]) -> Growth:
    """All of these beside each other."""
    summed: dict[tuple[str, ...], float] = {}
    for growth in growths:
        for path, times in growth.items():
            summed[path] = summed.get(path, 0.0) + times
    return summed


def either(growths: Iterable[Growth]) -> Growth:
    """The larger of these, member by member."""
    largest: dict[tuple[str, ...], float] = {}
    for growth in growths:
        for path, times in growth.items():
            largest[path] = max(largest.get(path, 0.0), times)
    return largest


def times(growth: Growth, factor: float) -> Growth:
    return {path: count * factor for path, count in growth.items()}


def worst(growth: Growth) -> float:
    """How many times the event's bytes it is at most: two members are never the same bytes."""
    return max(
        (
            sum(count for path, count in growth.items() if leaf[: len(path)] == path)
            for leaf in growth
            if leaf != _WRITTEN
        ),
        default=0.0,
    )


def written(growth: Growth) -> float:
    """How many bytes its literals make, whatever the event is."""
    return growth.get(_WRITTEN, 0.0)
