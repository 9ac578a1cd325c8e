"""Reads and writes how far each strand is: the position of a lane, in Kafka.

A mark is a record of a compacted topic. Before a unit is sent, it says how far that may go;
afterwards, how far it went. Whoever goes on knows by it where, and what may have been sent already.
"""

import msgspec

from delivery.lanes.units import Strand
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import LANES, stream_and_name, stream_topic

# How far a unit goes that follows the log.
OPEN = 2**62


class Mark(msgspec.Struct, frozen=True):
    """How far a strand is, and how far it may have sent."""

    at: int
    until: int


# It is to begin where its destination says, as soon as Kafka tells where that is.
TO_BEGIN = Mark(-1, -1)
_DECODER = msgspec.json.Decoder(Mark)


def mark_record(strand: Strand, mark: Mark) -> RecordOut:
    key = f"{strand.destination}:{strand.where.partition}".encode()
    return RecordOut(LANES, key, msgspec.json.encode(mark))


def open_mark(key: bytes, value: bytes | None) -> tuple[Strand, Mark | None] | None:
    """The strand that a record speaks of, and its mark, if it has one; None: it cannot be read."""
    destination, _, number = key.decode(errors="replace").rpartition(":")
    try:
        where = KafkaPartition(stream_topic(stream_and_name(destination)[0]), int(number))
        return Strand(destination, where), _DECODER.decode(value) if value else None
    except ValueError:
        return None
