"""Admits or refuses a request by its headers alone: type, encoding, size.

Pure: it knows no HTTP library and no clock. A refusal is a Problem.
"""

import re
from collections.abc import Mapping
from enum import Enum

from gateway.intake.encodings import ENCODINGS
from gateway.problems import Problem

# W3C Trace Context: a version, the fields of version 00, and additions of later versions.
_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-)([0-9a-f]{2})(-.*)?"
)
_SAMPLED = 1
# Other systems use UUIDs and ULIDs; an id must not split a header or a log line.
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_ATTRIBUTES = frozenset({b"ce-specversion", b"ce-id", b"ce-source", b"ce-type"})
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})


class Format(Enum):
    """The way a body holds events; the value is its media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CLOUD_EVENT = "application/cloudevents+json"
    CLOUD_EVENTS = "application/cloudevents-batch+json"
    # Headers are the attributes, and the body is the data, of any type.
    CLOUD_EVENT_BINARY = "*/*"


_JSON = Format.JSON.value
_FORMATS: Mapping[str, Format] = {
    **{found.value: found for found in Format if found is not Format.CLOUD_EVENT_BINARY},
    # Both spellings are in wide use and neither is registered.
    "application/ndjson": Format.NDJSON,
    "application/jsonl": Format.NDJSON,
}
ACCEPT_POST = ", ".join(f.value for f in Format if f is not Format.CLOUD_EVENT_BINARY)


def read_format(headers: Mapping[bytes, str]) -> Format:
    """Return the body's format; a CloudEvent's attributes in headers mean binary mode."""
    content_type = headers.get(b"content-type", "")
    is_plain = _ATTRIBUTES.isdisjoint(headers)
    if content_type == _JSON and is_plain:
        return Format.JSON
    media_type, *parameters = [part.strip(" \t").lower() for part in content_type.split(";")]
    # In structured mode, such headers may repeat members of the body (HTTP binding, 3.2.3).
    if not is_plain and not media_type.startswith("application/cloudevents"):
        if b"ce-specversion" in headers:
            return Format.CLOUD_EVENT_BINARY
        raise Problem(
            "bad_header",
            "There is ce-id, ce-source or ce-type, but no ce-specversion. A CloudEvent needs all"
            " four (ce-specversion: 1.0); any other event must have none of them.",
        )
    charsets = [p.removeprefix("charset=").strip('"') for p in parameters if "charset=" in p]
    body_format = _FORMATS.get(media_type)
    if body_format is not None and _CHARSETS.issuperset(charsets):
        return body_format
    raise Problem(
        "unsupported_media_type",
        f"Content-Type is {content_type[:100]!r}; send one of {ACCEPT_POST}, in UTF-8.",
        headers=((b"accept-post", ACCEPT_POST.encode()),),
    )


def read_encoding(content_encoding: str | None) -> str:
    """Return the name of the body's encoding; refuse unknown ones and combinations."""
    if not content_encoding:
        return "identity"
    name = content_encoding.strip(" \t").lower()
    name = {"x-gzip": "gzip", "": "identity"}.get(name, name)
    if name in ENCODINGS:
        return name
    accepted = ", ".join(ENCODINGS)
    raise Problem(
        "unsupported_encoding",
        f"Content-Encoding is {content_encoding[:100]!r}; send one of {accepted}.",
        headers=((b"accept-encoding", accepted.encode()),),
    )


def body_too_large(body_bytes_max: int, *, closes: bool) -> Problem:
    """Return the refusal of a body above the limit; `closes` if the rest will not be read."""
    return Problem(
        "body_too_large",
        f"A body may have at most {body_bytes_max} bytes; send the events in several requests.",
        members={"limit": "body_bytes_max", "limit_value": body_bytes_max},
        headers=((b"connection", b"close"),) if closes else (),
    )


def traceparent(header: str | None) -> str | None:
    """Return the traceparent to pass on, in version 00; drop an invalid one, as W3C asks."""
    match = _TRACEPARENT.fullmatch(header) if header is not None else None
    if match is None:
        return None
    version, ids, flags, more = match.groups()
    if version == "00":
        return header if more is None else None
    return f"00{ids}{int(flags, 16) & _SAMPLED:02x}"


def echoed_request_id(header: str | None, *, otherwise: str) -> str:
    """Return the caller's X-Request-Id for the answer's header if it is valid, or `otherwise`."""
    return header if header is not None and _REQUEST_ID.fullmatch(header) else otherwise
