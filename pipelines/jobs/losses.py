"""Lets pipelines continue with the records that Kafka still has, after it has lost unread ones.

Retention or a person may delete the beginning of a log; a broker may have lost its end; and a topic
that was deleted and recreated begins again at 0. Pipelines do not wait for lost records: these are
unaccounted in the books, and the pipeline's state says how many were lost, and where.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from pipelines.jobs.job import Task
from pipelines.jobs.lane_states import placed
from pipelines.jobs.outcomes import owed_from
from pipelines.lanes.archived_ranges import ArchivedRanges
from pipelines.lanes.book import PipelineBook
from pipelines.metrics import PipelineMetrics
from pipelines.windows.change import KeptPosition
from pipelines.writer import SlotWriters
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import lane_group, stream_topic
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.leases.fenced_positions import Reach
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.topic_ids import topic_ids
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()


class MadeAnewError(Exception):
    """The topic was recreated since the pipeline's position was stored."""


@dataclass
class Losses:
    """The losses of the pipelines that one process runs."""

    log: LogClient
    book: PipelineBook
    writers: SlotWriters
    metrics: PipelineMetrics
    # Takes the pipeline's title, how many offsets are gone, and which.
    tell: Callable[[str, int, str], None]
    # Whether an archive may have the records that Kafka has lost.
    is_archived: Callable[[Pipeline], bool] = lambda _: False
    # The id of each topic name, as Kafka last reported it.
    _ids: dict[str, str] = field(default_factory=dict)
    _told_count: int = -1

    async def look(
        self, running: Mapping[str, Pipeline], short: Collection[tuple[str, KafkaPartition]]
    ) -> None:
        """Restart in recreated topics, and move lanes beyond the end of a log (`short`)."""
        topics = {stream_topic(pipeline.source.stream) for pipeline in running.values()}
        if short or self._told_count != self.log.told_count:
            self._told_count = self.log.told_count
            self._ids |= await topic_ids(self.log, topics)
        for lane_id, pipeline in running.items():
            if lane_id in self.book.lanes:
                await self._begin_if_new(lane_id, pipeline)
        for lane_id, where in short:
            at, end = self.book.lanes[lane_id].reaches[where].at, self.book.ends[where]
            if at > end:
                # Records written there from now on are new.
                log.error("lane.data_lost", lane=lane_id, where=where, to=end)
                self.book.move(lane_id, where, end)

    async def _begin_if_new(self, lane_id: str, pipeline: Pipeline) -> None:
        lane, now = self.book.lanes[lane_id], self._ids.get(stream_topic(pipeline.source.stream))
        if now is None or lane.is_under_way:
            return
        lane.topic_id = lane.topic_id or now
        if lane.topic_id == now:
            return
        starts = await self.log.starts(list(lane.reaches))
        if starts.keys() != lane.reaches.keys():
            return
        log.error("lane.topic_made_anew", lane=lane_id, topic_id=now)
        anew = {where: Reach(at, at) for where, at in starts.items()}
        await self._store(lane_id, pipeline, anew, topic_id=now)
        lane.reaches, lane.topic_id = anew, now
        lane.earlier = ArchivedRanges()

    async def topic_id(self, task: Task) -> str:
        """Return the id of the task's topic; MadeAnewError if it has been recreated."""
        topic, lane_id = stream_topic(task.pipeline.source.stream), task.portion.lane_id
        if (now := (await topic_ids(self.log, [topic])).get(topic)) is None:
            raise KafkaUnavailableError(f"Kafka does not name the topic {topic} at the moment.")
        self._ids[topic] = now
        lane = self.book.lanes.get(lane_id)
        if lane is not None:
            lane.topic_id = lane.topic_id or now
            if lane.topic_id != now:
                raise MadeAnewError(f"{topic} was deleted and recreated")
        return now

    async def pass_by(self, work: Iterable[Task]) -> list[Task]:
        """Skip records that Kafka has deleted before they were read; return tasks that had any.

        If an archive may have the records, continue in the archive instead.
        """
        begins = {
            task: {
                where: at
                for where, (at, _) in task.portion.ranges.items()
                if where not in task.portion.earlier
            }
            for task in work
        }
        try:
            starts = await self.log.starts(
                {where for places in begins.values() for where in places}
            )
        except AWAY:
            return []
        passing = []
        for task, places in begins.items():
            gone = {
                where: (at, starts[where])
                for where, at in places.items()
                if at < starts.get(where, at)
            }
            if gone and self.book.is_ours(task.portion):
                passing.append(task)
                lane_id = task.portion.lane_id
                if self.is_archived(task.pipeline):
                    borders = {where: start for where, (_, start) in gone.items()}
                    self.book.lanes[lane_id].earlier.hide(borders)
                else:
                    await self.pass_over(lane_id, task.pipeline, gone)
        return passing

    async def pass_over(
        self, lane_id: str, pipeline: Pipeline, gone: Mapping[KafkaPartition, tuple[int, int]]
    ) -> None:
        """Skip records that neither Kafka nor an archive has."""
        before = self.book.lanes[lane_id].reaches
        after = {
            place: Reach(start, max(start, before[place].until))
            for place, (_, start) in gone.items()
        }
        owed = owed_from(lane_id, {place: at for place, (at, _) in gone.items()}, now_ms=now_ms())
        topic_id = self.book.lanes[lane_id].topic_id
        await self._store(lane_id, pipeline, {**before, **after}, owed, topic_id=topic_id)
        for where, (_, start) in gone.items():
            self.book.move(lane_id, where, start)
        count = sum(start - at for at, start in gone.values())
        spans = ", ".join(
            f"{at} to {start - 1} of Kafka partition {where.partition}"
            for where, (at, start) in sorted(gone.items())
        )
        log.error("lane.data_lost", lane=lane_id, count=count, offsets=spans)
        self.tell(pipeline.title, count, spans)
        self.metrics.came_to(pipeline.name, {"lost": count})

    async def _store(
        self,
        lane_id: str,
        pipeline: Pipeline,
        reaches: Mapping[KafkaPartition, Reach],
        rows: Sequence[RecordOut] = (),
        *,
        topic_id: str,
    ) -> None:
        """Store the reaches now: if there is nothing left to read, no job will store them."""
        position = KeptPosition({where: reach.at for where, reach in reaches.items()}, topic_id)
        kept = [placed(pipeline, position)] if pipeline.kept_spec else []
        await self.writers.of(pipeline.name).store(rows, {lane_group(lane_id): reaches}, kept)
