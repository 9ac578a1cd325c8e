"""Allowed addresses: a private address is found in every spelling and every wrapping."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.addresses import HostError, address_class, host_class, may_send, read_host

# address -> judgement
JUDGED = {
    "1.1.1.1": "public",
    "93.184.216.34": "public",
    "0.0.0.0": "private",
    "0.1.2.3": "private",
    "10.0.0.1": "private",
    "100.63.255.255": "public",
    "100.64.0.0": "private",
    "100.127.255.255": "private",
    "100.128.0.0": "public",
    "127.0.0.1": "private",
    "127.255.255.254": "private",
    "172.15.255.255": "public",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "172.32.0.0": "public",
    "192.0.0.8": "private",
    "192.0.2.1": "private",
    "192.88.99.1": "private",
    "192.168.1.1": "private",
    "198.18.0.1": "private",
    "198.51.100.7": "private",
    "203.0.113.7": "private",
    "169.254.0.1": "never",
    "169.254.169.254": "never",
    "169.254.170.2": "never",
    "100.100.100.200": "never",
    "168.63.129.16": "never",
    "192.0.0.192": "never",
    "224.0.0.1": "never",
    "239.255.255.255": "never",
    "240.0.0.1": "never",
    "255.255.255.255": "never",
    "2606:4700:4700::1111": "public",
    "::": "private",
    "::1": "private",
    "fc00::1": "private",
    "fdff::1": "private",
    "fec0::1": "private",
    "2001:db8::1": "private",
    "3fff::1": "private",
    "2001:2::1": "private",
    "100::1": "private",
    "4000::1": "private",
    "5f00::1": "private",
    "fe80::1": "never",
    "febf::1": "never",
    "ff02::1": "never",
    "fd00:ec2::254": "never",
    "fd00:ec2::23": "never",
    "fd20:ce::254": "never",
    # mapped
    "::ffff:1.1.1.1": "public",
    "::ffff:127.0.0.1": "private",
    "::ffff:10.0.0.1": "private",
    "::ffff:169.254.169.254": "never",
    # compatible, and translated
    "::1.1.1.1": "private",
    "::169.254.169.254": "never",
    "::ffff:0:127.0.0.1": "private",
    "::ffff:0:169.254.169.254": "never",
    # NAT64
    "64:ff9b::1.1.1.1": "public",
    "64:ff9b::10.0.0.1": "private",
    "64:ff9b::169.254.169.254": "never",
    "64:ff9b:1::1.1.1.1": "private",
    "64:ff9b:1::169.254.169.254": "never",
    # 6to4, also around a public address
    "2002:101:101::1": "private",
    "2002:7f00:1::1": "private",
    "2002:a9fe:a9fe::1": "never",
    # Teredo: the server's address, then the client's with its bits inverted
    "2001:0:7f00:1:0:0:fefe:fefe": "private",
    "2001:0:a9fe:a9fe::": "never",
    "2001:0:101:101:0:0:5601:5601": "never",
    # ISATAP
    "2606:4700::5efe:1.1.1.1": "public",
    "2606:4700::5efe:10.0.0.1": "private",
    "2606:4700::200:5efe:169.254.169.254": "never",
}


@pytest.mark.parametrize("address", JUDGED)
def test_each_address_has_the_judgement_of_the_table(address: str) -> None:
    assert address_class(ip_address(address)) == JUDGED[address]


v4 = st.integers(0, 2**32 - 1).map(IPv4Address)


@given(v4)
def test_no_wrapping_makes_an_address_better(address: IPv4Address) -> None:
    order = ("public", "private", "never")
    for prefix, shift in (
        ("::ffff:0:0", 0),
        ("::", 0),
        ("64:ff9b::", 0),
        ("64:ff9b:1::", 0),
        ("2002::", 80),
        ("2001::", 64),
    ):
        wrapped = IPv6Address(int(IPv6Address(prefix)) | int(address) << shift)
        assert order.index(address_class(wrapped)) >= order.index(address_class(address)), wrapped


@given(v4)
def test_what_python_calls_private_is_never_public(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast:
        assert address_class(address) != "public"


# spelling -> the address it means
SPELT = {
    "127.0.0.1": "127.0.0.1",
    "127.0.0.1.": "127.0.0.1",
    "127.1": "127.0.0.1",
    "127.0.1": "127.0.0.1",
    "0x7f.1": "127.0.0.1",
    "0x7f.0.0.1": "127.0.0.1",
    "0X7F000001": "127.0.0.1",
    "017700000001": "127.0.0.1",
    "0177.0.0.01": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "0xa9fea9fe": "169.254.169.254",
    "169.254.43518": "169.254.169.254",
    "0": "0.0.0.0",
    "0x": "0.0.0.0",
    "[::1]": "::1",
    "::1": "::1",
    "[fe80::1%eth0]": "fe80::1",
    "[::FFFF:127.0.0.1]": "::ffff:127.0.0.1",
}


@pytest.mark.parametrize("text", SPELT)
def test_every_spelling_of_an_address_is_read(text: str) -> None:
    assert read_host(text) == ip_address(SPELT[text])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("shop.example", "shop.example"),
        ("Shop.Example.", "shop.example"),
        ("1.example", "1.example"),
        ("0x7f.com", "0x7f.com"),
        ("127.0.0.1.nip.io", "127.0.0.1.nip.io"),
    ],
)
def test_a_name_is_a_name(text: str, name: str) -> None:
    assert read_host(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "[::g]",
        "1.2.3.4.5",
        "256.1",
        "1.2.3.256",
        "4294967296",
        "a.1",
        "08",
        "1..1",
    ],
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        read_host(text)


@given(v4)
def test_any_spelling_of_an_address_is_the_address(address: IPv4Address) -> None:
    number = int(address)
    a, rest = number >> 24, number & 0xFF_FFFF
    for text in (str(address), str(number), hex(number), f"0{number:o}", f"{a}.{hex(rest)}"):
        assert read_host(text) == address


def test_metadata_services_are_known_by_name() -> None:
    assert host_class(read_host("metadata.google.internal.")) == "never"
    assert host_class(read_host("METADATA")) == "never"
    assert host_class(read_host("shop.example")) == "public"
    assert host_class(read_host("0xa9fea9fe")) == "never"


def test_one_bad_answer_spoils_the_rest() -> None:
    good, private, never = map(ip_address, ("1.1.1.1", "10.0.0.1", "169.254.169.254"))
    assert may_send([good], allows_private=False)
    assert not may_send([good, private], allows_private=False)
    assert may_send([good, private], allows_private=True)
    assert not may_send([good, never], allows_private=True)
    assert not may_send([], allows_private=True)
