"""Decides how we learn which features a Kafka cluster has on; our client cannot tell, so we ask.

One request of Kafka's protocol, ApiVersions version 3 (KIP-511, KIP-584): every broker since 2.4
answers it.
"""

import asyncio
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_API_VERSIONS_KEY, _VERSION = 18, 3
_FINALIZED_FEATURES_TAG = 2
_ANSWER_TIMEOUT_S = 5.0
# Sixty kinds of request of 7 bytes each and ten features: 1 KB. A stranger may answer anything.
_ANSWER_BYTES_MAX = 65_536


async def finalized_features(address: str) -> dict[str, int] | None:
    """Each finalized feature's level; None when the first broker that answers does not say."""
    for one in address.split(","):
        host, _, port = one.strip().rpartition(":")
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return _read(await _exchange(host.strip("[]"), int(port)))
        except (OSError, ValueError, EOFError, IndexError, struct.error):
            # TimeoutError is an OSError, an incomplete read an EOFError.
            continue
    return None


async def _exchange(host: str, port: int) -> bytes:
    client = b"hifi"
    compact = bytes([len(client) + 1]) + client
    request = (
        struct.pack(">hhih", _API_VERSIONS_KEY, _VERSION, 1, len(client)) + client + b"\0"
        # Software name and version, and no tagged fields.
        + compact + compact + b"\0"
    )  # fmt: skip
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 < size <= _ANSWER_BYTES_MAX:
            raise ValueError(f"{size} bytes are no answer")
        return await reader.readexactly(size)
    finally:
        writer.close()


def _read(answer: bytes) -> dict[str, int]:
    cursor = _Cursor(answer)
    cursor.take(4)  # the number of our request
    if cursor.number(">h") != 0:
        raise ValueError("the broker refused to say")
    for _ in range(cursor.varint() - 1):
        cursor.take(6)  # a kind of request, and its lowest and highest version
        cursor.tags()
    cursor.take(4)  # how long we should have waited
    found: dict[str, int] = {}

    def read_features(tag: int, inside: "_Cursor") -> None:
        if tag == _FINALIZED_FEATURES_TAG:
            for _ in range(inside.varint() - 1):
                name = inside.take(inside.varint() - 1).decode()
                found[name] = inside.number(">h")
                inside.take(2)  # the lowest level that the cluster can go back to
                inside.tags()

    cursor.tags(read_features)
    return found


class _Cursor:
    """Reads Kafka's compact encoding from front to back."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._raw):
            raise ValueError("the answer is too short")
        return self._raw[self._at - count : self._at]

    def number(self, form: str) -> int:
        (number,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(number)

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the high bit says that more follows
                return number
            shift += 7

    def tags(self, read: "Callable[[int, _Cursor], None]" = lambda _tag, _inside: None) -> None:
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            read(tag, _Cursor(self.take(size)))
