"""Decides whether a request may come in, from its headers alone: type, encoding, size, room.

Pure: it knows no HTTP library and no clock. A refusal is a Problem.
"""

import re

from gateway.problems import Problem

JSON_TYPE = "application/json"

# W3C Trace Context, version 00; anything else is not a traceparent and is not passed on.
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# What others put there are UUIDs and ULIDs; it must not split a header or a log line.
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})


class InFlight:
    """The bytes that requests without an answer hold, against what they may hold in all."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.byte_count = 0

    def enter(self, byte_count: int, *, overdue_bytes: int) -> None:
        """Make room for bytes, or refuse: before they are read, so that memory stays bounded."""
        if self.byte_count + overdue_bytes + byte_count > self.bytes_max:
            raise Problem(
                "overloaded",
                "Nothing of this request was stored: the gateway waits for Kafka with as many"
                " bytes as it may hold. Send the request again later.",
                headers=((b"retry-after", b"1"),),
            )
        self.byte_count += byte_count

    def leave(self, byte_count: int) -> None:
        self.byte_count -= byte_count


def check_type(content_type: str) -> None:
    """Refuse what is not JSON in UTF-8."""
    media_type, *parameters = [part.strip().lower() for part in content_type.split(";")]
    charsets = [p.removeprefix("charset=").strip('"') for p in parameters if "charset=" in p]
    if media_type == JSON_TYPE and _CHARSETS.issuperset(charsets):
        return
    raise Problem(
        "unsupported_media_type",
        f"Content-Type is {content_type[:100]!r}; send {JSON_TYPE} in UTF-8.",
        headers=((b"accept-post", JSON_TYPE.encode()),),
    )


def check_encoding(content_encoding: str) -> None:
    """Refuse a compressed body."""
    if content_encoding.strip().lower() in {"", "identity"}:
        return
    raise Problem(
        "unsupported_encoding",
        f"Content-Encoding is {content_encoding[:100]!r}; send the body uncompressed.",
        headers=((b"accept-encoding", b"identity"),),
    )


def body_too_large(body_bytes_max: int, *, closes: bool) -> Problem:
    """The refusal of a body over the cap; `closes` when the rest of it will not be read."""
    return Problem(
        "body_too_large",
        f"A body has at most {body_bytes_max} bytes; send the events in several requests.",
        members={"limit": "body_bytes_max", "limit_value": body_bytes_max},
        headers=((b"connection", b"close"),) if closes else (),
    )


def traceparent(header: str | None) -> str | None:
    """The traceparent to pass on; a wrong one is dropped, as W3C asks."""
    return header if header is not None and _TRACEPARENT.fullmatch(header) else None


def echoed_request_id(header: str | None, *, otherwise: str) -> str:
    """The caller's own X-Request-Id for the answer's header, if it is fit for one."""
    return header if header is not None and _REQUEST_ID.fullmatch(header) else otherwise
