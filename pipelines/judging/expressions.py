"""Judges an expression on the tree that Spark's own parser makes of it.

Nothing is executed or resolved here. Every unlisted part is refused: statements within expressions,
unknown functions, and names that are not columns.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from pipelines.judging.allowed import CHOOSING, FUNCTIONS, JUDGING, LONGER, OPERATORS, Kind
from pipelines.judging.growth import (
    GROWTH_MAX,
    MEMORY_MAX,
    NOTHING,
    WRITTEN_MAX,
    Growth,
    either,
    element,
    of_each,
    of_written,
    times,
    together,
    untyped,
    within,
    worst,
    worst_memory,
    written,
)
from pipelines.judging.objects import made
from pipelines.judging.patterns import PatternBudget
from pipelines.judging.trees import Branch
from pipelines.judging.written import CHECKS, WrittenError, check_like, check_pattern
from pipelines.members import is_type
from pipelines.parts.heap import NUMBER

_LAMBDAS = frozenset({"transform", "filter", "exists", "forall"})
# Words for a time that differs at each start, and escapes, which would hide them from this search.
_MOMENTS = re.compile(r"now|today|tomorrow|yesterday|epoch|\\", re.IGNORECASE)
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})


# A conversion checks its value first, so the value is in the tree several times.
_NUMBERS_DEEP_MAX = 3
# The names of number types, and of functions that convert like them.
_NUMBERS = frozenset({"decimal", "byte", "short", "integer", "long"}) | {
    *("tinyint", "smallint", "int", "bigint", "ceil", "ceiling", "floor")
}


class ExpressionError(ValueError):
    """The expression is refused; the text says why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use, and the growth behind each."""

    columns: Mapping[str, Growth]
    # Within x -> ... only x may be named; it is an element of this list.
    elements: Mapping[str, Growth] = field(default_factory=dict)


def judged(tree: Branch, text: str, scope: Scope, budget: PatternBudget) -> Growth:
    """Return the growth of an expression; raise ExpressionError if it is refused."""
    if _numbers_deep(tree) > _NUMBERS_DEEP_MAX:
        wrong = (
            f"conversions to DECIMAL or to whole numbers are nested more than"
            f" {_NUMBERS_DEEP_MAX} times"
        )
        raise ExpressionError(wrong)
    try:
        growth = _Judge(text, scope, budget).growth(tree)
    except WrittenError as error:
        raise ExpressionError(str(error)) from None
    check_growth(growth)
    return growth


def _numbers_deep(node: Branch) -> int:
    """The depth to which conversions to other kinds of numbers are nested."""
    of = node.type.partition("(")[0] if node.kind == "Cast" else ".".join(node.names).lower()
    return (of in _NUMBERS) + max(map(_numbers_deep, node.children), default=0)


def check_growth(growth: Growth) -> None:
    """Refuse an expression that makes too much of an event."""
    if (most := worst(growth)) > GROWTH_MAX:
        raise ExpressionError(
            f"it may make {most:.0f} times as many bytes as there are in the event; at most"
            f" {GROWTH_MAX:.0f} times are allowed"
        )
    if (count := written(growth)) > WRITTEN_MAX:
        raise ExpressionError(
            f"its literals make {count:,.0f} bytes; at most {WRITTEN_MAX:,} are allowed"
        )
    if (most := worst_memory(growth)) > MEMORY_MAX:
        raise ExpressionError(
            f"it may take {most:,.0f} bytes of memory for each byte of an event, for the"
            f" elements of its lists; at most {MEMORY_MAX:.0f} are allowed: limit the parts that a"
            " text is split into, split(text, ',', 1000), or the length of the text,"
            " left(text, 100000), and name fewer members and lists in one step"
        )


@dataclass(frozen=True, slots=True)
class _Judge:
    text: str
    scope: Scope
    budget: PatternBudget

    def growth(self, node: Branch) -> Growth:
        """Check each part as well: it is in memory even if the result is small."""
        growth = self._growth(node)
        check_growth(growth)
        return growth

    def _growth(self, node: Branch) -> Growth:
        self._check(node)
        match node.kind:
            case "Literal":
                return self._literal(node)
            case "UnresolvedAttribute" | "UnresolvedNamedLambdaVariable":
                return self._name(node)
            case "UnresolvedFunction":
                return self._function(node)
            case "UnresolvedExtractValue":
                return self._part(node)
            case kind:
                carries, chooses = kind not in JUDGING, kind == "CaseWhen"
                growth = self._of(node.children, carries=carries, chooses=chooses)
                return self._made(kind, node, growth) if carries and not chooses else growth

    def _check(self, node: Branch) -> None:
        """Refuse parts that are on no list, or that must be literals and are not."""
        if node.kind not in OPERATORS:
            raise ExpressionError(f"it contains {node.kind}, which cannot be used here")
        match node.kind:
            case "LambdaFunction":
                raise ExpressionError(
                    "x -> ... can be used only in transform, filter, exists and forall"
                )
            case "Cast" if not is_type(node.type):
                raise ExpressionError(f"no value can be cast to {node.type[:100]} here")
            case "StringLocate":
                CHECKS["needle"]("position", node, 0)
            case "RLike":
                self._check_pattern(node, 1)
            case "Like":
                check_like(node)
            case _:
                pass

    @property
    def _elements(self) -> Mapping[str, Growth]:
        return self.scope.elements

    def _of(self, children: Iterable[Branch], *, carries: bool, chooses: bool) -> Growth:
        parts = [self.growth(child) for child in children]
        if not carries:
            return self._each(memory=NUMBER)
        return either(parts) if chooses else together(parts)

    def _each(self, *, byte_count: float = 0.0, memory: float) -> Growth:
        """The growth for each of the elements, if the part is within x -> ..."""
        each = self._elements.values()
        return together(of_each(of, byte_count=byte_count, memory=memory) for of in each)

    def _literal(self, node: Branch) -> Growth:
        if node.type == "binary":
            raise ExpressionError("there are no literals of bytes: write a text")
        if node.type in _TIMES and _MOMENTS.search(self.text):
            raise ExpressionError(
                "a time must be written out: now, today and other moving times are not allowed"
            )
        text = (node.text or "").encode(errors="surrogatepass")
        if not self._elements:
            return of_written(max(_VALUE_BYTES, len(text)))
        return self._each(byte_count=len(text), memory=len(text))

    def _name(self, node: Branch) -> Growth:
        first, *names = node.names
        if first in self._elements:
            return within(self._elements[first], names)
        if self._elements:
            raise ExpressionError(
                f"within -> only the element can be named, not {first!r}: an expression"
                " for each element may use no other list"
            )
        if first not in self.scope.columns:
            there = ", ".join(self.scope.columns)
            raise ExpressionError(f"there is no column {first!r} here; there are: {there}")
        return within(self.scope.columns[first], names)

    def _part(self, node: Branch) -> Growth:
        whole, which = node.children
        self.growth(which)
        growth = self.growth(whole)
        return within(growth, [which.text]) if which.text else element(growth)

    def _function(self, node: Branch) -> Growth:
        name = ".".join(node.names)
        rule = FUNCTIONS.get(name.lower()) if name.isascii() else None
        if rule is None:
            raise ExpressionError(f"the function {name[:100]!r} cannot be used here")
        name = name.lower()
        if node.is_more_than_a_call:
            raise ExpressionError(f"{name} takes no DISTINCT, FILTER, NULLS or ORDER BY here")
        if not (node.children or name in _WITHOUT) or len(node.children) > rule.arguments_max:
            raise ExpressionError(f"{name} takes 1 to {rule.arguments_max} arguments")
        if self._elements and not rule.is_for_elements:
            raise ExpressionError(f"{name} cannot be used within -> ...")
        for at, kind in rule.written.items():
            if at < len(node.children):
                self._check_written(name, node, at, kind)
        if name in _LAMBDAS:
            return self._each_element(name, node)
        of = [
            child
            for index, child in enumerate(node.children)
            if rule.written.get(index) not in _SAID
        ]
        growth = self._of(of, carries=rule.carries, chooses=name in CHOOSING)
        if not rule.carries or name in CHOOSING:
            return growth
        if name in _COUNTS:
            growth = together(
                [growth, _counted(name, [child.number or 0 for child in node.children])]
            )
        growth = growth if node.children else of_written(_VALUE_BYTES)
        return self._made(name, node, times(growth, _longer(name, node)))

    def _made(self, name: str, node: Branch, growth: Growth) -> Growth:
        return made(name, node, growth, self._elements.values())

    def _check_written(self, name: str, node: Branch, nth: int, kind: Kind) -> None:
        if kind == "pattern":
            self._check_pattern(node, nth)
        else:
            CHECKS[kind](name, node, nth)

    def _check_pattern(self, node: Branch, nth: int) -> None:
        of, pattern = node.children[0], node.children[nth]
        check_pattern(of, pattern, self.budget, in_list=bool(self._elements))

    def _each_element(self, name: str, node: Branch) -> Growth:
        match node.children:
            case (listed, Branch(kind="LambdaFunction", children=(body, *elements))):
                whole = self.growth(listed)
            case _:
                wrong = f"{name} takes a list and a function, such as x -> x.price > 1"
                raise ExpressionError(wrong)
        named = {element.names[0]: whole for element in elements}
        growth = _Judge(self.text, Scope(self.scope.columns, named), self.budget).growth(body)
        if name == "transform":
            return untyped(growth)
        return whole if name == "filter" else NOTHING


# The maximum number of bytes that any single value takes.
_VALUE_BYTES = 16
# Kinds of arguments that only control a function, and do not appear in its result.
_SAID: Container[Kind | None] = {"format", "index", "needle", "number", "pattern", "type"}
# Functions that make new bytes, and the argument that says how many.
_COUNTS = {"lpad": 1, "rpad": 1, "sequence": 0, "space": 0}
# These functions work without arguments.
_WITHOUT = frozenset({"array", "concat"})


def _counted(name: str, numbers: list[int]) -> Growth:
    """The growth from numbers alone: blanks, padding, or a list of numbers."""
    if name != "sequence":
        return of_written(max(0, numbers[_COUNTS[name]]))
    first, last, step = [*numbers, 1][:3]
    count = abs(last - first) // max(1, abs(step)) + 1
    return of_written(count * _VALUE_BYTES, count)


def _longer(name: str, node: Branch) -> float:
    """How many times longer than its arguments the result may be."""
    texts = [child.text or "" for child in node.children]
    match name:
        case "repeat" | "array_repeat":
            return float(node.children[1].number or 0)
        case "replace":
            return max(1.0, len("".join(texts[2:])) / max(1, len(texts[1])))
        case "regexp_replace":
            return max(1.0, float(len(texts[2])))
        case "concat_ws":
            return 1.0 + len(texts[0]) / 2
        case "array_join":
            return 1.0 + sum(map(len, texts[1:])) / 2
        case _:
            return LONGER.get(name, 1.0)
