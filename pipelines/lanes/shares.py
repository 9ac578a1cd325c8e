"""Describes what a job does, and for which pipelines. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, Position, Ranges
from shared.runtime.archive.archived_log import Piece


@dataclass(frozen=True, slots=True)
class PipelineShare:
    """The work that a job does for one pipeline."""

    lane_id: str
    ranges: Ranges
    life: int = 0
    # The offsets up to which this may have been done before.
    repeats: Position = field(default_factory=dict)
    # For logs that end with this share: when the brokers were asked for their ends.
    read_until_ms: Position = field(default_factory=dict)
    # True for a sink: it may have written exactly this range and nothing beyond.
    is_fixed: bool = False
    # The archive pieces of those ranges that Kafka no longer has.
    earlier: Mapping[KafkaPartition, Piece] = field(default_factory=dict)

    def until(self, where: KafkaPartition) -> int:
        """The offset up to which something may have been written once this has begun."""
        _, end = self.ranges[where]
        return end if self.is_fixed else max(end, self.repeats.get(where, 0))

    @property
    def ends(self) -> Position:
        return {where: end for where, (_, end) in self.ranges.items()}

    @property
    def is_archived(self) -> bool:
        """Whether some of it comes from an archive."""
        return bool(self.earlier)

    @property
    def count(self) -> int:
        return sum(end - begin for begin, end in self.ranges.values())

    @property
    def is_one_event(self) -> bool:
        """Whether it is one event: nothing smaller can be worked on."""
        return self.count == 1


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job to start."""

    shares: tuple[PipelineShare, ...]
    is_shared: bool
    is_elsewhere: bool = False
    # True for a job without events, and without Spark.
    is_quick: bool = False

    @property
    def is_of_one(self) -> bool:
        return len(self.shares) == 1
