"""Has Spark call a function with a batch of events at a time, in its Python workers."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipelines.functions.faults import blaming
from pipelines.functions.granted import signature_of
from pipelines.functions.installed import function_of


def with_answers(
    rows: DataFrame,
    name: str,
    given: Mapping[str, Column],
    alive: Callable[[Column], Column],
    *,
    into: str,
) -> DataFrame:
    """Add a function's answers to those events that are still on their way.

    `given` are the columns that the function may read, by name; `into` names a temporary column.
    """
    reads, returns = signature_of(name)
    events = F.struct(*(given[each].alias(each) for each in reads.fieldNames()))
    as_udf: Any = arrow_udf
    rows = rows.withColumn(into, as_udf(_called(name, returns), returns)(alive(events)))
    kept = [each for each in rows.columns if each not in {into, *returns.fieldNames()}]
    made = [F.col(f"`{into}`").getField(each).alias(each) for each in returns.fieldNames()]
    return rows.select(*(F.col(f"`{each}`") for each in kept), *made)


def _called(name: str, returns: StructType) -> Callable[[Any], Any]:
    def called(events: Any) -> Any:
        return answered(name, returns, events)

    # Spark reads the types from these annotations.
    called.__annotations__ = {"events": pa.Array, "return": pa.Array}
    return called


def answered(name: str, returns: StructType, events: pa.StructArray) -> pa.StructArray:
    """In a worker: return the answers to these events, in order."""
    schema = to_arrow_schema(returns)
    is_asked = events.is_valid()
    asked = events.filter(is_asked)
    if not len(asked):
        return pa.nulls(len(events), pa.struct(list(schema)))
    with blaming(name):
        made = function_of(name).work(pa.RecordBatch.from_struct_array(asked))
        columns = [_column(made, field, len(asked)) for field in schema]
    rows = pa.StructArray.from_arrays(columns, fields=list(schema))
    answers: pa.StructArray = in_their_places(rows, is_asked)
    return answers


def in_their_places(answers: Any, is_asked: Any) -> Any:
    """Put each answer in the place of its event; events that were not asked about get null."""
    number = pc.cumulative_sum(is_asked.cast(pa.int64()))
    return answers.take(pc.if_else(is_asked, pc.subtract(number, 1), None))


def _column(made: pa.RecordBatch, field: "pa.Field[Any]", count: int) -> "pa.Array[Any]":
    if not isinstance(made, pa.RecordBatch):
        raise TypeError(f"it returned a {type(made).__name__}, not a RecordBatch")
    if made.num_rows != count:
        raise ValueError(f"it returned {made.num_rows} rows for {count} events")
    if field.name not in made.schema.names:
        raise ValueError(f"it returned no column {field.name!r}")
    return made.column(field.name).cast(field.type)
