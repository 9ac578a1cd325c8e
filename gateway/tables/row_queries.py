"""Reads the path and the query of a GET of rows. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime

from gateway.problems import Problem
from gateway.request_options import read_query
from shared.event.table_row import is_window_of, windows_between
from shared.runtime.tables.copy import PAGE_ROWS_MAX, Row

_LIMIT = 100
_OF_ONE = {"from", "to", "after", "limit", "watch", "since", "max_age", "at_least"}
_OF_MANY = _OF_ONE | {"prefix"}
_NUMBER = re.compile(r"[0-9]{1,18}")
_SECONDS = re.compile(r"[0-9]{1,9}([.][0-9]{1,3})?")
_WINDOWS_MS = (0, 253_402_300_799_999)
# The last code point: a prefix followed by it ends the range of keys with that prefix.
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class RowQuery:
    """The rows to find, and how fresh they must be."""

    # The only wanted row, if one is named.
    key: str | None
    # Otherwise, all rows from `begin` on, and before `end` unless it is None.
    begin: str
    end: str | None
    # The group whose windows are wanted.
    group: str | None
    limit: int
    watches: bool
    since: int | None
    max_age_ms: float | None
    at_least: int | None

    def wants(self, row: Row) -> bool:
        """Return whether a row is wanted, be it from a page or from news."""
        if self.key is not None:
            return row.key == self.key
        return (
            row.key >= self.begin
            and (self.end is None or row.key < self.end)
            and (self.group is None or is_window_of(row.key, self.group))
        )


def read_row_query(key: str | None, query_string: bytes, last_event_id: str | None) -> RowQuery:
    """Return the query; raise Problem if it is invalid."""
    asked = {
        name: values[-1]
        for name, values in read_query(query_string, _OF_MANY if key is None else _OF_ONE).items()
    }
    begin, end, group = _range(key, asked)
    if after := asked.get("after"):
        # The smallest key after `after`.
        begin = max(begin, after + "\0")
    is_alone = key is not None and group is None
    since = last_event_id if last_event_id is not None else asked.get("since")
    return RowQuery(
        key=key if is_alone else None,
        begin=begin,
        end=end,
        group=group,
        limit=_number("limit", asked.get("limit", str(_LIMIT)), most=PAGE_ROWS_MAX),
        watches=asked.get("watch", "0") not in {"0", "false"},
        since=None if since is None else _number("since", since),
        max_age_ms=_age_ms(asked.get("max_age")),
        at_least=None if "at_least" not in asked else _number("at_least", asked["at_least"]),
    )


def _range(key: str | None, asked: dict[str, str]) -> tuple[str, str | None, str | None]:
    """Return the range of keys, [first, end), and the group of windows."""
    if key is not None and not asked.keys() & {"from", "to"}:
        return "", None, None
    if key is not None:
        times = (
            _time_ms(name, asked[name]) if name in asked else otherwise
            for name, otherwise in zip(("from", "to"), _WINDOWS_MS, strict=True)
        )
        return (*windows_between(key, *times), key)
    prefix = asked.get("prefix", "")
    begin = max(prefix, asked.get("from", ""))
    ends = [asked["to"]] if "to" in asked else []
    ends += [prefix + _LAST] if prefix else []
    return begin, min(ends, default=None), None


def _number(name: str, text: str, *, most: int = 10**18) -> int:
    if not _NUMBER.fullmatch(text) or not int(name == "limit") <= int(text) <= most:
        detail = f"{name} is {text[:50]!r}: use a number from {int(name == 'limit')} to {most}."
        raise Problem("bad_query", detail)
    return int(text)


def _age_ms(text: str | None) -> float | None:
    if text is None:
        return None
    if not _SECONDS.fullmatch(text):
        raise Problem("bad_query", f"max_age is {text[:50]!r}: use seconds, such as 5 or 0.5.")
    return float(text) * 1000


def _time_ms(name: str, text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError(text)  # noqa: TRY301 - the handler below reports it
        at_ms = round(at.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        detail = f"{name} is {text[:50]!r}: use a time with a zone like 2026-11-22T10:00:00Z."
        raise Problem("bad_query", detail) from error
    first, last = _WINDOWS_MS
    return min(max(at_ms, first), last)
