"""Judges network addresses: public ones, private ones if allowed, and those never sent to.

A destination's address is somebody else's wish. Without this, one could be pointed at what only we
can reach (our own ports, a cloud's metadata service with its keys). Judged is the address that a
connection goes to, in whatever it is wrapped or however it is spelt; the tables are ours, so that
a judgement does not hang on the version of Python.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Literal, TypeAlias, get_args

Address: TypeAlias = IPv4Address | IPv6Address
AddressClass = Literal["public", "private", "never"]
_FROM_GOOD_TO_BAD: tuple[AddressClass, ...] = get_args(AddressClass)

# Cloud metadata services: whoever can ask them gets the machine's credentials. Link-local ones
# (169.254.169.254 and its neighbours) are in the tables below.
_METADATA = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure's wire server, a public address
            "192.0.0.192",  # Oracle
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",  # AWS, EKS pod identity
            "fd20:ce::254",  # Google
        ),
    )
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
# IANA's registry of special-purpose IPv4 addresses, and multicast.
_PRIVATE_4 = tuple(
    map(
        IPv4Network,
        (
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
        ),
    )
)
_NEVER_4 = tuple(map(IPv4Network, ("169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")))
# The same for IPv6: public is what lies in 2000::/3 and is not set apart there.
_GLOBAL_6 = IPv6Network("2000::/3")
_PRIVATE_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NEVER_6 = tuple(map(IPv6Network, ("fe80::/10", "ff00::/8")))
# IPv6 addresses that stand for an IPv4 address, and how far that is from the right end.
_WRAPPING_6 = tuple(
    (IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),  # mapped
        ("::/96", 0),  # compatible
        ("::ffff:0:0:0/96", 0),  # translated (SIIT)
        ("64:ff9b::/96", 0),  # NAT64
        ("64:ff9b:1::/48", 0),  # NAT64 for local use
        ("2002::/16", 80),  # 6to4
        ("2001::/32", 64),  # Teredo: the server
    )
)
_TEREDO = IPv6Network("2001::/32")
# The address stands for nothing but the IPv4 address in it.
_TRANSPARENT_6 = tuple(map(IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16")))
_LOW_32 = 0xFFFF_FFFF
# Interface identifiers that hold an IPv4 address (RFC 5214).
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})

_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)")


class HostError(ValueError):
    """A host is neither an address nor a name."""


def read_host(text: str) -> Address | str:
    """The address that a URL's host spells, or else the name in it.

    All spellings that a resolver takes: 127.1, 0x7f.0.0.1, 017700000001, 2130706433, [::1].
    """
    host = text.strip("[]").partition("%")[0].rstrip(".").lower()
    if ":" in host:
        try:
            return IPv6Address(host)
        except ValueError as error:
            raise HostError(f"{text!r} is not an IPv6 address") from error
    labels = host.split(".")
    if not _NUMBER.fullmatch(labels[-1]):
        if not host:
            raise HostError("there is no host")
        return host
    # What ends in a number is an address, or nothing (WHATWG URL, 3.5).
    try:
        return _read_ipv4(labels)
    except ValueError as error:
        raise HostError(f"{text!r} is not an IPv4 address") from error


def address_class(address: Address) -> AddressClass:
    """What may be done with an address: the worst of what it is and what it wraps."""
    if isinstance(address, IPv4Address):
        return _class_of_4(address)
    if address in _METADATA or any(address in network for network in _NEVER_6):
        return "never"
    classes = {_class_of_4(inner) for inner in _wrapped(address)}
    if not any(address in network for network in _TRANSPARENT_6):
        is_private = address not in _GLOBAL_6 or any(address in net for net in _PRIVATE_6)
        classes.add("private" if is_private else "public")
    return max(classes, key=_FROM_GOOD_TO_BAD.index)


def host_class(host: Address | str) -> AddressClass:
    """What can be said of a host before a resolver is asked."""
    if isinstance(host, str):
        return "never" if host in _METADATA_NAMES else "public"
    return address_class(host)


def may_send(addresses: Iterable[Address], *, allows_private: bool) -> bool:
    """Whether every address of a host may be sent to; one bad answer spoils the rest."""
    classes = {address_class(address) for address in addresses}
    allowed = {"public", "private"} if allows_private else {"public"}
    return bool(classes) and classes <= allowed


def _class_of_4(address: IPv4Address) -> AddressClass:
    if address in _METADATA or any(address in network for network in _NEVER_4):
        return "never"
    return "private" if any(address in network for network in _PRIVATE_4) else "public"


def _wrapped(address: IPv6Address) -> Iterator[IPv4Address]:
    number = int(address)
    for network, shift in _WRAPPING_6:
        if address in network:
            yield IPv4Address(number >> shift & _LOW_32)
    if address in _TEREDO:
        # The client's own, with every bit turned over.
        yield IPv4Address(~number & _LOW_32)
    if number >> 32 & _LOW_32 in _ISATAP:
        yield IPv4Address(number & _LOW_32)


def _read_ipv4(labels: list[str]) -> IPv4Address:
    """As inet_aton reads it: up to four numbers in any base, the last one fills the rest."""
    if len(labels) > 4:  # noqa: PLR2004 - the bytes of an address
        raise ValueError("too many parts")
    *firsts, last = map(_read_number, labels)
    value = 0
    for first in firsts:
        if first > 0xFF:  # noqa: PLR2004 - a byte
            raise ValueError("a part is over 255")
        value = value << 8 | first
    left_bits = 32 - 8 * len(firsts)
    if last >> left_bits:
        raise ValueError("the last part is too large")
    return IPv4Address(value << left_bits | last)


def _read_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError("a part is not a number")
    if text[:2] in {"0x", "0X"}:
        return int(text[2:] or "0", 16)
    return int(text, 8 if text[0] == "0" else 10)
