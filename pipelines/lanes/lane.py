"""Holds what is known of one pipeline's way through its stream. Pure."""

from dataclasses import dataclass, field
from math import inf

from pipelines.lanes.earlier import EarlierEvents
from pipelines.lanes.gathering import Gathering
from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka.leases.fenced_positions import Reach

# One that was at work when an executor ended rests for this many times as long as it ran, at most
# this long: another executor starts, and others work. One that ran for a moment goes first.
_RESTS_TIMES, _RESTS_S_MAX = 2.0, 20.0


@dataclass(slots=True)
class PipelineLane:
    """A pipeline's way through its stream."""

    id: str
    tenant: str
    # It may go away and come back, and a job of before must not speak for it then.
    life: int
    # What a job of its own has of each Kafka partition, by how long the last one took.
    events_max: int
    # Of one that writes to a sink: ranges that are not done yet are done again as they were.
    gathering: Gathering | None = None
    # What it keeps of events is put together for it alone: others' rows must not wait for that. A
    # job has so many of each Kafka partition at the most; 0: it keeps nothing.
    keeps: int = 0
    reaches: dict[KafkaPartition, Reach] = field(default_factory=dict)
    # Until it has shown that it is well: what a new one cannot do must hold up nobody.
    is_apart: bool = True
    # Something that it was given could not be worked on: it is cut until that is one event.
    cut_to: dict[KafkaPartition, int] = field(default_factory=dict)
    # It may have ended an executor, and has the next one for itself until it is well.
    is_suspect: bool = False
    # How often it has ended one alone, less its good jobs since; and the ends of the ranges with
    # which it did.
    offences: int = 0
    guilty_to: dict[KafkaPartition, int] = field(default_factory=dict)
    is_under_way: bool = False
    last_s: float = -inf
    went_on_s: float = -inf
    not_before_s: float = -inf
    # How long it rests, as a suspect, from when another executor has done its first job.
    rests_s: float = 0.0
    # Since when there is something that a sink has not got.
    news_since_s: float = inf
    deaths: int = 0
    # How far all must have been read for it to have something to write without an event.
    closes_at_ms: int | None = None
    # How far it may read: as far as what it is to replace has.
    limits: Position | None = None
    # What Kafka has no more of what it is to read.
    earlier: EarlierEvents = field(default_factory=EarlierEvents)

    def suspect(self, now_s: float) -> None:
        """An executor ended while it was at work: others go on before it does so alone."""
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
        """Suspect it less after a job that ended no executor, if all of one that did is done."""
        if not self.guilty_to:
            self.offences = max(0, self.offences - 1)
            self.is_suspect = self.offences > 0
