"""Reads what is computed of a window: one aggregate, of one expression."""

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
    """An aggregate of an expression, or of the events; for `top`, how many values at most.

    For `call`, `of` is the name of the reducer, which says itself what it reads.
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
    """Read such a text; ConfigError if it is no aggregate."""
    match = _CALL.fullmatch(text)
    name = match[1].lower() if match else ""
    if match is None or name not in AGGREGATE_NAMES:
        there = ", ".join(AGGREGATE_NAMES)
        raise ConfigError("", f"it is one aggregate, such as sum(price); there are: {there}")
    of = match[2].strip()
    if name == "count" and of == "*":
        return ComputedColumn(name, "")
    if name == "top":
        of, _, count = of.rpartition(",")
        if not count.strip().isdigit() or not 1 <= int(count) <= _TOP_MAX or not of.strip():
            raise ConfigError("", f"it is top(what, how many), of 1 to {_TOP_MAX}: top(url, 5)")
        return ComputedColumn(name, of.strip(), int(count))
    if name == "call":
        if not re.fullmatch(FUNCTION_PATTERN, of):
            raise ConfigError("", "call names an installed reducer: call(fraud.worst)")
        return ComputedColumn(name, of)
    if not of:
        raise ConfigError("", f"{name} takes an expression: {name}(price)")
    return ComputedColumn(name, of)


def reducers_of(compute: Mapping[str, str]) -> dict[str, str]:
    """The reducers that are called, by the member of a row that each makes."""
    reducers = {}
    for member, text in compute.items():
        try:
            function = computed(text).function
        except ConfigError:
            # The judge of the document says where and why.
            continue
        if function:
            reducers[member] = function
    return reducers
