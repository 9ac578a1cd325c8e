"""Parses header values strictly: a value that Hifi cannot have written raises ValueError."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from shared.event.record import Origin

# Only numbers as Hifi writes them: int() would also accept " 1", "1_000" and numbers of more than
# 64 bits, too large for Kafka, Arrow and JSON readers. 18 digits always fit.
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
# Longer than any id, name or reply that Hifi writes (ids have 255 characters, replies 256).
TEXT_BYTES_MAX = 8_192

T = TypeVar("T")


def if_there(headers: Mapping[str, bytes], name: str, read: Callable[[bytes], T]) -> T | None:
    return need(headers, name, read) if name in headers else None


def need(headers: Mapping[str, bytes], name: str, read: Callable[[bytes], T]) -> T:
    """Read one header; errors name the header."""
    if name not in headers:
        raise ValueError(f"header {name} is missing")
    try:
        return read(headers[name])
    except ValueError as error:
        raise ValueError(f"header {name} is not readable: {headers[name][:40]!r}") from error


def strict_text(raw: bytes) -> str:
    if not 0 < len(raw) <= TEXT_BYTES_MAX:
        raise ValueError("empty, or longer than any text that Hifi writes")
    return raw.decode()


def integer(raw: bytes) -> int:
    if not _INTEGER.fullmatch(raw):
        raise ValueError("not an integer of up to 18 digits")
    return int(raw)


def natural(raw: bytes) -> int:
    number = integer(raw)
    if number < 0:
        raise ValueError("negative")
    return number


def place_value(place: Origin) -> bytes:
    return f"{place.topic}:{place.partition}:{place.offset}".encode()


def place(raw: bytes) -> Origin:
    topic, partition, offset = raw.split(b":")
    return Origin(strict_text(topic), natural(partition), natural(offset))


def flag(raw: bytes) -> bool:
    if raw not in {b"0", b"1"}:
        raise ValueError("not 0 or 1")
    return raw == b"1"


def text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode(errors="replace")
