"""Packs events into one Kafka record batch (format version 2), byte for byte.

aiokafka has its own builder, but it spends more time on a record than the gateway spends on the
rest of an event. Here, parts that all events of a request share (most headers) are encoded once.
aiokafka's checksum runs at 1.4 GB/s; this one uses the processor's instruction (20 GB/s).
"""

import struct
from collections.abc import Sequence

import google_crc32c

from gateway.intake.events import Event
from gateway.intake.plain_events import PlainEvents
from gateway.intake.record_encoding import (
    NO_ATTRIBUTES,
    NOTHING,
    SMALL,
    SMALL_MAX,
    pack_count,
    varint,
)

# The head of a batch: baseOffset, length, leaderEpoch, magic and the checksum of the rest; then
# attributes, lastOffsetDelta, first and last timestamp, producer id, epoch and sequence, count.
_UNCHECKED, _CHECKED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_HEAD_BYTES = _UNCHECKED.size + _CHECKED.size
# The length does not count these bytes, which are the offset and the length itself.
_LENGTH_FROM = 12
_MAGIC = 2


class RecordBatch:
    """A batch that is filled, and then built once."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._count = 0
        self._size = _HEAD_BYTES
        self._time_ms = 0
        self._built: tuple[bytes, bytes] | None = None

    @property
    def count(self) -> int:
        return self._count

    @property
    def byte_count(self) -> int:
        return self._size

    def fill(self, records: Sequence[Event], now_ms: int) -> int:
        """Append records until the batch is full; the first one always fits."""
        if self._built is not None:
            return 0
        if not self._count:
            self._time_ms = now_ms
        if type(records) is PlainEvents:
            columns = records.pack(first=self._count, room=self._bytes_max - self._size)
            # If not even the first record fits, the code below appends it anyway.
            if columns is not None and (columns[1] or self._count):
                self._parts += columns[0]
                self._count += columns[1]
                self._size += columns[2]
                return columns[1]
        parts, size, bytes_max, small = self._parts, self._size, self._bytes_max, SMALL
        begun = count = self._count
        for record in records:
            key, value, headers = record.key, record.value, record.packed_headers
            packed_key = NOTHING if key is None else pack_count(len(key)) + key
            value_bytes = len(value)
            packed_length = small[value_bytes] if value_bytes < SMALL_MAX else varint(value_bytes)
            if not value_bytes:
                # In Kafka, the deletion of a table's row has a null value.
                packed_length = NOTHING
            at = small[count] if count < SMALL_MAX else varint(count)
            length = 2 + len(at) + len(packed_key) + len(packed_length) + value_bytes + len(headers)
            packed = small[length] if length < SMALL_MAX else varint(length)
            size += len(packed) + length
            if size > bytes_max and count:
                size -= len(packed) + length
                break
            parts += (packed + NO_ATTRIBUTES + at + packed_key + packed_length, value, headers)
            count += 1
        self._count, self._size = count, size
        return count - begun

    def build(
        self, producer_id: int = -1, producer_epoch: int = -1, first_number: int = -1
    ) -> tuple[bytes, bytes]:
        """Return the batch's bytes in two pieces, head and records; the same for every attempt."""
        if self._built is None:
            records = b"".join(self._parts)
            self._parts.clear()
            checked = _CHECKED.pack(
                0,
                self._count - 1,
                self._time_ms,
                self._time_ms,
                producer_id,
                producer_epoch,
                first_number,
                self._count,
            )
            checksum = google_crc32c.extend(google_crc32c.value(checked), records)
            length = _HEAD_BYTES - _LENGTH_FROM + len(records)
            self._built = _UNCHECKED.pack(0, length, -1, _MAGIC, checksum) + checked, records
        return self._built
