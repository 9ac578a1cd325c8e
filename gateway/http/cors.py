"""Answers browsers' CORS questions: who may call from which page."""

import re

# How long a browser may remember the answer to a preflight; Chromium keeps none longer.
_MAX_AGE_S = 7_200
_HEADER_NAMES = re.compile(r"[A-Za-z0-9\-, ]{1,1000}")
_EXPOSED = b"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, Idempotency-Replayed"
# Whatever we answer depends on it, so no cache may give one page's answer to another.
_VARY = (b"vary", b"Origin")

Headers = tuple[tuple[bytes, bytes], ...]


def preflight_headers(origin: str, asked: str | None) -> Headers:
    """For OPTIONS from an origin that some key allows."""
    names = asked if asked is not None and _HEADER_NAMES.fullmatch(asked) else ""
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", names.encode()),
        (b"access-control-max-age", b"%d" % _MAX_AGE_S),
        _VARY,
    )


def answer_headers(origin: str) -> Headers:
    """For an answer to a page whose origin some key allows."""
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        _VARY,
    )
