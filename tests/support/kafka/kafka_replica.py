"""A broker's copy of a Kafka partition in `kafka_model`: finding repeats, dropping records."""

from dataclasses import dataclass, field
from typing import NamedTuple

OUT_OF_ORDER, OLD_EPOCH = 45, 47
# Kafka remembers this many batches of a producer.
_REMEMBERED = 5
_NUMBER_MASK = 2**31 - 1


class SentBatch(NamedTuple):
    """A batch as it came over the wire."""

    producer_id: int
    epoch: int
    first: int
    ids: tuple[str, ...]


class StoredBatch(NamedTuple):
    """A batch in a replica's log."""

    offset: int
    leader_epoch: int
    sent: SentBatch

    @property
    def end(self) -> int:
        return self.offset + len(self.sent.ids)


class Leadership(NamedTuple):
    """The leader and its epoch; a broker may know an old one."""

    leader: int | None
    epoch: int


@dataclass(eq=False)
class Replica:
    """A broker's copy of a Kafka partition, and the broker's beliefs about it."""

    knows: Leadership
    batches: list[StoredBatch] = field(default_factory=list)
    high_watermark: int = 0
    # While it leads: how far the others have fetched, and when each was last level with it.
    fetched: dict[int, int] = field(default_factory=dict)
    in_sync: set[int] = field(default_factory=set)
    level_at_s: dict[int, float] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def judge(self, sent: SentBatch) -> int | StoredBatch | None:
        """Return an error code, or the batch that this one repeats, or None if it is next."""
        of_producer = [b for b in self.batches if b.sent.producer_id == sent.producer_id]
        if not of_producer:
            return None
        last = of_producer[-1].sent
        if sent.epoch < last.epoch:
            return OLD_EPOCH
        if sent.epoch > last.epoch:
            return None if sent.first == 0 else OUT_OF_ORDER
        for stored in of_producer[-_REMEMBERED:]:
            same = (stored.sent.epoch, stored.sent.first, len(stored.sent.ids))
            if same == (sent.epoch, sent.first, len(sent.ids)):
                return stored
        expected = (last.first + len(last.ids)) & _NUMBER_MASK
        return None if sent.first == expected else OUT_OF_ORDER

    def truncate(self, leader: "Replica") -> int:
        """Drop batches that the leader lacks; return their number."""
        level = min(len(self.batches), len(leader.batches))
        while level and self.batches[level - 1] is not leader.batches[level - 1]:
            level -= 1
        dropped = len(self.batches) - level
        del self.batches[level:]
        return dropped

    def fetch(self, leader: "Replica") -> None:
        """Copy the leader's other batches."""
        self.batches += leader.batches[len(self.batches) :]
        self.high_watermark = min(leader.high_watermark, self.end)
