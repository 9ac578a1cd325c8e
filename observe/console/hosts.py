"""Checks Host and Origin headers: no page from elsewhere acts through the console.

A page of a stranger can make a name of theirs point to 127.0.0.1 and then read what a console
without sign-in shows (DNS rebinding). It cannot make the browser send another Host header.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


def is_ours(host: str, allowed: Collection[str]) -> bool:
    """Whether a Host header names us; any port is fine, as it may be forwarded."""
    return _name_of(host.lower()) in LOOPBACK_NAMES.union(allowed)


def may_post(*, host: str, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a POST comes from our own page, as far as the browser says."""
    if fetch_site is not None and fetch_site not in {"same-origin", "none"}:
        return False
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
