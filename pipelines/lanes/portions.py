"""Describes the work of a job, and the pipelines that it is for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, Position, Ranges
from shared.runtime.archive.archived_log import Piece


@dataclass(frozen=True, slots=True)
class PipelinePortion:
    """The work that a job does for one pipeline."""

    lane_id: str
    ranges: Ranges
    life: int = 0
    # The offsets up to which the work may be a repeat.
    repeats: Position = field(default_factory=dict)
    # For logs that this portion reads to their ends: when those ends were fetched.
    read_until_ms: Position = field(default_factory=dict)
    # True for a sink: it may have written exactly this range and nothing beyond.
    is_fixed: bool = False
    # The archive pieces of those ranges that Kafka no longer has.
    earlier: Mapping[KafkaPartition, Piece] = field(default_factory=dict)

    def until(self, where: KafkaPartition) -> int:
        """The offset up to which rows may have been written once the job has begun."""
        _, end = self.ranges[where]
        return end if self.is_fixed else max(end, self.repeats.get(where, 0))

    @property
    def ends(self) -> Position:
        return {where: end for where, (_, end) in self.ranges.items()}

    @property
    def is_archived(self) -> bool:
        """Whether some of its events come from an archive."""
        return bool(self.earlier)

    @property
    def count(self) -> int:
        return sum(end - begin for begin, end in self.ranges.values())

    @property
    def is_one_event(self) -> bool:
        """Whether the portion is a single event, which cannot be cut further."""
        return self.count == 1


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job to start."""

    portions: tuple[PipelinePortion, ...]
    is_shared: bool
    is_elsewhere: bool = False
    # True for a job without events, and without Spark.
    is_quick: bool = False

    @property
    def is_of_one(self) -> bool:
        return len(self.portions) == 1
