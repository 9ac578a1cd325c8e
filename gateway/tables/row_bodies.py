"""Reads the rows of a body: one row, or one on each line. Pure."""

import msgspec

from gateway.intake.events import Event
from gateway.intake.json_depth import is_deeper
from gateway.problems import Problem
from shared.config.table import Table
from shared.event.envelope import ACCEPTED_AT
from shared.event.table_row import ROW_KEY_BYTES_MAX, is_row_key


class _RowLine(msgspec.Struct, forbid_unknown_fields=True):
    """A row and its key; null deletes the row."""

    key: str
    row: msgspec.Raw


_read_line = msgspec.json.Decoder(_RowLine).decode
_read_any = msgspec.json.Decoder(msgspec.Raw).decode
_NULL = b"null"


class RowReader:
    """Reads and checks the rows of one request."""

    def __init__(self, table: Table, *, depth_max: int, rows_max: int, now_ms: int) -> None:
        self._table = table
        self._depth_max = depth_max
        self._rows_max = rows_max
        self._headers = ((ACCEPTED_AT, b"%d" % now_ms),)

    def row(self, key: str, body: bytes) -> list[Event]:
        """Return the one row that a PUT writes."""
        _check_utf8(body)
        try:
            raw = bytes(_read_any(body)).strip()
        except (msgspec.DecodeError, RecursionError) as error:
            raise Problem("invalid_json", f"{error}.") from error
        return [self._written(key, raw, "")]

    def deletion(self, key: str) -> list[Event]:
        self._check_key(key, "")
        return [self._event(key, b"")]

    def lines(self, body: bytes) -> list[Event]:
        """Return a row for each line; refuse all of them if one is invalid."""
        _check_utf8(body)
        events: list[Event] = []
        for index, line in enumerate(body.split(b"\n")):
            if not line.strip():
                continue
            if len(events) >= self._rows_max:
                detail = f"A request may have at most {self._rows_max} rows; send several requests."
                raise Problem("too_many_events", detail)
            try:
                read = _read_line(line)
            except (msgspec.DecodeError, RecursionError) as error:
                detail = f'Line {index + 1} is not {{"key": "...", "row": {{...}}}}: {error}.'
                raise Problem("bad_row", detail, pointer=f"/{index}") from error
            events.append(self._written(read.key, bytes(read.row).strip(), f"/{index}"))
        if not events:
            raise Problem("bad_row", "The body contains no rows.")
        return events

    def _written(self, key: str, raw: bytes, pointer: str) -> Event:
        self._check_key(key, pointer)
        if raw == _NULL and pointer:
            return self._event(key, b"")
        wrong = ""
        if not raw.startswith(b"{"):
            wrong = "it must be a JSON object"
        elif len(raw) > self._table.row_bytes_max:
            wrong = f"it has {len(raw)} bytes, but a row of this table may have at most"
            wrong += f" {self._table.row_bytes_max} (row_bytes_max)"
        elif is_deeper(raw, self._depth_max):
            wrong = f"it is nested deeper than {self._depth_max} levels"
        if wrong:
            raise Problem("bad_row", f"The row {key[:100]!r}: {wrong}.", pointer=pointer)
        return self._event(key, raw)

    def _event(self, key: str, value: bytes) -> Event:
        return Event.of(id=key, key=key.encode(), value=value, headers=self._headers)

    @staticmethod
    def _check_key(key: str, pointer: str) -> None:
        if not is_row_key(key):
            detail = f"A key must be printable text of 1 to {ROW_KEY_BYTES_MAX} bytes in UTF-8."
            raise Problem("bad_row", detail, pointer=f"{pointer}/key" if pointer else None)


def _check_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem("invalid_utf8", f"{error}.") from error
