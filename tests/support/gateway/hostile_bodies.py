"""Malicious bodies: some that no gateway should accept, and some that none should choke on."""

import gzip
from collections.abc import Callable
from functools import cache

import brotli
from backports import zstd

MB = 1_000_000
# Slightly less than the largest body that a gateway accepts, before and after decoding.
WIRE = 4_900_000
OPENED = 19_900_000

# The body and its Content-Encoding.
Make = Callable[[], tuple[bytes, str]]


def gzip_bomb(size: int) -> bytes:
    """Return members of 10 MB each; deflate packs at most a thousand bytes into one."""
    return gzip.compress(b"[" * 10 * MB) * (size // (10 * MB))


def zstd_bomb(size: int) -> bytes:
    """Return frames of 10 MB each, packed 30,000 to one."""
    return zstd.compress(b"[" * 10 * MB) * (size // (10 * MB))


def zstd_bomb_of_one_frame(size: int) -> bytes:
    packer = zstd.ZstdCompressor()
    block = b"[" * MB
    return b"".join([*(packer.compress(block) for _ in range(size // MB)), packer.flush()])


def brotli_bomb(size: int) -> bytes:
    """Return one stream: from the second flush on, the same block gives the same bytes."""
    packer = brotli.Compressor(quality=5)
    block = b"[" * 10 * MB
    first, second, third = (packer.process(block) + packer.flush() for _ in range(3))
    assert second == third, "a block of a brotli stream differs from the one before"
    stream: bytes = first + second * (size // len(block) - 1) + packer.finish()
    return stream


def opened_to(text: bytes, encoding: str) -> Make:
    """Return a body that is small on the wire and as large as allowed once it is unpacked."""

    @cache
    def make() -> tuple[bytes, str]:
        # Packed so badly that the ratio is not a reason to refuse it.
        packed = gzip.compress(text, 1) if encoding == "gzip" else zstd.compress(text)
        return packed + _padding(encoding, max(0, len(text) // 90 - len(packed))), encoding

    return make


def _padding(encoding: str, size: int) -> bytes:
    """Return bytes on the wire that unpack to nothing."""
    if encoding == "gzip":
        return bytes(size)
    # A skippable frame (RFC 8878, 3.1.2): its magic number, its length, any content.
    return b"\x50\x2a\x4d\x18" + size.to_bytes(4, "little") + bytes(size)


def _times(text: bytes, size: int) -> bytes:
    return text * (size // len(text))


PLAIN: dict[str, Make] = {
    "ten million opening brackets": lambda: (b"[" * 10_000_000, ""),
    "five million less one": lambda: (b"[" * 4_999_999, ""),
    "the same within a string that does not end": lambda: (b'["' + b"[" * WIRE, ""),
    "deep objects": lambda: (b'{"a":' * 900_000 + b"1" + b"}" * 400_000, ""),
    "an event just too deep": lambda: (b"[" + b'{"a":' + b"[" * 101 + b"]" * 101 + b"}]", ""),
    "an event of nothing but brackets": lambda: (b'[{"a":' + b"[]," * 300_000 + b"[]}]", ""),
    "events of nothing but quotes": lambda: (
        b"[" + b",".join([b'{"a":["",[],' + b'"",' * 300_000 + b'""]}'] * 5) + b"]",
        "",
    ),
    "two million elements": lambda: (b"[" + b"1," * 2_400_000 + b"1]", ""),
    "two million elements in events": lambda: (b'{"events":[' + b"1," * 2_400_000 + b"1]}", ""),
    "an object of a million members": lambda: (b"{" + b'"a":1,' * 800_000 + b'"a":1}', ""),
    "an object of a million names": lambda: (
        b"{" + b",".join(b'"%d":1' % n for n in range(400_000)) + b"}",
        "",
    ),
    "a million lines": lambda: (b"{}\n" * 1_600_000, "ndjson"),
    "a million blank lines and an event": lambda: (b"\n" * WIRE + b"{}", "ndjson"),
    "nothing but commas": lambda: (b"[" + b"," * WIRE + b"]", ""),
    "nothing but blanks": lambda: (b" " * WIRE, ""),
    "nothing but escapes": lambda: (b'{"id":"' + b"\\u0041" * 800_000 + b'"}', ""),
    "NaN": lambda: (b'[{"a":NaN},{"a":-Infinity}]', ""),
    "a number of four million digits": lambda: (b'{"a":' + b"9" * 4_000_000 + b"}", ""),
    "a huge id": lambda: (b'{"id":' + b"9" * 900_000 + b"}", ""),
    "a huge exponent": lambda: (b'{"id":1e999999999,"time_ms":1e400}', ""),
    "half a surrogate pair in an id": lambda: (b'[{"id":"\\ud800"}]', ""),
    "half a surrogate pair in a value": lambda: (b'[{"id":"a","v":"\\udfff\\ud800"}]', ""),
    "half a surrogate pair in a name": lambda: (b'[{"\\ud800":1}]', ""),
    "the same member twice": lambda: (b'{"id":"a","id":"b","id":7}', ""),
    "events twice": lambda: (b'{"events":[],"events":[{}]}', ""),
    "a control character": lambda: (b'[{"id":"a\x00b"}]', ""),
    "an escaped control character": lambda: (b'[{"id":"a\\u0000b"}]', ""),
    "latin-1": lambda: ('[{"id":"caf\u00e9"}]'.encode("latin-1"), ""),
    "utf-16": lambda: ('[{"id":"a"}]'.encode("utf-16"), ""),
    "a byte order mark": lambda: (b"\xef\xbb\xbf[]", ""),
    "overlong utf-8": lambda: (b'["\xc0\xaf"]', ""),
    "five million bytes of utf-8, the last one wrong": lambda: (
        b'["' + "\u00e9".encode() * (WIRE // 2) + b'\xff"]',
        "",
    ),
}

ENCODED: dict[str, Make] = {
    "not gzip": lambda: (b"[]", "gzip"),
    "not zstd": lambda: (b"[]", "zstd"),
    "not brotli": lambda: (b"\xff\xff\xff", "br"),
    "brotli that says it is gzip": lambda: (brotli.compress(b"[]"), "gzip"),
    "an encoding within an encoding": lambda: (gzip.compress(gzip.compress(b"[]")), "gzip"),
    "gzip cut off": lambda: (gzip.compress(b"[]" * 1_000)[:-9], "gzip"),
    "zstd cut off": lambda: (zstd.compress(b"[]" * 1_000)[:-3], "zstd"),
    "brotli cut off": lambda: (brotli.compress(b"[]" * 1_000)[:-3], "br"),
    "a hundred thousand members": lambda: (gzip.compress(b"") * 100_000, "gzip"),
    "a hundred thousand frames": lambda: (zstd.compress(b"") * 100_000, "zstd"),
    "gzip that opens to 20 MB of brackets": opened_to(b"[" * OPENED, "gzip"),
    "zstd that opens to 20 MB of brackets": opened_to(b"[" * OPENED, "zstd"),
    "zstd that opens to 20 MB of elements": opened_to(b"[" + _times(b"1,", OPENED) + b"1]", "zstd"),
    "zstd that opens to one object of 20 MB": opened_to(
        b"{" + _times(b'"a":1,', OPENED) + b'"a":1}', "zstd"
    ),
    "zstd that opens to 20 MB beside events": opened_to(
        b'{"a":[' + _times(b"1,", OPENED) + b'1],"events":[]}', "zstd"
    ),
    "zstd that opens to 20 MB in a string": opened_to(b'["' + b"a" * OPENED + b'"]', "zstd"),
    "zstd that opens to 20 MB of escapes": opened_to(
        b'[{"id":"' + _times(b"\\u0041", OPENED) + b'"}]', "zstd"
    ),
    "zstd that opens to lines of brackets": opened_to(b"\n".join([b"[" * 900_000] * 22), "zstd"),
}

# Valid bodies: they cost as much as ordinary events of the same size, and are accepted.
COSTLY: dict[str, Make] = {
    "events of nothing but empty objects": lambda: (
        b"[" + b",".join([b'{"a":[' + b"{}," * 300_000 + b"{}]}"] * 5) + b"]",
        "",
    ),
    "zstd that opens to 20 events of a million brackets": opened_to(
        b"[" + b",".join([b'{"a":[' + b"[]," * 320_000 + b"[]]}"] * 20) + b"]", "zstd"
    ),
}

BOMBS: dict[str, Make] = {
    f"{name} bomb of {text}": lambda make=make, size=size, name=name: (make(size), name)
    for name, make in (("gzip", gzip_bomb), ("zstd", zstd_bomb), ("br", brotli_bomb))
    for text, size in (
        ("10 MB", 10 * MB),
        ("100 MB", 100 * MB),
        ("1 GB", 1_000 * MB),
        ("10 GB", 10_000 * MB),
    )
} | {"zstd bomb of 1 GB in one frame": lambda: (zstd_bomb_of_one_frame(1_000 * MB), "zstd")}
