"""Reads a pipeline's schema: the members of an event, and their types."""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql.types import DataType, StructType

from shared.config.model import ConfigError
from shared.config.pipeline import Enrich, Explode, Pipeline, Select
from shared.config.steps.expression import FACTS

FIELDS_MAX = 500
_DEPTH_MAX = 16
_TOO_DEEP = f"it is nested deeper than {_DEPTH_MAX} levels"
# With more nested brackets, Spark's parser or pyspark runs out of stack.
BRACKETS_MAX = 64
_OF_TYPES = "<({[", ">)}]"
# The types that can be written as JSON; the name of a decimal includes its digits.
_LEAVES = frozenset(
    {
        *("string", "boolean", "byte", "short", "integer", "long", "float", "double", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)


def members_of(schema: str) -> StructType:
    """Return the members that a schema names; raise ConfigError if it is not a schema."""
    if depth_of(schema, *_OF_TYPES) > BRACKETS_MAX:
        raise ConfigError("schema", _TOO_DEEP)
    try:
        members = StructType.fromDDL(schema)
    except ParseException as error:
        raise ConfigError("schema", f"it cannot be read: {first_line(error)}") from None
    if not isinstance(members, StructType):
        raise ConfigError("schema", "write each member as a name and a type: id STRING")
    listed = json.loads(members.json())
    wrong = next(_wrong(listed, "", 0, is_written=True), None)
    if wrong is None and (count := len(list(_fields(listed)))) > FIELDS_MAX:
        wrong = f"it has {count} members; at most {FIELDS_MAX} are allowed"
    if wrong is not None:
        raise ConfigError("schema", wrong)
    return members


def columns_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The members that an event has after all steps, in order: the columns of a database."""
    columns = _names(pipeline.schema)
    for step in pipeline.steps:
        if isinstance(step, Select):
            columns = tuple(step.select)
        elif isinstance(step, Explode):
            (name,) = step.explode
            columns = (*(each for each in columns if each != name), name)
        elif isinstance(step, Enrich):
            name = step.enrich.into
            columns = (*(each for each in columns if each != name), name)
    return columns


@lru_cache(1_000)
def _names(schema: str) -> tuple[str, ...]:
    return tuple(members_of(schema).fieldNames()) if schema else ()


def check_type(text: str) -> None:
    """Raise ConfigError unless the text is a type that a member may have."""
    if depth_of(text, *_OF_TYPES) > BRACKETS_MAX:
        raise ConfigError("", _TOO_DEEP)
    try:
        kind = DataType.fromDDL(text)
    except ParseException as error:
        raise ConfigError("", f"it is not a type: {first_line(error)}") from None
    wrong = next(_wrong(json.loads(kind.json()), "", 1, is_written=True), None)
    if wrong is not None:
        raise ConfigError("", wrong)


def wrong_type(kind: DataType) -> str | None:
    """Say why a value of this type cannot be written as a member of an event."""
    return next(_wrong(json.loads(kind.json()), "", 1, is_written=False), None)


def is_type(name: str) -> bool:
    """Whether this is Spark's name of a scalar type that a member may have."""
    return name in _LEAVES or name.startswith("decimal(")


def first_line(error: BaseException) -> str:
    """The first line of Spark's message, without its error class and SQLSTATE."""
    line = str(error).strip().split("\n")[0]
    return line.split("] ", 1)[-1].split(" SQLSTATE:")[0]


def depth_of(text: str, opening: str, closing: str) -> int:
    """The greatest depth of nested brackets."""
    return max(accumulate((char in opening) - (char in closing) for char in text), default=0)


def _fields(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for field in of["fields"]:
        yield field
        for inner in _inner(field["type"]):
            yield from _fields(inner)


def _inner(kind: Any) -> Iterator[dict[str, Any]]:
    if isinstance(kind, dict) and kind["type"] == "struct":
        yield kind
    elif isinstance(kind, dict):
        yield from _inner(kind.get("elementType"))
        yield from _inner(kind.get("valueType"))


def _wrong(kind: Any, at: str, depth: int, *, is_written: bool) -> Iterator[str]:
    """Yield what is wrong with a type; `is_written`: people wrote it, not Spark."""
    named = f"{at}: " if at else ""
    if depth > _DEPTH_MAX:
        yield f"{named}{_TOO_DEEP}"
    elif isinstance(kind, str):
        if not is_type(kind):
            yield f"{named}a member cannot have the type {kind}"
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            named_at = f"{at}.{field['name']}".lstrip(".")
            if is_written:
                yield from _wrong_words(field, named_at, depth)
            yield from _wrong(field["type"], named_at, depth + 1, is_written=is_written)
        names = [field["name"] for field in kind["fields"]]
        if len(names) != len(set(names)):
            yield f"{named}two members have the same name"
    elif kind["type"] == "array":
        yield from _wrong(kind["elementType"], at, depth + 1, is_written=is_written)
    elif kind["type"] == "map" and kind["keyType"] == "string":
        yield from _wrong(kind["valueType"], at, depth + 1, is_written=is_written)
    else:
        yield f"{named}a member cannot have the type {kind['type']}; the keys of a map are STRING"


def _wrong_words(field: dict[str, Any], at: str, depth: int) -> Iterator[str]:
    if depth == 0 and (field["name"] == FACTS or field["name"].startswith(f"{FACTS}:")):
        yield f"{at}: {FACTS} is the column with Hifi's own facts about an event"
    if not field["nullable"]:
        yield f'{at}: NOT NULL is not enforced; filter in a step, where: "{at} IS NOT NULL"'
    if set(field["metadata"]) - {"comment"}:
        # Spark would compute a default for each event that has no such member.
        yield f"{at}: a member has only a name and a type: no default, collation or formula"
