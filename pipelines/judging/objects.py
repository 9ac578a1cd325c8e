"""Estimates the memory of the objects that functions and operators make of their arguments."""

from collections.abc import Callable, Collection, Mapping

from pyspark.sql.types import ArrayType, DataType, StringType, StructType

from pipelines.judging.growth import (
    Growth,
    as_text,
    element,
    limited,
    of_each,
    of_member,
    of_written,
    read_as,
    retyped,
    shown,
    together,
    untyped,
)
from pipelines.judging.trees import Branch
from pipelines.judging.written import chars_max
from pipelines.parts.heap import TEXT, TypeOf, of_struct, type_of
from shared.config.steps.expression import FACTS

# The growth of results, by function; any function that is not listed makes a text.
_MADE: Mapping[str, Callable[[Growth], Growth]] = {
    **dict.fromkeys(
        ("array_compact", "array_remove", "reverse", "slice", "sort_array"), lambda listed: listed
    ),
    **dict.fromkeys(("array_max", "array_min", "element_at", "get"), element),
    "string": shown,
    **dict.fromkeys(("array_append", "array_prepend", "array_repeat", "concat", "Concat"), untyped),
    **dict.fromkeys(("flatten", "map_keys", "map_values", "sequence"), untyped),
    **dict.fromkeys(("array", "struct", "named_struct", "CreateNamedStruct"), untyped),
}
# Functions that hold their arguments, and how many arguments make one member.
_HOLDING = {"array": 1, "struct": 1, "named_struct": 2, "CreateNamedStruct": 2}
_TEXTS = ArrayType(StringType())


def of_event(row: StructType, members: StructType) -> dict[str, Growth]:
    """The names in a row: the event's members, and the facts that Hifi adds."""
    return {
        name: of_member(type_of(row[name].dataType, members), name)
        for name in (*members.fieldNames(), FACTS)
    }


def made(name: str, node: Branch, growth: Growth, elements: Collection[Growth]) -> Growth:
    """The growth of a call's result, given that of its arguments, for each element around it."""
    name = "string" if (node.kind, node.type) == ("Cast", "string") else name
    growth = _value(name, node, growth, is_for_each=bool(elements))
    if elements:
        is_held = name in _HOLDING
        memory = of_struct(len(node.children) // _HOLDING[name]) if is_held else TEXT
        return together([growth, *(of_each(listed, memory=memory) for listed in elements)])
    if (chars := chars_max(node)) is not None:
        return limited(growth, chars)
    if name in {"array", "array_repeat"}:
        count = len(node.children) if name == "array" else node.children[1].number or 0
        return together([growth, of_written(0, count)])
    return growth


def _value(name: str, node: Branch, growth: Growth, *, is_for_each: bool) -> Growth:
    if name in _MADE:
        return _MADE[name](growth)
    match name:
        case "arrays_zip" | "map_entries":
            memory = of_struct(max(2, len(node.children)))
            return untyped(together([growth, of_each(growth, memory=memory)]))
        case "split" | "json_object_keys":
            most = node.children[2].number if len(node.children) == _WITH_LIMIT else None
            if most is not None and most > 0 and not is_for_each:
                made = retyped(as_text(growth), TypeOf(_TEXTS, is_read=False))
                return together([made, of_written(0, most)])
            return read_as(growth, _type(_TEXTS, is_for_each=is_for_each), TEXT)
        case "from_json":
            kind = DataType.fromDDL(node.children[1].text or "")
            return read_as(growth, _type(kind, is_for_each=is_for_each))
        case _:
            return as_text(growth)


def _type(kind: DataType, *, is_for_each: bool) -> TypeOf:
    return TypeOf(ArrayType(kind) if is_for_each else kind)


# A split with a limit has three arguments: a text, a pattern, and the maximum number of parts.
_WITH_LIMIT = 3
