"""Turns rows of the ledger into entries of the index, and entries into stretches of the log.

An entry has 16 bytes: a hash of topic and name (8 bytes), and a place (8 bytes): the Kafka
partition (2 bytes), the first offset (44 bits) and the number of events from that offset on (a
power of two, 4 bits). Entries sort by their bytes. Two names may share a hash, so a search reads
the log.
"""

from collections.abc import Sequence
from hashlib import blake2s

from shared.proof.acked import AckedRow, key_hash

ENTRY_BYTES, HASH_BYTES = 16, 8
_SPAN_BITS, _PARTITION_SHIFT = 4, 48
# The longest span that one entry of a key can cover.
_SPAN_MAX = 1 << ((1 << _SPAN_BITS) - 1)


def hash_of_id(topic: str, event_id: str) -> bytes:
    return _hash(_name(topic) + event_id.encode(errors="surrogatepass"))


def hash_of_key(topic: str, key: str) -> bytes:
    return _hash(_key_name(topic) + key_hash(key.encode()).to_bytes(4, "big"))


def entries_of(value: bytes) -> tuple[str, bytes, list[tuple[int, int, int]]]:
    """Return the topic of a ledger row, its entries, and the stretches whose ids it has.

    ValueError if it is not a row.
    """
    row = AckedRow.from_bytes(value, with_ids=False)
    ids = value.partition(b"\n")[2].split(b"\n")
    parts: list[bytes] = []
    at = 0
    for part in row.slices:
        parts += _of_ids(row.topic, row.partition, part.first, ids[at : at + part.count])
        at += part.count
    if row.key_hashes and row.slices:
        first = min(part.first for part in row.slices)
        end = max(part.first + part.count for part in row.slices)
        places = [
            _place(row.partition, low, min(end - low, _SPAN_MAX))
            for low in range(first, end, _SPAN_MAX)
        ]
        name = _key_name(row.topic)
        parts += [
            _hash(name + crc.to_bytes(4, "big")) + place
            for crc in row.key_hashes
            for place in places
        ]
    known = [(row.partition, part.first, part.first + part.count) for part in row.slices]
    return row.topic, b"".join(parts), known


def entries_of_ids(topic: str, partition: int, first: int, ids: Sequence[str]) -> bytes:
    """Return the entries of events that follow one another in the log."""
    names = [event_id.encode(errors="surrogatepass") for event_id in ids]
    return b"".join(_of_ids(topic, partition, first, names))


def stretch_of(entry: bytes) -> tuple[int, int, int]:
    """Return the Kafka partition, the first offset and the end of an entry."""
    place = int.from_bytes(entry[HASH_BYTES:], "big")
    first = (place & ((1 << _PARTITION_SHIFT) - 1)) >> _SPAN_BITS
    return place >> _PARTITION_SHIFT, first, first + (1 << (place & ((1 << _SPAN_BITS) - 1)))


def _of_ids(topic: str, partition: int, first: int, ids: Sequence[bytes]) -> list[bytes]:
    name, place = _name(topic), (partition << _PARTITION_SHIFT) | (first << _SPAN_BITS)
    step = 1 << _SPAN_BITS
    places = range(place, place + step * len(ids), step)
    # This is by far most of the index's work, so it does as little as possible for each id.
    return [
        blake2s(name + event_id, digest_size=8).digest() + at.to_bytes(8, "big")
        for event_id, at in zip(ids, places, strict=True)
    ]


def _place(partition: int, first: int, count: int) -> bytes:
    place = (partition << _PARTITION_SHIFT) | (first << _SPAN_BITS) | (count - 1).bit_length()
    return place.to_bytes(8, "big")


def _name(topic: str) -> bytes:
    return topic.encode() + b"\n"


def _key_name(topic: str) -> bytes:
    # No id contains a line break, so no hash of an id has the same input.
    return topic.encode() + b"\n\n"


def _hash(name: bytes) -> bytes:
    return blake2s(name, digest_size=HASH_BYTES).digest()
