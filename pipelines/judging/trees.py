"""Reads the tree that Spark's parser has made of an expression, up to a limited size.

It reads branch by branch, from the root. Spark can write a whole tree as JSON in one call, but it
writes each branch of a nested CASE three times: forty nested ones would take a day.
"""

from dataclasses import dataclass
from typing import Any

from pipelines.members import BRACKETS_MAX, depth_of

DEPTH_MAX = 64
NODES_MAX = 1_000
_WHOLE = frozenset({"integer", "long", "short", "byte"})
# A separator of the parts of a name, which no name can contain.
_BETWEEN = "\x00"


class TreeError(ValueError):
    """The tree is too large to read."""


@dataclass(frozen=True, slots=True)
class Branch:
    """An operator, function, name or literal, and its operands."""

    kind: str
    # The parts of the name of a column or a function.
    names: tuple[str, ...] = ()
    # The type of a literal, or the type that a value is cast to.
    type: str = ""
    # The literals that matter: a text, or a whole number.
    text: str | None = None
    number: int | None = None
    # Whether a call has more than a name and arguments, for example DISTINCT.
    is_more_than_a_call: bool = False
    children: tuple["Branch", ...] = ()


def check_nesting(text: str) -> None:
    """Raise TreeError if brackets are nested too deeply, even within texts."""
    if depth_of(text, "([{", ")]}") > BRACKETS_MAX:
        raise TreeError(f"it has more than {BRACKETS_MAX} nested brackets")


def node_of(expression: Any) -> Branch:
    """Read the tree of an expression in the JVM; TreeError if it is too large or too deep."""
    count = 0

    def read(at: Any, depth: int) -> Branch:
        nonlocal count
        count += 1
        if count > NODES_MAX:
            raise TreeError(f"it has more than {NODES_MAX:,} parts")
        if depth > DEPTH_MAX:
            raise TreeError(f"it is nested deeper than {DEPTH_MAX} levels")
        kind = str(at.getClass().getSimpleName())
        children = at.children()
        return _node(
            kind, at, tuple(read(children.apply(n), depth + 1) for n in range(children.size()))
        )

    return read(expression, 1)


def _node(kind: str, at: Any, children: tuple[Branch, ...]) -> Branch:
    match kind:
        case "Literal":
            return _literal(at)
        case "UnresolvedAttribute" | "UnresolvedNamedLambdaVariable":
            return Branch(kind, names=_names(at))
        case "UnresolvedFunction":
            is_more = (
                at.isDistinct()
                or at.filter().isDefined()
                or at.ignoreNulls().isDefined()
                or not at.orderingWithinGroup().isEmpty()
            )
            return Branch(kind, names=_names(at), is_more_than_a_call=is_more, children=children)
        case "Cast":
            return Branch(kind, type=str(at.dataType().typeName()), children=children)
        case _:
            return Branch(kind, children=children)


def _literal(at: Any) -> Branch:
    kind, value = str(at.dataType().typeName()), at.value()
    if kind == "string" and value is not None:
        return Branch("Literal", type=kind, text=str(value.toString()))
    number = value if kind in _WHOLE else None
    return Branch("Literal", type=kind, number=number)


def _names(at: Any) -> tuple[str, ...]:
    return tuple(str(at.nameParts().mkString(_BETWEEN)).split(_BETWEEN))
