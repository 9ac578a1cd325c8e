"""Lets no number or text become a decimal for which that takes hours, in events and expressions.

`1e100000000` has eleven characters, and Java would write out its hundred million digits, for hours.
"""

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql import Column, SparkSession
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

# More digits than a decimal has, and an exponent that moves any of them out of it.
_NUMBER = (
    r"^[\x00-\x20]*[+-]?([0-9]{1,100}([.][0-9]{0,100})?|[.][0-9]{1,100})([eE][+-]?[0-9]{1,3})?"
    r"[\x00-\x20]*$"
)


_LONG_EXPONENT = "[eE][+-]?[0-9]{4,}"
# Somewhere in it, written plainly or not.
_MAY_BE_LONG = rf"{_LONG_EXPONENT}|[0-9.]{{101,}}|\\u"


def as_texts(kind: DataType) -> Any:
    """The same type, with texts for its decimals."""
    match kind:
        case DecimalType():
            return StringType()
        case ArrayType():
            return ArrayType(as_texts(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, as_texts(kind.valueType), kind.valueContainsNull)
        case StructType():
            fields = [StructField(it.name, as_texts(it.dataType), it.nullable) for it in kind]
            return StructType(fields)
        case _:
            return kind


def has_decimals(kind: DataType) -> bool:
    return bool(as_texts(kind) != kind)


def takes_hours(text: Column, members: StructType) -> Column:
    """Whether a decimal of these members would, in an event or a row."""
    if not has_decimals(members):
        return F.lit(False)
    # Nearly none has anything of the kind, and is looked at no more.
    is_odd = text.rlike(_MAY_BE_LONG)
    # Spark makes a DOUBLE of a number that is to be a text.
    is_long = bare(text).rlike(_LONG_EXPONENT) | _is_no_number(
        F.from_json(text, as_texts(members)), members
    )
    return F.coalesce(F.when(is_odd, is_long), F.lit(False))


def bare(text: Column) -> Column:
    """JSON without its texts and names."""
    return F.regexp_replace(F.regexp_replace(text, r"\\.", "__"), '"[^"]*"', "")


def _is_no_number(read: Column, kind: DataType) -> Column:
    """Whether something stands where a decimal is to be, and is none, or too long to be one."""
    match kind:
        case DecimalType():
            found = ~read.rlike(_NUMBER)
        case ArrayType() if has_decimals(kind):
            found = F.exists(read, lambda it: _is_no_number(it, kind.elementType))
        case MapType() if has_decimals(kind):
            found = F.exists(F.map_values(read), lambda it: _is_no_number(it, kind.valueType))
        case StructType() if has_decimals(kind):
            members = [_is_no_number(read.getField(it.name), it.dataType) for it in kind]
            found = reduce(Column.__or__, members)
        case _:
            return F.lit(False)
    return F.coalesce(found, F.lit(False))


# How SQL calls the type, in any case.
_NAMED = re.compile(r"dec|numeric", re.IGNORECASE)
_IT = "hifi:it"
_GUARD = f"CASE WHEN typeof(`{_IT}`) != 'string' OR `{_IT}` RLIKE r'{_NUMBER}' THEN `{_IT}` END"


def expression(text: str) -> Column:
    """What people have written, in which no text that is too long becomes a decimal."""
    if not _NAMED.search(text):
        return F.expr(text)
    spark: Any = SparkSession.active()
    parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - nothing else reaches it
    guard = parser.parseExpression(_GUARD)

    def guarded(node: Any) -> Any:
        node = _rebuilt(spark, node, guarded)
        if not _makes_a_decimal(node):
            return node
        child = node.children().apply(0)
        return _rebuilt(spark, node, lambda _: put_in(guard, child))

    def put_in(node: Any, child: Any) -> Any:
        is_place = _kind(node) == "UnresolvedAttribute"
        return child if is_place else _rebuilt(spark, node, lambda each: put_in(each, child))

    made = guarded(parser.parseExpression(text))
    return Column(spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(made))  # noqa: SLF001 - as above


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _makes_a_decimal(node: Any) -> bool:
    if _kind(node) == "UnresolvedFunction":
        return str(node.nameParts().mkString(".")).lower() == "decimal"
    return _kind(node) == "Cast" and _kind(node.dataType()) == "DecimalType"


def _rebuilt(spark: Any, node: Any, change: Callable[[Any], Any]) -> Any:
    """The same, with its children changed."""
    children, changed = node.children(), spark._jvm.java.util.ArrayList()  # noqa: SLF001 - as above
    for nth in range(children.size()):
        changed.add(change(children.apply(nth)))
    if not changed.size():
        return node
    convert = spark._jvm.scala.jdk.javaapi.CollectionConverters  # noqa: SLF001 - as above
    return node.withNewChildren(convert.asScala(changed).toSeq())
