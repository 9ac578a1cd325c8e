"""Defines the contents of our Spark jobs: units of one Kafka partition for some destinations."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from delivery.settling import Block
from shared.config.destination import Destination
from shared.event.envelope import History
from shared.event.record import KafkaPartition
from shared.flow.flow_record import FlowRecord
from shared.retry.schedule import RetrySchedule
from shared.runtime.spark.processor_time import ProcessorTime
from shared.slots import SLOT_COUNT

# How long to wait for an answer where others may need the task place. A destination that takes half
# of this time is slow (ADR 0051).
PATIENCE_S = 2.0


class JobKind(StrEnum):
    """How a destination shares jobs with others, by its health."""

    # The destination is healthy, and near the end of its stream.
    SHARED = "shared"
    # The same, in real time.
    FOLLOWING = "following"
    # It answers slowly or not at all: destinations that share jobs with it may have to wait.
    APART = "apart"
    # It has many events to send, and shares jobs with nobody.
    ALONE = "alone"


def worker_of(destination: str, worker_count: int) -> int:
    """Return the worker process that keeps a destination's connections, and knows its health."""
    # Slots are the hash's remainder, so the quotient spreads one slot's destinations over workers.
    return zlib.crc32(destination.encode()) // SLOT_COUNT % worker_count


class Strand(NamedTuple):
    """A destination's progress in one Kafka partition: the smallest unit with a position."""

    destination: str
    where: KafkaPartition


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets that go to one destination."""

    begin: int
    # With None the span has no end: it takes all events while the job follows the log.
    end: int | None
    # Events below this offset may have been sent.
    maybe_sent: int = 0
    # The first event's history, if all others wait for that event.
    waiting: History | None = None
    # The span's number, unique among the spans of its strand, also across processes. 0: no number.
    number: int = field(default=0, compare=False)
    # Kafka's id of the topic that the offsets are in.
    life: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of a Kafka partition that is read once, for destinations near each other in it."""

    where: KafkaPartition
    spans: Mapping[str, Span]

    @property
    def strands(self) -> Sequence[Strand]:
        return [Strand(name, self.where) for name in self.spans]

    @property
    def begin(self) -> int:
        return min(span.begin for span in self.spans.values())

    @property
    def end(self) -> int | None:
        ends = [span.end for span in self.spans.values()]
        return None if None in ends else max(filter(None, ends))


@dataclass(frozen=True, slots=True)
class Job:
    """The units of each task; any two of one Kafka partition are far apart in it."""

    kind: JobKind
    tasks: Sequence[Sequence[Unit]]
    # The number of the worker process of its kind that is to run it; any worker if this is None.
    worker: int | None = None
    # Whether it waits at most PATIENCE_S for an answer.
    is_hurried: bool = False
    # How long units without an end follow the log.
    follow_s: float = 0.0

    @property
    def units(self) -> Sequence[Unit]:
        return [unit for task in self.tasks for unit in task]

    def place(self, worker_count: int) -> int:
        """Return the number of the worker that is to run the job, or of a likely one."""
        if self.worker is not None:
            return self.worker
        return worker_of(next(iter(self.units[0].spans)), worker_count)


@dataclass(frozen=True, slots=True)
class Orders:
    """The instructions for all tasks of a job; they travel to the workers with the job."""

    bootstrap_servers: str
    destinations: Mapping[str, Destination]
    # The tenants of the destinations.
    tenants: Mapping[str, str]
    # Their flows in the state topic.
    flows: Mapping[str, FlowRecord]
    # Destinations that may get single events without a look at their flow: they allow at least one
    # concurrent request for each of their Kafka partitions.
    unasked: frozenset[str]
    # Destinations whose events are only parked at present.
    resting: frozenset[str]
    flow_folder: Path
    schedule: RetrySchedule
    time_box_s: float
    # How long units without an end follow the log.
    follow_s: float
    # Until then, by the clock, no other process sends to these destinations; requests that leave
    # later say that they may be repeats.
    ours_until_ms: int
    allows_private: bool
    # How often the unchanged state of a destination is published.
    publish_every_ms: int
    # The broker that leads each Kafka partition.
    leaders: Mapping[KafkaPartition, int]
    # The offset from which a job reads the terms that let it follow for longer, if there are any.
    terms_at: int | None = None
    # How long to wait for an answer; by default as long as the destination's owner has set.
    patience_s: float | None = None

    def of(self, units: Sequence[Unit]) -> "Orders":
        """Return the part of the orders that a task of these units needs."""
        names = {name for unit in units for name in unit.spans}
        return replace(
            self,
            destinations={name: self.destinations[name] for name in names},
            tenants={name: self.tenants[name] for name in names},
            flows={name: self.flows[name] for name in names & self.flows.keys()},
            unasked=self.unasked & names,
            resting=self.resting & names,
        )


@dataclass(frozen=True, slots=True)
class Lane:
    """How to send to a destination at present."""

    destination: Destination
    kind: JobKind
    # The maximum number of events that it can take in a unit's time, from all Kafka partitions.
    events_max: int
    # Its events are only parked, so one job in this time is enough.
    rest_s: float = 0.0
    # The tenant of its stream, whose number of task places is limited.
    tenant: str = ""
    # The most Kafka partitions that share `events_max`: each has at least one request of its own.
    strands_max: int = 1_000_000


class TaskEnd(NamedTuple):
    """How a task ended: the reports of its strands, and its worker's processor time."""

    reports: Sequence["StrandEnd"]
    times: ProcessorTime


class StrandEnd(NamedTuple):
    """How a strand ended in a task: its offset, its number of events, its error."""

    strand: Strand
    at: int
    event_count: int = 0
    error: str = ""
    # Whether the events that it was to read next are gone from Kafka.
    is_data_lost: bool = False
    # The event that keeps its place and blocks all behind it.
    block: Block | None = None
