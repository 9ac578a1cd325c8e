"""Reads the headers of a request; refuses an ambiguous head."""

import re
from collections.abc import Sequence
from functools import lru_cache

from starlette.types import Scope

from gateway.problems import Problem
from shared.runtime.hosts import HOSTS_REMEMBERED

# These must be sent only once, because readers could disagree on which of two values counts. Other
# headers are lists that may be sent in several lines (RFC 9110, 5.3).
_ONCE = frozenset(
    {
        *(b"authorization", b"content-encoding", b"content-type", b"hifi-signature", b"host"),
        *(b"idempotency-key", b"origin", b"x-partition-key", b"x-request-id"),
    }
)
_CLOUD_EVENT = b"ce-"
# A name or an address, and a port (RFC 9110, 7.2).
_HOST = re.compile(r"([\w.~!$&'()*+,;=%-]*|\[[\da-fA-F:.]+\])(:\d*)?", re.ASCII)
_is_host = lru_cache(HOSTS_REMEMBERED)(_HOST.fullmatch)
_CLOSE = ((b"connection", b"close"),)


def read_headers(scope: Scope) -> dict[bytes, str]:
    """Return the headers by name; raise Problem for an invalid or ambiguous head."""
    given: Sequence[tuple[bytes, bytes]] = scope["headers"]
    headers = {name: value.decode("latin-1") for name, value in given}
    if len(headers) != len(given):
        headers = _joined(given)
    host = headers.get(b"host")
    if host is None and scope["http_version"] == "1.1":
        raise Problem("bad_header", "Send a Host header (RFC 9112, 3.2).", headers=_CLOSE)
    if host and not _is_host(host):
        raise Problem("bad_header", f"Host is {host[:100]!r}, which is not a host.", headers=_CLOSE)
    coding = headers.get(b"transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        detail = f"Transfer-Encoding is {coding[:100]!r}; send `chunked` alone (RFC 9112, 6.1)."
        raise Problem("unknown_transfer_coding", detail, headers=_CLOSE)
    raw_path: bytes = scope["raw_path"]
    if b"%" in raw_path and b"%2f" in raw_path.lower():
        # With %2f decoded to a slash, this would be another path.
        raise Problem("not_found", f"This API has no path {raw_path[:200].decode('ascii')!r}.")
    return headers


def _joined(given: Sequence[tuple[bytes, bytes]]) -> dict[bytes, str]:
    headers: dict[bytes, str] = {}
    for name, raw in given:
        value = raw.decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in _ONCE or name.startswith(_CLOUD_EVENT):
            detail = f"The header {name.decode('latin-1')!r} occurs twice; send it once."
            raise Problem("bad_header", detail)
        else:
            headers[name] = f"{headers[name]}, {value}"
    return headers
