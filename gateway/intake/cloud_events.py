"""Checks CloudEvents (version 1.0), and turns one in headers into one JSON object.

Binary mode is stored as the structured event it stands for: JSON data byte for byte within it,
other data as base64. So every stored event is JSON, whichever way it came.
"""

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import unquote

import msgspec

from gateway.problems import Problem

_PREFIX = b"ce-"
_REQUIRED = ("specversion", "id", "source", "type")
# Each is a header of its own in HTTP; the specification asks for short names of a-z and 0-9.
_NAME_LENGTH_MAX = 64
_ESCAPED = re.compile(r"\\(.)")
# Nested JSON data is checked here, before it becomes part of the event.
_RAW = msgspec.json.Decoder(msgspec.Raw)


class _Required(msgspec.Struct):
    specversion: str
    id: str
    source: str
    type: str


_DECODER = msgspec.json.Decoder(_Required)


def fault(value: bytes) -> tuple[str, str] | None:
    """What keeps an event from being a CloudEvent, and the name of the attribute at fault."""
    try:
        attributes = _DECODER.decode(value)
    except msgspec.DecodeError as error:
        text = str(error)
        name = next((n for n in _REQUIRED if f"`{n}`" in text or f"$.{n}`" in text), "")
        return f"a CloudEvent has the texts {', '.join(_REQUIRED)}: {text}", name
    if attributes.specversion != "1.0":
        return "only specversion 1.0 is known", "specversion"
    for name in _REQUIRED:
        if not getattr(attributes, name):
            return f"{name} is empty", name
    return None


def from_headers(headers: Mapping[bytes, str], body: bytes) -> bytes:
    """The structured event that a request in binary mode stands for."""
    attributes: dict[str, str] = {}
    for header, value in headers.items():
        if not header.startswith(_PREFIX):
            continue
        name = header.removeprefix(_PREFIX).decode("latin-1")
        if not name.isalnum() or not name.isascii() or len(name) > _NAME_LENGTH_MAX:
            raise Problem("bad_header", f"ce-{name[:100]} is not the name of an attribute.")
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
    """A header's text as the HTTP binding (1.0.2, 3.1.3.2) decodes it.

    Raw bytes are UTF-8 unless they cannot be: what headers' own latin-1 reads as mojibake.
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
