"""Encodes a produce request and decodes its answer.

aiokafka encodes a request from the inside out and copies each batch at each level. At full load,
those copies cost as much as reading the events.
"""

import struct
from collections.abc import Collection, Sequence
from io import BytesIO
from typing import Any, NamedTuple, Self

import msgspec
from aiokafka.protocol.produce import ProduceRequest_v7

from shared.event.record import KafkaPartition
from shared.runtime.kafka.log_client import rows_by_topic

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_ALL_REPLICAS = -1
_NO_TRANSACTION = b"\xff\xff"
_COUNT, _LENGTH, _BATCH = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">ii")
# Number of the Kafka partition, error code, offset, append time, start of the log.
_OUTCOME = struct.Struct(">ihqqq")


class BatchOutcome(NamedTuple):
    """Kafka's answer for a batch: an error code, or the offset of its first record."""

    code: int
    offset: int


class ProduceAnswer(dict[KafkaPartition, BatchOutcome]):
    """A broker's answer for a request's batches."""

    @classmethod
    def decode(cls, answer: BytesIO) -> Self:
        outcomes = cls()
        for topic, rows in rows_by_topic(answer.read(), 0, row_bytes=_OUTCOME.size):
            for number, code, offset, _, _ in _OUTCOME.iter_unpack(rows):
                outcomes[KafkaPartition(topic, number)] = BatchOutcome(code, offset)
        return outcomes


class Handover(msgspec.Struct, eq=False):
    """The progress of a batch: whether Kafka may have it, and whether Kafka may still get it."""

    # Bytes of it were written, and no answer has refused them.
    may_be_stored: bool = False
    # A sender was already told that Kafka did not confirm in time, so the batch is not written now.
    is_over: bool = False


class Parcel(NamedTuple):
    """A batch in pieces, with its Kafka partition."""

    place: KafkaPartition
    pieces: Sequence[bytes]
    handover: Handover

    @property
    def byte_count(self) -> int:
        return sum(map(len, self.pieces))


class SendBatches(ProduceRequest_v7):  # type: ignore[misc]  # aiokafka has no annotations
    """Sends batches for different Kafka partitions, to be stored by all replicas."""

    RESPONSE_TYPE = ProduceAnswer

    def __init__(self, parcels: Collection[Parcel], *, timeout_ms: int) -> None:
        self.parcels = parcels
        self._timeout_ms = timeout_ms

    def prepare(self, _: Any) -> Self:
        """Keep this version, which all current brokers support."""
        return self

    def encode(self) -> "UnjoinedRequest":
        """Encode batches not given up; aiokafka writes them in the same turn of the loop."""
        by_topic: dict[str, list[Parcel]] = {}
        for parcel in self.parcels:
            if not parcel.handover.is_over:
                parcel.handover.may_be_stored = True
                by_topic.setdefault(parcel.place.topic, []).append(parcel)
        parts: list[bytes] = [
            _NO_TRANSACTION,
            _ACKS_AND_TIMEOUT.pack(_ALL_REPLICAS, self._timeout_ms),
            _COUNT.pack(len(by_topic)),
        ]
        for topic, parcels in by_topic.items():
            name = topic.encode()
            parts += (_LENGTH.pack(len(name)), name, _COUNT.pack(len(parcels)))
            for parcel in parcels:
                parts += (_BATCH.pack(parcel.place.partition, parcel.byte_count), *parcel.pieces)
        return UnjoinedRequest(parts)


class UnjoinedRequest:
    """A request's bytes while aiokafka adds its header and then its size before them.

    `size + (header + request)` would copy a request of megabytes twice; this class joins all parts
    once, at the second addition.
    """

    def __init__(self, parts: list[bytes], *, has_header: bool = False) -> None:
        self.parts = parts
        self._has_header = has_header

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __radd__(self, before: bytes) -> "UnjoinedRequest | bytes":
        parts = [before, *self.parts]
        return b"".join(parts) if self._has_header else UnjoinedRequest(parts, has_header=True)
