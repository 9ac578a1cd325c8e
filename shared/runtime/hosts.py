"""Checks Host and Origin headers, so that no foreign page can act through one of our services.

An attacker can point a name of their own to 127.0.0.1, and their page can then use a service that
does not ask for a key (DNS rebinding). But the browser still sends the attacker's Host header.
"""

import re
from functools import lru_cache
from urllib.parse import urlsplit

# No attacker can own these: addresses, names without a dot, names below localhost.
_NOBODYS = re.compile(r"[\d.]+|\[[\da-f:.]+\]|[a-z\d_-]+|[a-z\d._-]+\.localhost")
# A service has one or two names; other names are checked each time.
HOSTS_REMEMBERED = 16
# Headers that proxies add.
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})


@lru_cache(HOSTS_REMEMBERED)
def is_ours(host: str, allowed: frozenset[str]) -> bool:
    """Whether a Host header can only mean this service; any port may be a forwarded one."""
    name = _name_of(host.lower())
    return name in allowed or _NOBODYS.fullmatch(name) is not None


def may_post(*, host: str, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a POST comes from our own page, according to the browser's headers."""
    if fetch_site is not None and fetch_site not in {"same-origin", "none"}:
        return False
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
