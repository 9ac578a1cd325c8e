"""Encodes the numbers, values and headers of Kafka records."""

from functools import lru_cache

from shared.event.record import Headers

# The length of a missing key or value.
NOTHING = b"\x01"
# No attributes, and the batch's timestamp: the broker sets its own anyway.
NO_ATTRIBUTES = b"\0\0"
SMALL_MAX = 16_384


def varint(number: int) -> bytes:
    """Encode a whole number as Kafka does: zigzag, seven bits in a byte."""
    left = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while left > 0x7F:  # noqa: PLR2004 - seven bits
        encoded.append(0x80 | left & 0x7F)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


# Covers nearly all lengths and offsets.
SMALL = [varint(number) for number in range(SMALL_MAX)]


def pack_count(number: int) -> bytes:
    """Encode a length or a count."""
    return SMALL[number] if number < SMALL_MAX else varint(number)


def pack_headers(headers: Headers) -> bytes:
    """Encode headers for a record, with their count."""
    return pack_count(len(headers)) + b"".join(
        pack_header(name) + pack_count(len(value)) + value for name, value in headers
    )


@lru_cache(maxsize=100)
def pack_header(name: str) -> bytes:
    """Encode the name of a header, which precedes its value."""
    return pack_count(len(name.encode())) + name.encode()


def pack_value(value: bytes) -> bytes:
    return pack_count(len(value)) + value
