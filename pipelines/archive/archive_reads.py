"""Lets pipelines read from archives the events that Kafka no longer has.

An archive of a stream is a pipeline that keeps all its events unchanged. While a lane's position is
before the start of its log, its next events are looked up in the archives, one piece at a time.
Events that no archive has are skipped, reported and counted, as they are without an archive.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from pipelines.archive.kind import store_for
from pipelines.jobs.sink import SinkAwayError
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.lane import PipelineLane
from pipelines.settings import PipelinesSettings
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Position
from shared.event.times import rfc3339
from shared.event.topics import stream_topic
from shared.proof.archived import ArchiveId
from shared.runtime.archive.archived_log import ArchivedLog, DamagedObjectError, Piece
from shared.runtime.archive.files import UnreadableError
from shared.runtime.archive.stores import OpenStore, StoreAwayError, read_stores
from shared.runtime.kafka.leases.fenced_positions import Reach
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.topic_ids import topic_ids
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# The wait before asking a store again for objects that it did not return.
_AGAIN_S = 5.0
_TELL_S = 10.0
# Each tenant uses one thread at a time.
_THREADS = 8
# Errors that leave open whether an archive has the events.
NOT_GIVEN = (StoreAwayError, DamagedObjectError, UnreadableError, SinkAwayError)

T = TypeVar("T")
# The offsets, from and to, that neither Kafka nor an archive has.
Gone = Mapping[KafkaPartition, tuple[int, int]]


@dataclass
class ArchiveReads:
    """The archive reads of the pipelines of one process."""

    settings: PipelinesSettings
    log: LogClient
    book: PipelineBook
    configuration: Callable[[], Configuration]
    # Moves a lane past offsets that nobody has.
    pass_by: Callable[[str, Pipeline, Gone], Awaitable[None]]
    # Takes the pipeline's title, and why it gets no events; empty: it gets them again.
    say: Callable[[str, str], None]
    # Takes the title, and the archive that it reads; empty: it reads from Kafka.
    note: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self._stores = read_stores(self.settings.stores)
        folders = self.settings.store_folders
        self._folders = folders and folders.absolute()
        self._threads = ThreadPoolExecutor(_THREADS, "archive")
        self._turns: dict[str, asyncio.Lock] = {}
        self._looking: set[asyncio.Task[None]] = set()
        # Titles of pipelines whose reads are reported as failing.
        self._away: set[str] = set()
        # When each pipeline's archive was last reported.
        self._noted_s: dict[str, float] = {}

    def close(self) -> None:
        for task in self._looking:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def may_have(self, pipeline: Pipeline) -> bool:
        """Say whether there is an archive of the pipeline's stream."""
        return bool(self.configuration().archives_for(pipeline))

    async def begin(
        self, pipeline: Pipeline, found: Mapping[KafkaPartition, Reach], *, is_new: bool
    ) -> tuple[dict[KafkaPartition, Reach], Position]:
        """Return offsets to begin at, including archived ones; and later starts of Kafka's logs."""
        begins = dict(found)
        if not self.may_have(pipeline):
            return begins, {}
        starts = await self.log.starts(list(begins))
        if is_new and isinstance(pipeline.source.start, int):
            # In these partitions, Kafka may no longer have the events at the pipeline's start.
            late = [where for where, start in starts.items() if start and begins[where].at == start]
            since_ms = pipeline.source.start
            firsts = await self._in_turn(pipeline, self._first_at, late, since_ms) if late else {}
            begins |= {where: Reach(at, at) for where, at in firsts.items() if at < starts[where]}
        return begins, {where: start for where, start in starts.items() if begins[where].at < start}

    def look(self, running: Mapping[str, Pipeline]) -> None:
        """Look up in archives those lanes' next events whose place is not known."""
        for lane_id, pipeline in running.items():
            lane = self.book.lanes.get(lane_id)
            if lane is None or lane.is_under_way:
                continue
            if not lane.earlier.borders and self._noted_s.pop(pipeline.title, 0.0):
                self.note(pipeline.title, "")
            wanted = lane.earlier.unknown(lane.position)
            if wanted and time.monotonic() >= lane.not_before_s:
                lane.is_under_way = True
                task = asyncio.create_task(self._look(lane, pipeline, wanted))
                self._looking.add(task)
                task.add_done_callback(self._looking.discard)
        for gone in self._noted_s.keys() - {each.title for each in running.values()}:
            del self._noted_s[gone]

    async def _look(self, lane: PipelineLane, pipeline: Pipeline, wanted: Position) -> None:
        try:
            borders = {where: lane.earlier.borders[where] for where in wanted}
            pieces = await self._in_turn(pipeline, self._found, wanted, borders)
            if self.book.lanes.get(lane.id) is not lane:
                return
            for where, piece in pieces.items():
                lane.earlier.found(where, piece)
            begins = borders | {where: piece.first for where, piece in pieces.items()}
            if gone := {
                place: (at, begins[place]) for place, at in wanted.items() if at < begins[place]
            }:
                await self.pass_by(lane.id, pipeline, gone)
            self.given(pipeline)
            if pieces:
                self._tell(lane, pipeline, pieces)
        except NOT_GIVEN as error:
            self.not_given(pipeline, error)
            lane.not_before_s = time.monotonic() + _AGAIN_S
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            log.info("lane.not_moved", lane=lane.id, error=repr(error))
            lane.not_before_s = time.monotonic() + _AGAIN_S
        finally:
            lane.is_under_way = False

    def given(self, pipeline: Pipeline) -> None:
        """Clear the failure of a pipeline: it gets events again."""
        if pipeline.title in self._away:
            self._away.discard(pipeline.title)
            self.say(pipeline.title, "")

    def not_given(self, pipeline: Pipeline, error: Exception) -> None:
        """Report why the pipeline gets no events; `given` clears that."""
        self._away.add(pipeline.title)
        self.say(pipeline.title, str(error))
        log.warning("lane.archive_away", lane=pipeline.lane_id, error=str(error))

    def _tell(
        self, lane: PipelineLane, pipeline: Pipeline, found: Mapping[KafkaPartition, Piece]
    ) -> None:
        if (now_s := time.monotonic()) - self._noted_s.get(pipeline.title, 0.0) < _TELL_S:
            return
        self._noted_s[pipeline.title] = now_s
        archives = ", ".join(sorted({piece.archive for piece in found.values()}))
        at = rfc3339(min(piece.at_ms(piece.first) for piece in found.values()))
        left = lane.earlier.left(lane.position)
        self.note(pipeline.title, f"reads from the archive {archives} since {at}, {left:,} events")

    async def _in_turn(self, pipeline: Pipeline, work: Callable[..., T], *given: Any) -> T:
        """Run in a thread, as a store may be slow; the tenant's other reads wait for their turn."""
        async with self._turns.setdefault(pipeline.tenant, asyncio.Lock()):
            topic = stream_topic(pipeline.source.stream)
            if not (life := (await topic_ids(self.log, [topic])).get(topic)):
                raise KafkaUnavailableError(f"Kafka does not give the id of {topic}")
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, work, pipeline, life, *given)

    def _archives(self, pipeline: Pipeline, life: str) -> list[tuple[Piece, ArchiveId, OpenStore]]:
        """The archives, each with an empty piece and its store."""
        archives = []
        for each in self.configuration().archives_for(pipeline):
            store = store_for(each, self._stores)
            bucket = OpenStore(store, self.settings.secret_box, folders=self._folders)
            archive = ArchiveId(each.tenant, each.source.stream, each.name, life)
            archives.append((Piece(store, self._folders, ()), archive, bucket))
        return archives

    def _found(
        self, pipeline: Pipeline, life: str, wanted: Position, borders: Position
    ) -> dict[KafkaPartition, Piece]:
        """The next piece of each Kafka partition, from the archive that has the earliest."""
        best: dict[KafkaPartition, Piece] = {}
        for empty, archive, bucket in self._archives(pipeline, life):
            for where, at in wanted.items():
                kept = ArchivedLog(bucket, archive, where.partition)
                if objects := kept.objects(at, borders[where]):
                    piece = replace(empty, objects=tuple(objects))
                    if where not in best or piece.first < best[where].first:
                        best[where] = piece
        return best

    def _first_at(
        self, pipeline: Pipeline, life: str, places: list[KafkaPartition], at_ms: int
    ) -> Position:
        """The first offsets stored in Kafka at that time or later, where an archive has any."""
        firsts: dict[KafkaPartition, int] = {}
        for _, archive, bucket in self._archives(pipeline, life):
            for where in places:
                first = ArchivedLog(bucket, archive, where.partition).first_at(at_ms)
                if first is not None:
                    firsts[where] = min(first, firsts.get(where, first))
        return firsts
