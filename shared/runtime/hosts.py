"""Checks Host and Origin headers: no page from elsewhere acts through a service of ours.

A stranger can make a name of theirs point to 127.0.0.1, and their page can then use a service that
asks for no key (DNS rebinding). It cannot make the browser send another Host header.
"""

import re
from functools import lru_cache
from urllib.parse import urlsplit

# No stranger has a page at one of these: addresses, names of one word, names below localhost.
_NOBODYS = re.compile(r"[\d.]+|\[[\da-f:.]+\]|[a-z\d_-]+|[a-z\d._-]+\.localhost")
# A service has a name or two; names that strangers make up are checked each time.
HOSTS_REMEMBERED = 16
# Headers that proxies add.
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})


@lru_cache(HOSTS_REMEMBERED)
def is_ours(host: str, allowed: frozenset[str]) -> bool:
    """Whether a Host header can only mean us; any port is fine, as it may be forwarded."""
    name = _name_of(host.lower())
    return name in allowed or _NOBODYS.fullmatch(name) is not None


def may_post(*, host: str, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a POST comes from our own page, as far as the browser says."""
    if fetch_site is not None and fetch_site not in {"same-origin", "none"}:
        return False
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
