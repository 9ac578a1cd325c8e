"""Classifies network addresses: public, private (allowed by a setting), or never allowed.

Customers choose a destination's address. Unchecked, it could point to hosts that only we can reach,
such as our own ports or a cloud's metadata service with its keys. The class depends on the address
that a connection really reaches, however it is spelled or wrapped. The tables are our own, so the
result does not depend on the version of Python.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Literal, TypeAlias, get_args

Address: TypeAlias = IPv4Address | IPv6Address
AddressClass = Literal["public", "private", "never"]
_FROM_GOOD_TO_BAD: tuple[AddressClass, ...] = get_args(AddressClass)
_Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


def _networks(*texts: str) -> _Networks:
    return tuple(map(ip_network, texts))


# IANA's registries of special-purpose addresses. An IPv6 address is public if it is in 2000::/3 but
# in none of the special ranges there.
_GLOBAL = _networks("0.0.0.0/0", "2000::/3")
_PRIVATE = _networks(
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",  # carrier-grade NAT
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "2001::/23",
    "2001:db8::/32",
    # 6to4: nobody knows whose relay gets the packets (RFC 7526 deprecates it).
    "2002::/16",
    "3fff::/20",
)
_NEVER = _networks(
    "169.254.0.0/16",  # link-local, and with it most of the metadata services below
    "224.0.0.0/4",
    "240.0.0.0/4",
    "fe80::/10",
    "ff00::/8",
    # Cloud metadata services: anyone who can reach them gets the machine's credentials.
    "100.100.100.200",  # Alibaba
    "168.63.129.16",  # Azure's wire server, a public address
    "192.0.0.192",  # Oracle
    "fd00:ec2::254",  # AWS
    "fd00:ec2::23",  # AWS, EKS pod identity
    "fd20:ce::254",  # Google
)
_METADATA_NAMES = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "instance-data.ec2.internal",
    }
)
# IPv6 addresses that contain an IPv4 address, and its distance in bits from the right end.
_WRAPPING_6 = {
    IPv6Network("::ffff:0:0/96"): 0,  # mapped
    IPv6Network("::/96"): 0,  # compatible
    IPv6Network("::ffff:0:0:0/96"): 0,  # translated (SIIT)
    IPv6Network("64:ff9b::/96"): 0,  # NAT64
    IPv6Network("64:ff9b:1::/48"): 0,  # NAT64 for local use
    IPv6Network("2002::/16"): 80,  # 6to4
    IPv6Network("2001::/32"): 64,  # Teredo: the server
}
_TEREDO = IPv6Network("2001::/32")
# Here the IPv6 address has no meaning beyond the IPv4 address in it.
_TRANSPARENT_6 = _networks("::ffff:0:0/96", "64:ff9b::/96")
_LOW_32 = 0xFFFF_FFFF
# Interface identifiers that hold an IPv4 address (RFC 5214).
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})

_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)")


class HostError(ValueError):
    """A host is neither an address nor a name."""


def read_host(text: str) -> Address | str:
    """Return the address or the name in a URL's host.

    It reads every spelling that a resolver accepts: 127.1, 0x7f.0.0.1, 017700000001, 2130706433,
    [::1].
    """
    host = text.strip("[]").partition("%")[0].rstrip(".").lower()
    labels = host.split(".")
    try:
        if ":" in host:
            return IPv6Address(host)
        # A host that ends in a number is an address or invalid (WHATWG URL, 3.5).
        if _NUMBER.fullmatch(labels[-1]):
            return _read_ipv4(labels)
    except (ValueError, OverflowError) as error:
        version = 6 if ":" in host else 4
        raise HostError(f"{text!r} is not an IPv{version} address") from error
    if not host:
        raise HostError("there is no host")
    return host


def address_class(address: Address) -> AddressClass:
    """Return the worst class among the address and the addresses that it contains."""
    if _is_in(_NEVER, address):
        return "never"
    classes: set[AddressClass] = set()
    if isinstance(address, IPv6Address):
        classes.update(map(address_class, _wrapped(address)))
    if not _is_in(_TRANSPARENT_6, address):
        is_public = _is_in(_GLOBAL, address) and not _is_in(_PRIVATE, address)
        classes.add("public" if is_public else "private")
    return max(classes, key=_FROM_GOOD_TO_BAD.index)


def host_class(host: Address | str) -> AddressClass:
    """Return the class of a host before its name is resolved."""
    if isinstance(host, str):
        return "never" if host in _METADATA_NAMES else "public"
    return address_class(host)


def may_send(addresses: Iterable[Address], *, allows_private: bool) -> bool:
    """Whether Hifi may send to a host: all its addresses must be allowed."""
    classes = {address_class(address) for address in addresses}
    allowed = {"public", "private"} if allows_private else {"public"}
    return bool(classes) and classes <= allowed


def _is_in(networks: _Networks, address: Address) -> bool:
    return any(address in network for network in networks)


def _wrapped(address: IPv6Address) -> Iterator[IPv4Address]:
    number = int(address)
    for network, shift in _WRAPPING_6.items():
        if address in network:
            yield IPv4Address(number >> shift & _LOW_32)
    if address in _TEREDO:
        # The client's address, with every bit inverted.
        yield IPv4Address(~number & _LOW_32)
    if number >> 32 & _LOW_32 in _ISATAP:
        yield IPv4Address(number & _LOW_32)


def _read_ipv4(labels: list[str]) -> IPv4Address:
    """Parse like inet_aton: up to four numbers in any base; the last one fills the other bytes."""
    if len(labels) > 4:  # noqa: PLR2004 - the bytes of an address
        raise ValueError("too many parts")
    *firsts, last = map(_read_number, labels)
    # Python raises an error for numbers that are too large.
    return IPv4Address(bytes(firsts) + last.to_bytes(4 - len(firsts), "big"))


def _read_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError("a part is not a number")
    if text[:2] in {"0x", "0X"}:
        return int(text[2:] or "0", 16)
    return int(text, 8 if text[0] == "0" else 10)
