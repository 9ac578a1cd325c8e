"""Holds the state of one pipeline's progress through its stream. Pure."""

from dataclasses import dataclass, field
from math import inf

from pipelines.lanes.archived_ranges import ArchivedRanges
from pipelines.lanes.gathering import Gathering
from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka.leases.fenced_positions import Reach

# A pipeline that was at work when an executor ended rests for this many times as long as it ran, up
# to this maximum, while another executor starts and others work. So short runs are repeated first.
_RESTS_TIMES, _RESTS_S_MAX = 2.0, 20.0


@dataclass(slots=True)
class PipelineLane:
    """A pipeline's progress through its stream."""

    id: str
    tenant: str
    # Distinguishes a lane that left and came back from its former self, whose jobs no longer count.
    life: int
    # How many events of each Kafka partition an own job takes, adapted to the last job's duration.
    events_max: int
    # For a lane that writes to a sink: ranges that are not done yet are repeated unchanged.
    gathering: Gathering | None = None
    # How many events of each Kafka partition a job takes if the lane keeps state; else 0. A lane
    # with state has jobs of its own, so that others' rows do not wait while the state is merged.
    keeps: int = 0
    reaches: dict[KafkaPartition, Reach] = field(default_factory=dict)
    # Kafka's id of the topic that these are in; empty while Kafka has not named it.
    topic_id: str = ""
    # True until the lane has shown that it works: a failing new lane must delay no other.
    is_apart: bool = True
    # How many events to take of a range in which one fails: it is cut until it is one event.
    cut_to: dict[KafkaPartition, int] = field(default_factory=dict)
    # The lane may have ended an executor, and runs alone until its jobs are well.
    is_suspect: bool = False
    # How often it has ended an executor alone, minus its good jobs since then; and the ends of the
    # ranges in which it did so.
    offences: int = 0
    guilty_to: dict[KafkaPartition, int] = field(default_factory=dict)
    is_under_way: bool = False
    last_s: float = -inf
    went_on_s: float = -inf
    not_before_s: float = -inf
    # How long the lane rests, as a suspect, once another executor has done its first job.
    rests_s: float = 0.0
    # Since when there have been events that the sink has not received.
    news_since_s: float = inf
    deaths: int = 0
    # All events must be read up to this time before the lane writes something without an event.
    closes_at_ms: int | None = None
    # How far the lane may read: as far as the pipeline that it is to replace.
    limits: Position | None = None
    # The events to read that Kafka no longer has.
    earlier: ArchivedRanges = field(default_factory=ArchivedRanges)

    def suspect(self, now_s: float) -> None:
        """Suspect the lane of ending an executor: others continue first, then it runs alone."""
        self.is_apart = self.is_suspect = True
        rests_s = min(_RESTS_TIMES * (now_s - self.last_s), _RESTS_S_MAX)
        self.rest_after_end(now_s, now_s + rests_s)

    def rest_after_end(self, now_s: float, until_s: float) -> None:
        """Rest until this time, and then for as long again once another executor works."""
        self.rests_s = max(0.0, until_s - now_s)
        self.rest_until(until_s)

    def rest_for_its_job(self, now_s: float) -> None:
        """Rest for as long as its last job took."""
        self.rest_until(now_s + min(now_s - self.last_s, _RESTS_S_MAX))

    def rest_until(self, at_s: float) -> None:
        self.not_before_s = max(self.not_before_s, at_s)

    @property
    def position(self) -> Position:
        return {where: reach.at for where, reach in self.reaches.items()}

    def trust(self) -> None:
        """Suspect the lane less after a job that ended no executor, if no guilty range is left."""
        if not self.guilty_to:
            self.offences = max(0, self.offences - 1)
            self.is_suspect = self.offences > 0
