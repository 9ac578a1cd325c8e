"""Checks arguments that must be literals: numbers, formats, and texts to search for."""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from pyspark.sql.types import DataType

from pipelines.judging.allowed import Kind
from pipelines.judging.patterns import TEXT_CHARS_MAX, PatternBudget, PatternError, judged
from pipelines.judging.trees import Branch
from pipelines.members import check_type
from pipelines.parts.decimals import has_decimals
from shared.config.model import ConfigError

COUNT_MAX = 1_000
TEXT_MAX = 256
_NUMBER_MAX = 1_000_000
_SCALE_MAX = 38
_FORMAT = re.compile(
    r"(?:y{1,4}|M{1,4}|d{1,2}|[Hhms]{1,2}|S{1,6}|D|E{1,4}|a|X{1,3}|'[^']*'|[ ,.:/_T-])+"
)
# Functions whose result is no longer than their argument.
_NO_LONGER = frozenset({"lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "btrim"})
_TRIMS = frozenset({"StringTrim", "StringTrimLeft", "StringTrimRight"})
_SHORT = frozenset({"left", "right", "substr", "substring"})


class WrittenError(ValueError):
    """An argument is not a literal, or not a valid one."""


# Takes the function's name, the call, and the number of the argument.
Check: TypeAlias = Callable[[str, Branch, int], None]


def check_pattern(of: Branch, pattern: Branch, budget: PatternBudget, *, in_list: bool) -> None:
    """Check that the pattern ends soon on any text."""
    if pattern.text is None:
        raise WrittenError("a pattern must be written out, in quotes")
    try:
        part = judged(pattern.text)
    except PatternError as error:
        raise WrittenError(f"the pattern {pattern.text[:100]!r}: {error}") from None
    if part.is_plain:
        return
    if in_list:
        raise WrittenError("a pattern within -> ... may have no repeats or choices")
    chars = chars_max(of)
    if chars is None or chars > TEXT_CHARS_MAX:
        raise WrittenError(
            "limit the text for a pattern with repeats or choices, to at most"
            f" {TEXT_CHARS_MAX} characters: left(line, 1000) RLIKE '...'"
        )
    try:
        budget.take(part.steps(chars))
    except PatternError as error:
        raise WrittenError(f"the pattern {pattern.text[:100]!r}: {error}") from None


def check_like(node: Branch) -> None:
    """Allow only LIKE patterns with one way to match: one % within, or one at each end."""
    pattern = node.children[1].text
    if pattern is None or len(pattern) > TEXT_MAX:
        raise WrittenError(f"a LIKE pattern is written out, with at most {TEXT_MAX} characters")
    inner = pattern.removeprefix("%").removesuffix("%")
    if "%" in inner and pattern.count("%") > 1:
        raise WrittenError(
            f"LIKE {pattern[:100]!r} can match in too many ways: use one % within, or one at each"
            " end, and join several such patterns with AND"
        )


def chars_max(node: Branch) -> int | None:
    """The maximum number of characters of the value, if the expression's text limits it."""
    if node.text is not None:
        return len(node.text)
    name = ".".join(node.names).lower() if node.kind == "UnresolvedFunction" else ""
    if name in _NO_LONGER or node.kind in _TRIMS:
        return chars_max(node.children[0])
    if name in _SHORT or node.kind == "Substring":
        return (
            node.children[-1].number
            if len(node.children) == (2 if name in {"left", "right"} else 3)
            else None
        )
    return None


def _text(name: str, node: Branch, nth: int) -> None:
    text = node.children[nth].text
    if text is None or len(text) > TEXT_MAX:
        raise _wrong(name, nth, f"a text in quotes, of at most {TEXT_MAX} characters")


def _needle(name: str, node: Branch, nth: int) -> None:
    _text(name, node, nth)
    if not node.children[nth].text:
        raise _wrong(name, nth, "not empty")


def _number_within(least: int, most: int, *, zero: bool = True) -> Check:
    def check(name: str, node: Branch, nth: int) -> None:
        number = node.children[nth].number
        if number is None or not least <= number <= most or (number == 0 and not zero):
            but = "" if zero else ", and not 0"
            raise _wrong(name, nth, f"a number written out, from {least} to {most}{but}")

    return check


def _index(name: str, node: Branch, nth: int) -> None:
    # For a map, the argument is the name of a member.
    if name == "element_at" and node.children[nth].text is not None:
        return
    _number_within(-_NUMBER_MAX, _NUMBER_MAX, zero=False)(name, node, nth)


def _format(name: str, node: Branch, nth: int) -> None:
    text = node.children[nth].text
    if text is None or len(text) > TEXT_MAX or not _FORMAT.fullmatch(text):
        raise _wrong(name, nth, "a format written out, such as 'yyyy-MM-dd HH:mm:ss'")


def _type(name: str, node: Branch, nth: int) -> None:
    text = node.children[nth].text
    if text is None:
        raise _wrong(name, nth, "a type written out, such as 'id STRING, price DOUBLE'")
    try:
        check_type(text)
    except ConfigError as error:
        raise WrittenError(f"{name}: {error.wrong}") from None
    if has_decimals(DataType.fromDDL(text)):
        raise WrittenError(f"{name} cannot make a DECIMAL: read a STRING, and CAST that")


def _wrong(name: str, nth: int, what: str) -> WrittenError:
    return WrittenError(f"argument {nth + 1} of {name} must be {what}")


# Patterns are checked together with their text (see `check_pattern`).
CHECKS: Mapping[Kind, Check] = {
    "text": _text,
    "needle": _needle,
    "number": _number_within(-_NUMBER_MAX, _NUMBER_MAX),
    "index": _index,
    "count": _number_within(-COUNT_MAX, COUNT_MAX),
    "scale": _number_within(-_SCALE_MAX, _SCALE_MAX),
    "format": _format,
    "type": _type,
}
