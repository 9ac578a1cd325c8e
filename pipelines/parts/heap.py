"""Estimates values' size in memory, and skips reading events that would take too much of it.

Objects take more memory than their JSON: `{}` in a list of structs with 490 members has two bytes,
and takes six thousand in memory.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructType,
)

from pipelines.parts.decimals import bare, takes_hours
from shared.event.envelope import EVENT_BYTES_MAX

# The maximum number of bytes that one byte of an event may become, as estimated from its brackets.
PER_BYTE_MAX = 32.0
# The memory of an object, or of a row that holds it, and its overhead: measured with Java 17.
TEXT, NUMBER = 72.0, 28.0
_LONG_DECIMAL, _LIST, _MAP = 120.0, 64.0, 150.0
_LONG = 18
# The shortest JSON with its comma: `1,`, `"",` or `{},`, and with a name before it `"":1,`.
_LEAST_NUMBER, _LEAST = 2, 3


def of_struct(members: int) -> float:
    """The memory of one struct, whatever its members hold."""
    return 52.0 + 12 * members


class Density(NamedTuple):
    """The maximum memory and elements of values of a type, for each byte of their JSON."""

    memory: float
    # The number of elements in all of their lists.
    elements: float


@dataclass(frozen=True)
class TypeOf:
    """The type of a value, and how densely its JSON can be packed."""

    kind: DataType
    # The maximum number of opening brackets `{` for each byte.
    brackets: float = 1 / _LEAST
    # Whether it is read from JSON; an expression's result may have an element for each byte.
    is_read: bool = True

    @cached_property
    def density(self) -> Density:
        match self.kind:
            case ArrayType():
                return self._of_elements(0, 0.0)
            case MapType():
                return self._of_elements(_LEAST, TEXT)
            case StructType():
                each = [self._with(field.dataType).density for field in self.kind]
                return Density(
                    max((density.memory for density in each), default=1.0),
                    max((density.elements for density in each), default=0.0),
                )
            case _:
                return Density(1.0, 0.0)

    def _of_elements(self, name_least: int, name_memory: float) -> Density:
        within = self.element
        rate = 1 / (name_least + _least(within.kind)) if self.is_read else 1.0
        if self.is_read and isinstance(within.kind, MapType | StructType):
            rate = min(rate, self.brackets)
        memory = 1 + rate * (name_memory + _own(within.kind))
        return Density(max(memory, within.density.memory), max(rate, within.density.elements))

    @property
    def element(self) -> "TypeOf":
        """The type of its elements; the type itself if it has none."""
        match self.kind:
            case ArrayType():
                return self._with(self.kind.elementType)
            case MapType():
                return self._with(self.kind.valueType)
            case _:
                return self

    def member(self, name: str) -> "TypeOf":
        """The type of a member; for a list, that of a list of these members."""
        match self.kind:
            case StructType() if name in self.kind.fieldNames():
                return self._with(self.kind[name].dataType)
            case ArrayType():
                return self._with(ArrayType(self.element.member(name).kind))
            case _:
                return self.element

    def _with(self, kind: DataType) -> "TypeOf":
        return TypeOf(kind, self.brackets, self.is_read)


def type_of(kind: DataType, members: StructType) -> TypeOf:
    """The type of a value in an event that was read with these members."""
    return TypeOf(kind, min(1 / _LEAST, brackets_max(members) / EVENT_BYTES_MAX))


def brackets_max(members: StructType) -> float:
    """How many opening brackets an event may have."""
    return PER_BYTE_MAX * EVENT_BYTES_MAX / max(1.0, _largest(members, is_listed=False))


def fit(text: Column, members: StructType) -> Column:
    """The text, or null if reading these members from it would take too much memory, or hours."""
    return F.when(~_takes_too_much(text, members) & ~takes_hours(text, members), text)


def _takes_too_much(text: Column, members: StructType) -> Column:
    most = int(brackets_max(members))
    if most >= EVENT_BYTES_MAX / _LEAST:
        return F.lit(False)
    # Few events are that long; only in those are brackets counted.
    is_long = F.octet_length(text) > most * _LEAST
    is_too_much = is_long & (_count(text) > most) & (_count(bare(text)) > most)
    return F.coalesce(is_too_much, F.lit(False))


def _count(text: Column) -> Column:
    return F.octet_length(text) - F.octet_length(F.replace(text, F.lit("{"), F.lit("")))


def _largest(kind: DataType, *, is_listed: bool) -> float:
    """The memory of the largest object that may occur any number of times."""
    own = _own(kind) if is_listed and isinstance(kind, MapType | StructType) else 0.0
    match kind:
        case ArrayType():
            return _largest(kind.elementType, is_listed=True)
        case MapType():
            return max(own, _largest(kind.valueType, is_listed=True))
        case StructType():
            return max([own, *(_largest(field.dataType, is_listed=is_listed) for field in kind)])
        case _:
            return own


def _own(kind: DataType) -> float:
    """The memory of a value besides its bytes and its members."""
    match kind:
        case StructType():
            return of_struct(len(kind))
        case ArrayType():
            return _LIST
        case MapType():
            return _MAP
        case StringType() | BinaryType():
            return TEXT
        case DecimalType() if kind.precision > _LONG:
            return _LONG_DECIMAL
        case _:
            return NUMBER


def _least(kind: DataType) -> int:
    is_short = not isinstance(kind, ArrayType | MapType | StructType | StringType | BinaryType)
    return _LEAST_NUMBER if is_short else _LEAST
