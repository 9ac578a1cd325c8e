"""Refuses numbers and texts of an event that would take hours to become decimals.

`1e100000000` has eleven characters, and Java would write out its hundred million digits, for hours.
"""

from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

# Allows more digits than a decimal has, and exponents that shift all of them out of its range.
NUMBER = (
    r"^[\x00-\x20]*[+-]?([0-9]{1,100}([.][0-9]{0,100})?|[.][0-9]{1,100})([eE][+-]?[0-9]{1,3})?"
    r"[\x00-\x20]*$"
)


_LONG_EXPONENT = "[eE][+-]?[0-9]{4,}"
# A long number may be anywhere in the text, written plainly or escaped.
_MAY_BE_LONG = rf"{_LONG_EXPONENT}|[0-9.]{{101,}}|\\u"


def as_texts(kind: DataType) -> Any:
    """The same type, with texts in place of its decimals."""
    match kind:
        case DecimalType():
            return StringType()
        case ArrayType():
            return ArrayType(as_texts(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, as_texts(kind.valueType), kind.valueContainsNull)
        case StructType():
            fields = [
                StructField(field.name, as_texts(field.dataType), field.nullable) for field in kind
            ]
            return StructType(fields)
        case _:
            return kind


def has_decimals(kind: DataType) -> bool:
    return bool(as_texts(kind) != kind)


def takes_hours(text: Column, members: StructType) -> Column:
    """Whether a decimal of these members, in an event or a row, would take hours to read."""
    if not has_decimals(members):
        return F.lit(False)
    # Few texts may have such a number; only those are checked further.
    is_odd = text.rlike(_MAY_BE_LONG)
    # Read as a text, a number becomes a DOUBLE in Spark.
    is_long = bare(text).rlike(_LONG_EXPONENT) | _is_no_number(
        F.from_json(text, as_texts(members)), members
    )
    return F.coalesce(F.when(is_odd, is_long), F.lit(False))


def bare(text: Column) -> Column:
    """JSON with its texts and names removed."""
    return F.regexp_replace(F.regexp_replace(text, r"\\.", "__"), '"[^"]*"', "")


def _is_no_number(read: Column, kind: DataType) -> Column:
    """Whether the value of a decimal member is not a number, or is too long for one."""
    match kind:
        case DecimalType():
            wrong = ~read.rlike(NUMBER)
        case ArrayType() if has_decimals(kind):
            wrong = F.exists(read, lambda value: _is_no_number(value, kind.elementType))
        case MapType() if has_decimals(kind):
            wrong = F.exists(F.map_values(read), lambda value: _is_no_number(value, kind.valueType))
        case StructType() if has_decimals(kind):
            members = [_is_no_number(read.getField(field.name), field.dataType) for field in kind]
            wrong = reduce(Column.__or__, members)
        case _:
            return F.lit(False)
    return F.coalesce(wrong, F.lit(False))
