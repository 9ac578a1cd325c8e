"""Starts pipelines, or resumes them where they are, in the Kafka partitions of their streams."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import structlog

from pipelines.archive.archive_reads import NOT_GIVEN, ArchiveReads
from pipelines.jobs.lane_states import Kept, LaneState, LaneStates, Stored, placed
from pipelines.jobs.sink import SinkKind
from pipelines.jobs.state_store import StateLostError, read_kept
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.gathering import Gathering
from pipelines.settings import PipelinesSettings
from pipelines.windows.change import KeptPosition
from pipelines.writer import UNWRITTEN, SlotWriters
from shared.config.destination import Start
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Position
from shared.event.topics import lane_group, stream_topic
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.topic_ids import topic_ids

log = structlog.get_logger()

# By default, Kafka forgets the position of a group without members after a week without commits.
_TELL_AGAIN_S = 3_600.0
# Events of each Kafka partition in a job whose rows are all stored in one transaction.
_ONCE_EVENTS_MAX = 2_500
# The pause after a start that failed, before it is tried again.
_AGAIN_S = 1.0


@dataclass
class Entrance:
    """Starts the pipelines that one process runs."""

    settings: PipelinesSettings
    log: LogClient
    book: PipelineBook
    keepers: LaneStates
    writers: SlotWriters
    sinks: Mapping[str, SinkKind]
    earlier: ArchiveReads
    # `is_ours` takes a pipeline's name, and `is_running` takes a lane's. The results of both may
    # change during a request to Kafka.
    is_ours: Callable[[str], bool]
    is_running: Callable[[str], bool]
    # The generation that a pipeline is to replace; 0: none.
    before: Callable[[Pipeline], int]
    # Takes the pipeline that cannot continue, and the reason.
    refuse: Callable[[Pipeline, str], None]
    # When each position was last stored.
    _told_s: dict[str, float] = field(default_factory=dict)
    # The tasks that read the kept state of lanes.
    _reading: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def entering(self, running: Mapping[str, Pipeline]) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the work for pipelines that are not started yet.

        Reading kept state or an archive may take seconds, so that runs in a task of its own.
        """
        for lane_id, pipeline in running.items():
            if not self._missing(lane_id, pipeline):
                continue
            if not (pipeline.kept_shape or self.earlier.may_have(pipeline)):
                yield self._enter(lane_id, pipeline)
            elif lane_id not in self._reading:
                self._reading[lane_id] = asyncio.create_task(self._enter_beside(lane_id, pipeline))

    def close(self) -> None:
        for task in self._reading.values():
            task.cancel()

    async def tell_again(self, running: Mapping[str, Pipeline]) -> None:
        """Store the positions of idle pipelines again, before Kafka forgets them."""
        for lane_id, pipeline in running.items():
            lane = self.book.lanes.get(lane_id)
            is_old = time.monotonic() - self._told_s.get(lane_id, 0.0) > _TELL_AGAIN_S
            if is_old and lane is not None and not lane.is_under_way:
                self._told_s[lane_id] = time.monotonic()
                position = {lane_group(lane_id): lane.reaches}
                await self.writers.of(pipeline.name).store([], position)

    def _missing(self, lane_id: str, pipeline: Pipeline) -> list[KafkaPartition]:
        """The Kafka partitions of the pipeline's stream in which it has not begun."""
        known = self.book.lanes[lane_id].reaches if lane_id in self.book.lanes else {}
        places = self.log.partitions(stream_topic(pipeline.source.stream))
        return [where for where in places if where not in known]

    async def _enter_beside(self, lane_id: str, pipeline: Pipeline) -> None:
        try:
            await self._enter(lane_id, pipeline)
        except UNWRITTEN as error:
            log.info("lane.not_started", lane=lane_id, error=repr(error))
            await asyncio.sleep(_AGAIN_S)
        except NOT_GIVEN as error:
            self.earlier.not_given(pipeline, error)
            await asyncio.sleep(_AGAIN_S)
        else:
            self.earlier.given(pipeline)
        finally:
            del self._reading[lane_id]

    async def _enter(self, lane_id: str, pipeline: Pipeline) -> None:
        """Resume at the group's positions; start new partitions as the document says."""
        missing = self._missing(lane_id, pipeline)
        if not missing or not self.is_ours(pipeline.name):
            return
        writer = self.writers.of(pipeline.name)
        # After this, no earlier owner can write any more.
        await writer.begin()
        servers = self.settings.bootstrap_servers
        reaches, is_new = await begins(servers, self.log, lane_id, pipeline.source.start, missing)
        if not reaches:
            return
        topic = stream_topic(pipeline.source.stream)
        topic_id = (await topic_ids(self.log, [topic])).get(topic, "")
        kept = None
        if lane_id not in self.book.lanes:
            try:
                stand = await read_kept(
                    servers, pipeline, is_new=is_new, before=self.before(pipeline)
                )
            except StateLostError as lost:
                self.refuse(pipeline, str(lost))
                return
            kept = stand.kept if stand else None
            if stand and stand.position.offsets:
                reaches = await self._as_kept(
                    lane_id, reaches, stand.position, topic_id, is_new=is_new
                )
                is_new = False
        reaches, borders = await self.earlier.begin(pipeline, reaches, is_new=is_new)
        begun = _begun(pipeline, kept, reaches, topic_id)
        await writer.store([], {lane_group(lane_id): reaches}, begun)
        # If the slot was lost and regained meanwhile, others may have moved the lane.
        if self.writers.of(pipeline.name) is writer and self.is_running(lane_id):
            most = _ONCE_EVENTS_MAX if pipeline.dedupe else self.settings.micro_batch_events_max
            keeps = 0 if kept is None else most
            self.book.enter(
                lane_id, pipeline.tenant, reaches, self._gathering(pipeline), keeps=keeps
            )
            self.book.lanes[lane_id].topic_id = topic_id
            self.book.lanes[lane_id].earlier.hide(borders)
            if kept is not None:
                self.keepers.by_lane[lane_id] = LaneState(pipeline.tenant, kept)
                lane = self.book.lanes[lane_id]
                lane.closes_at_ms = kept.closes_at_ms
                # Read nothing until the position of the replaced pipeline is known.
                lane.limits = {} if kept.head.is_quiet else None
            self._told_s[lane_id] = time.monotonic()
            log.info("lane.started", lane=lane_id)

    async def _as_kept(
        self,
        lane_id: str,
        found: Mapping[KafkaPartition, Reach],
        kept: KeptPosition,
        topic_id: str,
        *,
        is_new: bool,
    ) -> dict[KafkaPartition, Reach]:
        """Return the position of the kept state, which may be ahead of the group's.

        Kafka forgets a group after a week without commits, and with its topic; and a broker may
        report a group's last offset before the one that it has just committed.
        """
        starts = await self.log.starts(list(found))
        if kept.topic_id and topic_id and kept.topic_id != topic_id:
            log.error("lane.topic_made_anew", lane=lane_id, topic_id=topic_id)
            return {where: Reach(at, at) for where, at in starts.items()}
        ends = await self.log.ends(list(found))
        reaches = {}
        for where, reach in found.items():
            at = kept.offsets.get(where, starts.get(where, 0))
            # A person may have moved the group on; the state lacks what was skipped.
            at = at if is_new else max(at, reach.at)
            reaches[where] = _within(Reach(at, max(at, reach.until)), ends.get(where, at))
        if any(reaches[where].at != reach.at for where, reach in found.items()):
            log.warning("lane.position_lost", lane=lane_id, goes_on="from its kept state")
        return reaches

    def _gathering(self, pipeline: Pipeline) -> Gathering | None:
        if (output := pipeline.sink) is None:
            return None
        table, gathering = pipeline.to_database, self.sinks[output.member].gathering
        return gathering if table is None else replace(gathering, rate_per_s=table.rate_per_s)


def _begun(
    pipeline: Pipeline, kept: Kept | None, found: Mapping[KafkaPartition, Reach], topic_id: str
) -> list[Stored]:
    """Return the records to store with the first position: the state's head, and its position."""
    if kept is None or pipeline.kept_spec is None:
        return []
    position = KeptPosition({where: reach.at for where, reach in found.items()}, topic_id)
    return [(pipeline.kept_spec.name, *kept.head.record, ()), placed(pipeline, position)]


class Beginning(NamedTuple):
    """The position of a pipeline, and whether it has never had one."""

    reaches: dict[KafkaPartition, Reach]
    is_new: bool


async def begins(
    bootstrap_servers: str,
    log: LogClient,
    lane_id: str,
    start: Start,
    places: Collection[KafkaPartition],
) -> Beginning:
    """Return the lane's positions as Kafka has them; if it has none, those where the lane starts.

    Call it once nobody else writes the position: only then is the group's answer final.
    """
    positions = FencedPositions(bootstrap_servers, lane_group(lane_id))
    try:
        known = await positions.read()
    finally:
        await positions.close()
    ends = await log.ends(places)
    reaches = {
        where: _within(known[where], ends[where])
        for where in places
        if where in known and where in ends
    }
    # Partitions that a stream has gained since are read whole.
    new = [where for where in places if where not in known]
    firsts = await _firsts(log, "earliest" if known else start, new)
    reaches |= {where: Reach(at, at) for where, at in firsts.items()}
    return Beginning(reaches, is_new=not known)


async def _firsts(log: LogClient, start: Start, places: Collection[KafkaPartition]) -> Position:
    if not places:
        return {}
    if start == "earliest":
        return await log.starts(places)
    if start == "latest":
        return await log.ends(places)
    return await log.offsets_at(places, start)


def _within(reach: Reach, end: int) -> Reach:
    """Limit the reach to the log, whose end may be lost; later records at its offsets are new."""
    at = min(reach.at, end)
    return Reach(at, max(at, min(reach.until, end)))
