"""Checks CloudEvents (version 1.0), and turns one in binary mode into a JSON object.

An event in binary mode is stored as the equivalent structured event: JSON data byte for byte, other
data as base64. So every stored event is JSON, whichever mode its sender used.
"""

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import unquote

import msgspec

from gateway.problems import Problem

_PREFIX = b"ce-"
# Each attribute is a header in HTTP; the specification asks for short names of a-z and 0-9.
_NAME_LENGTH_MAX = 64
_ESCAPED = re.compile(r"\\(.)")
# Checks JSON data, before it becomes part of the event.
_RAW = msgspec.json.Decoder(msgspec.Raw)


_Text = Annotated[str, msgspec.Meta(min_length=1)]
_JSON = "application/json"
_WORD = "[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = re.compile(rf"{_WORD}/{_WORD}[ \t]*(;.*)?")


class _Attributes(msgspec.Struct):
    """The members of an event in version 1.0.2; an optional member that is null counts as unset."""

    specversion: Literal["1.0"]
    id: _Text
    source: _Text
    type: _Text
    subject: _Text | None = None
    dataschema: _Text | None = None
    datacontenttype: str | None = _JSON
    time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    data_base64: str | None = None


_RULES = {
    **dict.fromkeys(("id", "source", "type"), "is required, and must be a non-empty text"),
    "specversion": "is required, and must be 1.0",
    **dict.fromkeys(("subject", "dataschema"), "must be a non-empty text, or absent"),
    "datacontenttype": "must be a media type, such as application/json, or absent",
    "time": "must be a time as in RFC 3339, such as 2026-11-21T10:00:00Z, or absent",
    "data_base64": "must be a text in base64, or absent",
}
# Most events have only these members, and checking each name takes a microsecond.
_KNOWN = {*_RULES, "data", "partitionkey", "traceparent"} - {"data_base64"}
_DECODER = msgspec.json.Decoder(_Attributes)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAME = re.compile("[a-z0-9]+")
_LEAP_SECOND, _SECOND = b":60", b":59"


def fault(value: bytes) -> tuple[str, str] | None:
    """Return why an event is not a CloudEvent, and the name of the invalid member."""
    try:
        attributes = _DECODER.decode(value)
    except msgspec.DecodeError as error:
        if _LEAP_SECOND in value:
            # RFC 3339 allows a leap second, but the decoder does not.
            return fault(value.replace(_LEAP_SECOND, _SECOND))
        text = str(error)
        return _broken(next(n for n in _RULES if f"`{n}`" in text or f"$.{n}`" in text))
    content_type = attributes.datacontenttype
    if content_type not in {_JSON, None} and not _MEDIA_TYPE.fullmatch(content_type):
        return _broken("datacontenttype")
    members = _MEMBERS.decode(value)
    return None if members.keys() <= _KNOWN else _odd(members)


def _odd(members: dict[str, msgspec.Raw]) -> tuple[str, str] | None:
    """Return the fault of unusual members, if any."""
    if members.pop("data_base64", None) is not None and "data" in members:
        return "a CloudEvent may have data or data_base64, not both", "data_base64"
    for name in members:
        if not _NAME.fullmatch(name):
            return "names of a CloudEvent's attributes may have only a to z and 0 to 9", name
    return None


def _broken(name: str) -> tuple[str, str]:
    return f"in a CloudEvent, {name} {_RULES[name]}", name


def from_headers(headers: Mapping[bytes, str], body: bytes) -> bytes:
    """Return the structured event of a request in binary mode."""
    attributes: dict[str, str] = {}
    for header, value in headers.items():
        if not header.startswith(_PREFIX):
            continue
        name = header.removeprefix(_PREFIX).decode("latin-1")
        if not name.isalnum() or not name.isascii() or len(name) > _NAME_LENGTH_MAX:
            raise Problem("bad_header", f"ce-{name[:100]} is not a valid attribute name.")
        if name in {"data", "database64", "datacontenttype"}:
            raise Problem("bad_header", f"{name} is not an attribute in binary mode.")
        attributes[name] = _text(name, value)
    content_type = headers.get(b"content-type", "")
    if content_type:
        attributes["datacontenttype"] = content_type
    facts = msgspec.json.encode(attributes)
    if not body:
        return facts
    return b'%b,"%b":%b}' % (facts[:-1], *_data(content_type, body))


def _text(name: str, value: str) -> str:
    """Decode a header's text as the HTTP binding (1.0.2, 3.1.3.2) asks.

    Raw bytes count as UTF-8 if they are valid UTF-8: as latin-1 they would become mojibake.
    """
    with suppress(UnicodeDecodeError):
        value = value.encode("latin-1").decode()
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _ESCAPED.sub(r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        detail = f"ce-{name} is percent-encoded, but not in UTF-8: {error.reason}."
        raise Problem("bad_header", detail) from error


def _data(content_type: str, body: bytes) -> tuple[bytes, bytes]:
    media_type = content_type.split(";", maxsplit=1)[0].strip().lower()
    if media_type in {"", "application/json", "text/json"} or media_type.endswith("+json"):
        try:
            body.decode()
            return b"data", bytes(_RAW.decode(body)).strip()
        except RecursionError as error:
            raise Problem("too_deep", "Send JSON with fewer levels of [ and {.") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem("invalid_json", f"The data is not JSON: {error}.") from error
    return b"data_base64", b'"%b"' % base64.b64encode(body)
