"""Reads the parts of a URL that a request needs."""

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from delivery.http.connection import ExchangeError
from shared.config.addresses import Address, read_host
from shared.retry.attempt import Failure
from shared.runtime.resolver import ascii_host, said_by

_PORTS = {"http": 80, "https": 443}
# The characters that are kept in a path and a query (RFC 3986), and in existing escapes.
_PATH_SAFE = "/?:@!$&'()*+,;=-._~%[]"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """Where requests to a URL go, and what their first lines say."""

    host: Address | str
    port: int
    # The Host header.
    authority: str
    # The path and the query.
    path: str
    is_secure: bool


def read_target(url: str) -> RequestTarget:
    """Return the target of a URL; ExchangeError if no request can be made for it."""
    try:
        parts = urlsplit(url)
        host = read_host(ascii_host(parts.hostname or ""))
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        raise ExchangeError(Failure.REQUEST_UNBUILDABLE, said_by(error)) from error
    shown = f"[{host}]" if ":" in str(host) else str(host)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return RequestTarget(
        host=host,
        port=port,
        authority=shown if port == _PORTS[parts.scheme] else f"{shown}:{port}",
        path=quote(path, safe=_PATH_SAFE),
        is_secure=parts.scheme == "https",
    )
