"""Parses a computed column of a window: one aggregate of one expression."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from shared.config.model import ConfigError
from shared.config.values import FUNCTION_PATTERN

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_TOP_MAX = 100
AGGREGATE_NAMES = (
    *("count", "count_if", "sum", "avg", "min", "max", "first", "last"),
    *("approx_count_distinct", "collect_set", "top", "call"),
)

# Aggregates that keep a list of values, rather than one number or value.
LISTING = frozenset({"collect_set", "top", "call"})


class ComputedColumn(NamedTuple):
    """An aggregate of an expression or of whole events; `most` is the number of values of `top`.

    For `call`, `of` is the name of a reducer, which declares its own input.
    """

    aggregate: str
    of: str
    most: int = 0

    @property
    def function(self) -> str:
        return self.of if self.aggregate == "call" else ""

    @property
    def expression(self) -> str:
        return "" if self.function else self.of


def computed(text: str) -> ComputedColumn:
    """Parse a computed column; ConfigError if the text is not an aggregate."""
    match = _CALL.fullmatch(text)
    name = match[1].lower() if match else ""
    if match is None or name not in AGGREGATE_NAMES:
        there = ", ".join(AGGREGATE_NAMES)
        raise ConfigError("", f"use one aggregate, such as sum(price); there are: {there}")
    of = match[2].strip()
    if name == "count" and of == "*":
        return ComputedColumn(name, "")
    if name == "top":
        of, _, count = of.rpartition(",")
        if not count.strip().isdigit() or not 1 <= int(count) <= _TOP_MAX or not of.strip():
            raise ConfigError("", f"use top(what, how many), 1 to {_TOP_MAX} values: top(url, 5)")
        return ComputedColumn(name, of.strip(), int(count))
    if name == "call":
        if not re.fullmatch(FUNCTION_PATTERN, of):
            raise ConfigError("", "call names an installed reducer: call(fraud.worst)")
        return ComputedColumn(name, of)
    if not of:
        raise ConfigError("", f"{name} takes an expression: {name}(price)")
    return ComputedColumn(name, of)


def reducers_of(compute: Mapping[str, str]) -> dict[str, str]:
    """Return the called reducers, by the member of the row that each computes."""
    reducers = {}
    for member, text in compute.items():
        try:
            function = computed(text).function
        except ConfigError:
            # The check of the document reports it.
            continue
        if function:
            reducers[member] = function
    return reducers
