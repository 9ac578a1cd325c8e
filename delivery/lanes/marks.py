"""Reads and writes the position of each strand of a lane, in Kafka.

A mark is a record of a compacted topic. Before a unit is sent, it holds the end that the unit may
reach; afterwards, the offset that it has reached. From that, the next owner knows where to resume,
and which events may have been sent.
"""

from functools import lru_cache

import msgspec
from msgspec import structs

from delivery.lanes.units import Strand
from shared.event.envelope import History
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import LANES, stream_and_name, stream_topic

# The end of a unit that follows the log.
OPEN = 2**62
# Each strand is looked up several times a second.
_STRANDS_MAX = 65_536


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """A strand's position, and the offset up to which it may have sent events."""

    at: int
    until: int
    # The number of the span that followed the log up to this position, and has stopped.
    done: int | None = None
    # Whether it was written after its unit's lease had ended: others may already have continued.
    late: bool = False
    # The history of the event at the position, if all events behind wait for that one.
    waiting: History | None = None
    # How long that event waits from the time at which the broker stored the mark.
    wait_ms: int = 0
    # Kafka's id of the topic: one that is recreated under the same name has another id.
    life: str = ""

    def after(self, before: "Mark | None") -> "Mark":
        """Return the mark that is valid once both have been written.

        If this one is late, so is the result, because the log may keep only this one.
        """
        if before is None or not self.late:
            return self
        if before.life and self.life != before.life:
            return structs.replace(before, late=True)
        at, until = max(before.at, self.at), max(before.until, self.until)
        return Mark(at, until, late=True, life=self.life)

    def says_less(self, than: "Mark") -> bool:
        """Say whether it is behind another; a late mark always is.

        Compaction may keep only the late one, so the other must then be written again.
        """
        return self.late or (self.at, self.until) < (than.at, than.until)

    def is_in(self, life: str) -> bool:
        """Say whether its topic may have this id; an unknown id matches any."""
        return not self.life or not life or self.life == life


# The strand is to begin where its destination says, once Kafka reports the offset of that place.
TO_BEGIN = Mark(-1, -1)
_DECODER = msgspec.json.Decoder(Mark)


def mark_key(strand: Strand) -> bytes:
    return f"{strand.destination}:{strand.where.partition}".encode()


def mark_record(strand: Strand, mark: Mark) -> RecordOut:
    return RecordOut(LANES, mark_key(strand), msgspec.json.encode(mark))


def open_mark(key: bytes, value: bytes | None) -> tuple[Strand, Mark | None] | None:
    """Return a record's strand and its mark, if it has one, or None if it cannot be read."""
    try:
        return _strand_of(key), _DECODER.decode(value) if value else None
    except ValueError:
        return None


@lru_cache(_STRANDS_MAX)
def _strand_of(key: bytes) -> Strand:
    destination, _, number = key.decode(errors="replace").rpartition(":")
    where = KafkaPartition(stream_topic(stream_and_name(destination)[0]), int(number))
    return Strand(destination, where)
