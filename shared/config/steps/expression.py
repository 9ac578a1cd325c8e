"""The leaves of a pipeline's document: expressions, and columns named by people."""

import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from shared.config.values import check

# A longer expression is a program, which Spark's parser can read and people cannot.
EXPRESSION_BYTES_MAX = 4096
COLUMNS_MAX = 200
# The name of the column with facts about an event beyond its members.
FACTS = "hifi"

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


NO_COLUMN = (
    "{!r} cannot name a column; use 1 to 64 of a-z, A-Z, 0-9 and _, not starting with a digit,"
    f" and not {FACTS!r}"
)


def is_column(name: str) -> bool:
    return _COLUMN.fullmatch(name) is not None and name != FACTS


def _check_columns(columns: Any) -> Any:
    for name in columns if isinstance(columns, dict) else ():
        if not _COLUMN.fullmatch(name):
            raise ValueError(NO_COLUMN.format(name))
        if name == FACTS:
            raise ValueError(f"{FACTS!r} is the column with Hifi's facts about an event")
    return columns


Expression: TypeAlias = Annotated[
    str,
    check(str.strip, "an expression is missing"),
    check(
        lambda text: len(text.encode(errors="replace")) <= EXPRESSION_BYTES_MAX,
        f"an expression has at most {EXPRESSION_BYTES_MAX} bytes",
    ),
    Field(json_schema_extra={"maxLength": EXPRESSION_BYTES_MAX}),
]
Columns: TypeAlias = Annotated[
    dict[str, Expression],
    Field(min_length=1, max_length=COLUMNS_MAX),
    # Checks the object, not its keys, so that an error's pointer shows the object.
    BeforeValidator(_check_columns),
]
