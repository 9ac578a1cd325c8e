"""One retrier in memory: its loop is real; Kafka and the tasks are fakes."""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aiokafka.errors import IllegalGenerationError

from delivery.lanes.marks_log import MarksLog
from retrier.broker import Broker, BrokerTime
from retrier.known_doubts import KnownDoubts
from retrier.lane import lanes
from retrier.loop import DueQueue, RetryLoop
from retrier.service import RetrierMetrics
from retrier.settings import RetrierSettings
from retrier.task import DueJob, RangeEnd
from retrier.watch import LaneWatch
from shared.event.record import KafkaPartition, Origin, Position, RecordIn, RecordOut
from shared.event.topics import LANES, RETRIER, retry_topic, retry_topics
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from shared.runtime.kafka.leases.member import Standing
from tests.support.delivery.memory_log import MemoryLog
from tests.support.delivery.memory_outlet import MemoryOutlet

SETTINGS = RetrierSettings(folder=Path("nowhere"))
TIER, SLOW = retry_topic("30s"), retry_topic("slow")
A, B, OF_SLOW = KafkaPartition(TIER, 0), KafkaPartition(TIER, 1), KafkaPartition(SLOW, 0)
LATE_MS = 1_000_000


class StillBroker(Broker):
    """A broker whose clock is so far ahead that everything is due."""

    async def now_ms(self) -> int:
        return LATE_MS

    async def clock(self) -> BrokerTime:
        return BrokerTime(LATE_MS, 0.0)


class MemoryPositions(FencedPositions):
    """The positions of a lease group, in memory; it can refuse writes."""

    def __init__(self, known: dict[KafkaPartition, Reach]) -> None:
        self.known = known
        self.written: list[Mapping[KafkaPartition, Reach]] = []
        self.refuses = False

    async def read(self) -> dict[KafkaPartition, Reach]:
        return dict(self.known)

    async def write(
        self, reaches: Mapping[KafkaPartition, Reach], standing: Callable[[], Standing | None]
    ) -> None:
        if reaches and (self.refuses or standing() is None):
            raise IllegalGenerationError
        self.known |= reaches
        self.written += [reaches] if reaches else []


class ToldPositions(LanePositions):
    """The positions that an older retrier reported, if Kafka has any."""

    def __init__(self, former: Position | None) -> None:
        super().__init__("kept")
        self.former = former

    async def last(self, _: Collection[str]) -> Mapping[str, Position]:
        return {} if self.former is None else {RETRIER: self.former}

    async def tell(self, _: Collection[str] | None = None) -> None:
        """Report nothing: no test reads positions."""


@dataclass
class MemoryRetrier(RetryLoop):
    """One process, whose tasks behave as a test wants."""

    jobs: list[DueJob] = field(default_factory=list)
    # A task calls this instead of sending everything.
    task: Callable[[DueJob], list[RangeEnd]] | None = None

    def _submit(self, _: DueQueue, job: DueJob) -> list[RangeEnd]:
        self.jobs += [job] if job.ranges else []
        if self.task is not None:
            return self.task(job)
        return [RangeEnd(it, end, end - begin) for it, (begin, end) in job.ranges.items()]

    @property
    def kept(self) -> MemoryPositions:
        return cast("MemoryPositions", self.fenced)

    @property
    def tiers(self) -> MemoryLog:
        return cast("MemoryLog", self.log)

    @property
    def said(self) -> list[RecordOut]:
        """Return the records that were written to `hifi.lanes`."""
        return cast("MemoryOutlet", self.doubts.outlet).rows

    @property
    def told(self) -> ToldPositions:
        return cast("ToldPositions", self.positions)

    @property
    def at(self) -> dict[KafkaPartition, int]:
        return {where: reach.at for where, reach in self._reaches.items() if reach.at}

    def fill(self, count: int, *places: KafkaPartition) -> None:
        for where in places:
            first = len(self.tiers.logs[where])
            self.tiers.write(
                RecordIn(Origin(*where, first + n), 1, b"s/d", b"{}", ()) for n in range(count)
            )

    async def begin_with(self, *slots: int) -> None:
        self.member.owned |= frozenset(slots)
        self.begin(frozenset(slots))
        assert await self._look()

    async def settle(self) -> None:
        """Look once, and do all due work."""
        await self._look()
        self._start_jobs()
        while self._jobs:
            await asyncio.wait(list(self._jobs.values()))
            self._start_jobs()


def memory_retrier(
    known: Mapping[KafkaPartition, Reach] | None = None, former: Position | None = None
) -> MemoryRetrier:
    log, outlet = MemoryLog(), MemoryOutlet()
    log.make(LANES, 1)
    for topic in retry_topics(tier.name for tier in SETTINGS.schedule.tiers):
        log.make(topic, 2)
    watch = LaneWatch(RetrierMetrics(), stalled_after_s=60)
    nobody: Any = None
    return MemoryRetrier(
        nobody,
        SETTINGS,
        lanes(SETTINGS),
        watch,
        StillBroker("kept"),
        log,
        MemoryPositions(dict(known or {})),
        ToldPositions({} if former is None else former),
        KnownDoubts(log, MarksLog(log), outlet, SETTINGS.schedule.deadline_s),
    )


def answered(may_end: threading.Event) -> Callable[[DueJob], list[RangeEnd]]:
    """Return a task whose answers come late."""

    def task(job: DueJob) -> list[RangeEnd]:
        may_end.wait(60)
        return [RangeEnd(it, end, end - begin) for it, (begin, end) in job.ranges.items()]

    return task


def ranges(jobs: Iterable[DueJob], where: KafkaPartition) -> list[tuple[int, int, int]]:
    """Return the ranges sent, each with the offset up to which it was a possible repeat."""
    return [
        (*job.ranges[where], job.plan.replay_until[where]) for job in jobs if where in job.ranges
    ]
