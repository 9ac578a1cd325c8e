"""Says what a job does, and for which pipelines. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, Position, Ranges
from shared.runtime.archive.kept_log import Piece


@dataclass(frozen=True, slots=True)
class PipelineShare:
    """What a job does for one pipeline."""

    lane_id: str
    ranges: Ranges
    life: int = 0
    # Up to where this may have been done before.
    repeats: Position = field(default_factory=dict)
    # Of the logs of which there is nothing more then: when, by the brokers, they were asked.
    read_until_ms: Position = field(default_factory=dict)
    # A sink's: what it may have written is this and nothing beyond.
    is_fixed: bool = False
    # Of its ranges, where those are that Kafka has no more.
    earlier: Mapping[KafkaPartition, Piece] = field(default_factory=dict)

    def until(self, where: KafkaPartition) -> int:
        """Up to where something may have been written once this has begun."""
        _, end = self.ranges[where]
        return end if self.is_fixed else max(end, self.repeats.get(where, 0))

    @property
    def ends(self) -> Position:
        return {where: end for where, (_, end) in self.ranges.items()}

    @property
    def is_archived(self) -> bool:
        """Whether some of it comes out of an archive."""
        return bool(self.earlier)

    @property
    def count(self) -> int:
        return sum(end - begin for begin, end in self.ranges.values())

    @property
    def is_one_event(self) -> bool:
        """Nothing smaller can be worked on."""
        return self.count == 1


@dataclass(frozen=True, slots=True)
class Planned:
    """A job to be started."""

    shares: tuple[PipelineShare, ...]
    is_shared: bool
    is_elsewhere: bool = False
    # Without an event, and without Spark.
    is_quick: bool = False

    @property
    def is_of_one(self) -> bool:
        return len(self.shares) == 1
