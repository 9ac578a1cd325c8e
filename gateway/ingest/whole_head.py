"""Reads the head of a request with events that arrived in one piece, and recognizes it later.

On a kept connection, a client's heads differ only in the length of the body. So a head is parsed
once, and everything that only the configuration can change is kept with it.
"""

import re

import msgspec

from gateway.callers import Writer
from gateway.ingest.head import read_headers
from gateway.intake import admission
from gateway.intake.admission import Format
from gateway.problems import Problem
from gateway.request_options import RequestOptions, read_options
from shared.runtime.serving.server import PlainHead

_BEGINNING = b"POST /v1/streams/"
_PATH = re.compile(rb"/v1/streams/([A-Za-z0-9._-]+)/events")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,8})[ \t]*\r\n", re.IGNORECASE)
_END = b"\r\n\r\n"
# Longer heads are not kept: each would take memory on every one of ten thousand connections.
_HEAD_BYTES_MAX = 4_096
# Headers that need more work or a wait: browsers' CORS, bodies that wait for 100 Continue or come
# in pieces, encodings, Idempotency-Keys.
_OTHERS = frozenset(
    {b"content-encoding", b"expect", b"idempotency-key", b"origin", b"transfer-encoding"}
)


class WholeHead(msgspec.Struct, eq=False):
    """The head of a request with events, without the length of its body."""

    before_length: bytes
    after_length: bytes
    stream: str
    headers: dict[bytes, str]
    body_format: Format
    options: RequestOptions
    traceparent: str | None
    # The caller's own id for the request.
    echoed: bytes | None
    # The sender of the last request with this head.
    writer: Writer | None = None

    def find_body(self, data: bytes) -> tuple[int, int]:
        """Return the body's start and length if data begins with this head; else zeros."""
        before, after = self.before_length, self.after_length
        if data.startswith(before):
            begun = len(before)
            # The parser accepts up to eight digits.
            end = data.find(b"\r", begun, begun + 9)
            digits = data[begun:end]
            if end > 0 and digits.isdigit() and data.startswith(after, end):
                return end + len(after), int(digits)
        return 0, 0


def read_whole_head(data: bytes, *, head_bytes_max: int) -> WholeHead | None:
    """Return the head at the start of data; None if it is incomplete, or not one for events.

    A faulty head also gives None: the usual readers report its faults.
    """
    end = data.find(_END, 0, min(head_bytes_max, _HEAD_BYTES_MAX)) + len(_END)
    length = _LENGTH.search(data, 0, end)
    if end < len(_END) or length is None or not data.startswith(_BEGINNING):
        return None
    heard = PlainHead()
    path = _PATH.fullmatch(heard.url) if heard.takes(data[:end]) else None
    scope = {"headers": heard.headers, "http_version": "1.1", "raw_path": heard.url}
    try:
        headers = read_headers(scope)
        body_format, options = admission.read_format(headers), read_options(headers, b"")
    except Problem:
        return None
    is_usual = len(headers) == len(heard.headers) and _OTHERS.isdisjoint(headers)
    if path is None or not is_usual or body_format is Format.CLOUD_EVENT_BINARY:
        return None
    echoed = admission.echoed_request_id(headers.get(b"x-request-id"), otherwise="")
    return WholeHead(
        before_length=data[: length.start(1)],
        after_length=data[length.end(1) : end],
        stream=path[1].decode("ascii"),
        headers=headers,
        body_format=body_format,
        options=options,
        traceparent=admission.traceparent(headers.get(b"traceparent")),
        echoed=echoed.encode() or None,
    )
