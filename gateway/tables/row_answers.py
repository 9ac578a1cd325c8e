"""Writes rows, and their freshness, for answers. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from shared.runtime.tables.copy import Extent, Row


@dataclass(frozen=True, slots=True)
class AsOf:
    """The end of a copy, and how long ago the copy was certain to be complete."""

    offset: int
    time_ms: int
    age_ms: int

    @classmethod
    def of(cls, extent: Extent, *, heard_ms: int, now_ms: int) -> "AsOf":
        return cls(extent.offset, extent.time_ms, max(0, now_ms - heard_ms))

    def to_json(self) -> bytes:
        template = b'{"offset":%d,"time_ms":%d,"age_ms":%d}'
        return template % (self.offset, self.time_ms, self.age_ms)

    def members(self) -> dict[str, int]:
        return {"offset": self.offset, "time_ms": self.time_ms, "age_ms": self.age_ms}


def one_row(row: Row, as_of: AsOf) -> bytes:
    return b'%b,"as_of":%b}' % (_row(row)[:-1], as_of.to_json())


def some_rows(rows: Iterable[Row], following: str | None, as_of: AsOf) -> bytes:
    listed = b",".join(map(_row, rows))
    template = b'{"rows":[%b],"next":%b,"as_of":%b}'
    return template % (listed, msgspec.json.encode(following), as_of.to_json())


def told_row(row: Row) -> bytes:
    """Return a row as an event for watchers."""
    # JSON may have line breaks between its parts, which would end the data line.
    data = _row(row).replace(b"\n", b" ").replace(b"\r", b" ")
    kind = b"row" if row.value else b"deleted"
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (row.offset + 1, kind, data)


def told(kind: bytes, at: int, as_of: AsOf) -> bytes:
    """Return an event about the watch itself."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (at, kind, as_of.to_json())


def _row(row: Row) -> bytes:
    key = msgspec.json.encode(row.key)
    value = row.value or b"null"
    return b'{"key":%b,"row":%b,"offset":%d,"time_ms":%d}' % (key, value, row.offset, row.time_ms)
