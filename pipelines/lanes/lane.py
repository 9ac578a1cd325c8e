"""Holds the state of one pipeline's way through its stream. Pure."""

from dataclasses import dataclass, field
from math import inf

from pipelines.lanes.archived_ranges import ArchivedRanges
from pipelines.lanes.gathering import Gathering
from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka.leases.fenced_positions import Reach

# A pipeline that was at work when an executor ended rests for this many times as long as it ran, at
# most this long: another executor starts, and others work. One that ran for a moment goes first.
_RESTS_TIMES, _RESTS_S_MAX = 2.0, 20.0


@dataclass(slots=True)
class PipelineLane:
    """A pipeline's way through its stream."""

    id: str
    tenant: str
    # Tells a lane that left and came back from its former self, whose jobs must not speak for it.
    life: int
    # The most events of each Kafka partition in an own job, by how long the last one took.
    events_max: int
    # For a lane that writes to a sink: ranges that are not done yet are repeated as they were.
    gathering: Gathering | None = None
    # The most events of each Kafka partition in a job of a lane that keeps state; 0: it keeps none.
    # It has jobs of its own, so that others' rows do not wait while its state is put together.
    keeps: int = 0
    reaches: dict[KafkaPartition, Reach] = field(default_factory=dict)
    # True until it has shown that it is well: a failing new lane must hold up no other.
    is_apart: bool = True
    # Its events that cannot be worked on: the range is cut until it is one event.
    cut_to: dict[KafkaPartition, int] = field(default_factory=dict)
    # It may have ended an executor, and has the next one to itself until it is well.
    is_suspect: bool = False
    # How often it has ended one alone, less its good jobs since; and the ends of the ranges in
    # which it did.
    offences: int = 0
    guilty_to: dict[KafkaPartition, int] = field(default_factory=dict)
    is_under_way: bool = False
    last_s: float = -inf
    went_on_s: float = -inf
    not_before_s: float = -inf
    # How long it rests, as a suspect, once another executor has done its first job.
    rests_s: float = 0.0
    # Since when there are events that a sink has not got.
    news_since_s: float = inf
    deaths: int = 0
    # How far all must be read until it has something to write without an event.
    closes_at_ms: int | None = None
    # How far it may read: as far as the pipeline that it is to replace.
    limits: Position | None = None
    # The events to read that Kafka no longer has.
    earlier: ArchivedRanges = field(default_factory=ArchivedRanges)

    def suspect(self, now_s: float) -> None:
        """Suspect it of ending an executor while at work: others go on before it does so alone."""
        self.is_apart = self.is_suspect = True
        rests_s = min(_RESTS_TIMES * (now_s - self.last_s), _RESTS_S_MAX)
        self.rest_after_end(now_s, now_s + rests_s)

    def rest_after_end(self, now_s: float, until_s: float) -> None:
        """Rest until then, and for as long again once another executor works."""
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
        """Suspect it less after a job that ended no executor, once all guilty ranges are done."""
        if not self.guilty_to:
            self.offences = max(0, self.offences - 1)
            self.is_suspect = self.offences > 0
