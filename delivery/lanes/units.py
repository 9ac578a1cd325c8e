"""What a Spark job of ours sends: units, each of one Kafka partition for some destinations."""

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

# How long an answer is waited for where others may want the slot. Whoever lets one wait for half of
# that is slow (ADR 0051).
PATIENCE_S = 2.0


class JobKind(StrEnum):
    """With whom a destination shares jobs, by how it fares."""

    # It is well, and near the end of its stream.
    SHARED = "shared"
    # The same, in real time.
    FOLLOWING = "following"
    # It answers slowly or not at all: whoever shares with it may have to wait.
    APART = "apart"
    # It has much to send, and shares with nobody.
    ALONE = "alone"


def worker_of(destination: str, worker_count: int) -> int:
    """Which of the worker processes has its connections open, and knows how it fares."""
    # Slots are the hash's remainder, so that those of one slot have all workers nevertheless.
    return zlib.crc32(destination.encode()) // SLOT_COUNT % worker_count


class Strand(NamedTuple):
    """A destination's way through one Kafka partition: the least that has a position."""

    destination: str
    where: KafkaPartition


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets that go to one destination."""

    begin: int
    # None: whatever comes, for as long as the job follows the log.
    end: int | None
    # Offsets below may have been sent.
    maybe_sent: int = 0
    # What has become of the first event, if it is that for which all others wait.
    held: History | None = None
    # Which of its strand's spans it is: no other one has the same, whoever planned it. 0: none.
    number: int = field(default=0, compare=False)
    # In which topic they are, by Kafka's id.
    life: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is read once of a Kafka partition, for destinations that are near each other in it."""

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
    """Units by task. Those of one Kafka partition are far apart in it, or in other jobs."""

    kind: JobKind
    tasks: Sequence[Sequence[Unit]]
    # Which of the worker processes of its kind is to run it; None: any.
    worker: int | None = None
    # No answer is waited for longer than PATIENCE_S.
    is_hurried: bool = False
    # How long units without an end follow the log.
    follow_s: float = 0.0

    @property
    def units(self) -> Sequence[Unit]:
        return [unit for task in self.tasks for unit in task]

    def place(self, worker_count: int) -> int:
        """The number of a worker that is near those who are to run it."""
        if self.worker is not None:
            return self.worker
        return worker_of(next(iter(self.units[0].spans)), worker_count)


@dataclass(frozen=True, slots=True)
class Orders:
    """What all tasks of a job need to know; it travels to the workers with the job."""

    bootstrap_servers: str
    destinations: Mapping[str, Destination]
    # Whose they are.
    tenants: Mapping[str, str]
    # What the state topic knows of them.
    flows: Mapping[str, FlowRecord]
    # Those that may be sent single events without a look at their flow: in each of their Kafka
    # partitions one at once is not more than they allow.
    unasked: frozenset[str]
    # Destinations that only park just now.
    resting: frozenset[str]
    flow_folder: Path
    schedule: RetrySchedule
    time_box_s: float
    # How long units without an end follow the log.
    follow_s: float
    # Until then nobody else sends to them, by the clock; what leaves later says that it may be a
    # repeat.
    ours_until_ms: int
    allows_private: bool
    # How often others hear of one that fares as before.
    publish_every_ms: int
    # Which broker leads each Kafka partition.
    leaders: Mapping[KafkaPartition, int]
    # From which offset on a job is told that it may follow for longer; None: it is not.
    terms_at: int | None = None
    # How long an answer is waited for; None: as long as the destination's owner has set.
    patience_s: float | None = None

    def of(self, units: Sequence[Unit]) -> "Orders":
        """What a task of these units needs of them."""
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
    """How a destination is to be sent to now."""

    destination: Destination
    kind: JobKind
    # The most events of all Kafka partitions together that it can take in a unit's time.
    events_max: int
    # It only parks: once in such a while is enough.
    rest_s: float = 0.0
    # The tenant of its stream, who may have so many slots and no more.
    tenant: str = ""
    # The most Kafka partitions that have a part of that: each has a request of its own at least.
    strands_max: int = 1_000_000


class TaskEnd(NamedTuple):
    """How a task ended: each of its strands, and what its worker has had of a processor."""

    reports: Sequence["StrandEnd"]
    times: ProcessorTime


class StrandEnd(NamedTuple):
    """How a strand ended in a task: how far it is, how many events it had, what went wrong."""

    strand: Strand
    at: int
    event_count: int = 0
    error: str = ""
    # What it was to read next is gone from Kafka.
    is_data_lost: bool = False
    # What has kept its place, and all behind it.
    block: Block | None = None
