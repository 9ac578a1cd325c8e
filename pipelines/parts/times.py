"""Writes times with all their digits: Spark's JSON keeps only three digits of a second."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_TO_SECONDS = "yyyy-MM-dd'T'HH:mm:ss"


def with_all_digits(value: Column, kind: DataType) -> Column:
    """Prepare a value for writing: turn its times into texts, with microseconds if needed."""
    if not _has_times(kind):
        return value
    match kind:
        case ArrayType():
            return F.transform(value, lambda element: with_all_digits(element, kind.elementType))
        case MapType():
            return F.map_from_entries(
                F.transform(
                    F.map_entries(value),
                    lambda entry: F.struct(
                        entry["key"], with_all_digits(entry["value"], kind.valueType)
                    ),
                )
            )
        case StructType():
            members = [
                with_all_digits(value.getField(field.name), field.dataType).alias(field.name)
                for field in kind
            ]
            return F.when(value.isNotNull(), F.struct(*members))
        case _:
            return _written(value, zone="" if isinstance(kind, TimestampNTZType) else "XXX")


def _has_times(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_times(kind.elementType)
        case MapType():
            return _has_times(kind.valueType)
        case StructType():
            return any(_has_times(field.dataType) for field in kind)
        case _:
            return isinstance(kind, TimestampType | TimestampNTZType)


def _written(value: Column, *, zone: str) -> Column:
    at = value.cast("timestamp")
    digits = F.when(F.unix_micros(at) % 1_000 == 0, F.date_format(at, f"{_TO_SECONDS}.SSS{zone}"))
    return digits.otherwise(F.date_format(at, f"{_TO_SECONDS}.SSSSSS{zone}"))
