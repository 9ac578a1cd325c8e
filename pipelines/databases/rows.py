"""Makes table rows of events: each member of an event becomes the value of its column. Pure.

Numbers and texts go to the database as they were written, so that nothing is rounded on the way;
the database decides whether a value suits its column.
"""

import binascii
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from msgspec import DecodeError, Raw, json

# The value of a column: text that the database reads, or bytes.
Value: TypeAlias = str | bytes | None
Values: TypeAlias = tuple[Value, ...]

_NULL, _TEXT = b"n", b'"'
_NESTED = (b"{", b"[")
_MEMBERS = json.Decoder(dict[str, Raw])
_TEXTS = json.Decoder(str)


class Takes(Enum):
    """The kind of JSON that a column takes; its database judges the text or number itself."""

    TEXT = "text"
    # Numbers, texts, true and false, as they are written.
    PLAIN = "plain"
    JSON = "json"
    ARRAY = "array"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column of the table, as the database's catalogue describes it."""

    name: str
    # The name of its type, for people.
    type: str
    takes: Takes


@dataclass(frozen=True, slots=True)
class EventRows:
    """The rows of one event: they are written all together, or not at all."""

    offset: int
    key: bytes | None
    # Each row as JSON; None deletes the row of the event's key.
    rows: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of the table to write; or to delete, if it has no values."""

    offset: int
    key: Values
    values: Values | None

    @property
    def byte_count(self) -> int:
        return sum(len(value) for value in (*self.key, *(self.values or ())) if value is not None)


class BadRowError(Exception):
    """An event cannot be a row; the text says why, and belongs in its dead letter."""


class RowShape:
    """The columns of a table's rows, and those that are its key."""

    def __init__(self, columns: Sequence[ColumnOf], key: Sequence[str]) -> None:
        self._columns = columns
        self._key = key
        names = [column.name for column in columns]
        self._at = [names.index(name) for name in key]

    def changes(self, event: EventRows) -> list[RowChange]:
        """Return the row changes of one event, in order; BadRowError if it cannot be rows."""
        return [self._change(event, value) for value in event.rows]

    def _change(self, event: EventRows, value: bytes | None) -> RowChange:
        if value is None:
            columns = [self._columns[index] for index in self._at]
            return RowChange(event.offset, _key_values(event.key, columns), None)
        values = values_of(value, self._columns)
        key = tuple([values[index] for index in self._at])
        if None in key:
            name = self._key[key.index(None)]
            raise BadRowError(f"it has no {name!r}, which is part of the row's key")
        return RowChange(event.offset, key, values)


def newest(changes: Sequence[RowChange]) -> list[RowChange]:
    """Keep the last of several changes of each row, in order: it would overwrite the others.

    Rows are compared as texts: `07` and `7` may be the same to the database.
    """
    last: dict[Values | int, RowChange] = {}
    for index, change in enumerate(changes):
        last.pop(change.key or index, None)
        last[change.key or index] = change
    return list(last.values())


def values_of(value: bytes, columns: Sequence[ColumnOf]) -> Values:
    """The members of an event, column by column; a missing one is null."""
    try:
        members = _MEMBERS.decode(value)
        return tuple([_value(members.get(column.name), column) for column in columns])
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRowError("it is not a JSON object of readable text") from error


def _key_values(key: bytes | None, columns: Sequence[ColumnOf]) -> Values:
    """The row's key for an event without a value, from its ordering key.

    For a key of several columns, this is a JSON object, or a list with a value for each column.
    """
    if not columns:
        raise BadRowError("it has no value, and only tables with a `key` can delete rows")
    if not key:
        raise BadRowError("it has neither a value nor an ordering key, so no row can be found")
    try:
        if len(columns) == 1:
            return (key.decode(),)
        parts = json.decode(key, type=list[Raw] | dict[str, Raw])
        named = parts if isinstance(parts, dict) else {}
        if isinstance(parts, list) and len(parts) == len(columns):
            named = {column.name: part for column, part in zip(columns, parts, strict=True)}
        values = tuple(_value(named.get(column.name), column) for column in columns)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        values = (None,)
    if None in values:
        names = ", ".join(column.name for column in columns)
        raise BadRowError(f"its ordering key is not a JSON list or object of {names}")
    return values


def _value(raw: Raw | None, column: ColumnOf) -> Value:
    if raw is None:
        return None
    text = bytes(raw)
    first, takes = text[:1], column.takes
    if first == _NULL:
        return None
    if takes is Takes.TEXT or takes is Takes.PLAIN:
        if first == _TEXT:
            return _TEXTS.decode(text)
        if first in _NESTED and takes is Takes.PLAIN:
            what = "an object" if first == b"{" else "a list"
            raise BadRowError(f"{column.name!r} is {what}, but its column is {column.type}")
    elif takes is Takes.ARRAY:
        return _array(json.decode(text), column)
    elif takes is Takes.BYTES:
        return _bytes(text, column)
    return text.decode()


def _bytes(text: bytes, column: ColumnOf) -> bytes:
    try:
        return b64decode(json.decode(text, type=str), validate=True)
    except (DecodeError, binascii.Error) as error:
        wrong = f"{column.name!r} is not Base64 text, but its column is {column.type}"
        raise BadRowError(wrong) from error


def _array(given: Any, column: ColumnOf) -> str:
    """Write a list as Postgres writes arrays."""
    if not isinstance(given, list):
        raise BadRowError(f"{column.name!r} is not a list, but its column is {column.type}")
    return "{" + ",".join(_element(each, column) for each in given) + "}"


def _element(given: Any, column: ColumnOf) -> str:
    if given is None:
        return "NULL"
    if isinstance(given, list):
        return _array(given, column)
    if isinstance(given, bool | int | float):
        return json.encode(given).decode()
    text = given if isinstance(given, str) else json.encode(given).decode()
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
