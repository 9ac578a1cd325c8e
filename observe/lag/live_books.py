"""Keeps every destination's books as receipts come, against the log and the lanes' positions.

A lane's position is fetched first, and then all receipts up to now are read: otherwise events that
the lane has just delivered and passed would look lost. Nothing here asks Spark.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import structlog

from observe.lag.progress import Progress
from shared.config.configuration import Configuration, RemovedDestination
from shared.event.record import KafkaPartition, Origin, Ranges
from shared.event.topics import RECEIPTS, RESTORES, RETRIER, stream_and_name, stream_topic, topic_of
from shared.proof.balance import Balance
from shared.proof.overview import PipelineView, RemovedView, UnknownView
from shared.proof.receipt import receipts_of
from shared.proof.restored import Restores
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import Follow, KafkaReader, open_reader

log = structlog.get_logger()

# Values of records, by topic.
Values: TypeAlias = Mapping[str, list[bytes]]

# Seconds to wait for followed records, if there are none yet.
POLL_S = 0.2
# Room for a record and its neighbours; a peek needs only one record.
_PEEK_BYTES = 65_536
_PEEK_S = 2.0


@dataclass(slots=True)
class LiveBooks:
    """The proven progress of each destination so far. Created by `open_books`."""

    # Follows receipts, and the other topics that are read with them.
    _follow: Follow
    _peeker: KafkaReader
    _groups: LaneGroups
    _configuration: Callable[[], Configuration]
    _progress: dict[str, Progress] = field(default_factory=dict)
    # The starts and ends of the streams' logs when they were last read, by topic.
    _logs: dict[str, dict[KafkaPartition, tuple[int, int]]] = field(default_factory=dict)
    # The restores' own reports.
    restores: Restores = field(default_factory=Restores)

    @property
    def destination_ids(self) -> list[str]:
        """The destinations that have had a receipt or were requested."""
        return list(self._progress)

    def of(self, destination_id: str) -> Progress:
        if destination_id not in self._progress:
            progress = Progress(
                destination_id, starts_late=self._configuration().starts_late(destination_id)
            )
            progress.begin(self.log_of(destination_id))
            self._progress[destination_id] = progress
        return self._progress[destination_id]

    def balance(self, destination_id: str) -> Balance:
        """Return the books of one destination, from everything read so far."""
        progress = self.of(destination_id)
        # An archive may have been added since.
        progress.reads_archives = self._configuration().reads_archives(destination_id)
        return progress.balance(self.log_of(destination_id))

    def left_of(self, gone: RemovedDestination) -> RemovedView:
        """Return the books of a removed destination."""
        balance = self.balance(gone.id).come_to
        groups = self.of(gone.id).dead_groups()
        return RemovedView(gone.stream, gone.name, gone.removed_at_ms, balance, groups)

    def of_pipelines(self, configuration: Configuration) -> Iterator[PipelineView]:
        """Yield the books of each existing pipeline, by stream and name."""
        there = configuration.pipelines.values()
        for pipeline in sorted(there, key=lambda each: (each.source.stream, each.name)):
            balance = self.balance(pipeline.lane_id)
            yield PipelineView(pipeline.source.stream, pipeline.name, balance)

    def log_of(self, destination_id: str) -> Ranges:
        """Return the log of a destination's stream, by Kafka partition."""
        return self._logs.get(topic_of(destination_id), {})

    def acked_count(self, stream: str) -> int:
        """Return the number of events in the log of a stream."""
        log_spans = self._logs.get(stream_topic(stream), {})
        return sum(end - first for first, end in log_spans.values())

    def unknown_of(self, configuration: Configuration) -> Iterator[UnknownView]:
        """Yield the destinations that are not configured here but have waiting events."""
        known = {*configuration.destinations, *configuration.removed_destinations}
        for destination_id in sorted(self._progress.keys() - known):
            waiting = sum(self._progress[destination_id].waiting_by_cause().values())
            if waiting:
                yield UnknownView(*stream_and_name(destination_id), waiting)

    async def look_at_log(self, streams: Iterable[str]) -> None:
        """Read where the logs of streams begin and end now."""
        spans = await self._peeker.spans([stream_topic(stream) for stream in streams])
        self._logs = {}
        for where, span in spans.items():
            self._logs.setdefault(where[0], {})[where] = span

    async def stored_at_ms(self, place: Origin) -> int | None:
        """Return when the broker stored the first record at a place or after it, if any."""
        where = KafkaPartition(place.topic, place.partition)
        follow = self._peeker.follow({where: place.offset})
        records = await follow.read(wait_s=_PEEK_S, records_max=1)
        return records[0].timestamp_ms if records else None

    async def read(self) -> Values:
        """Enter the receipts that have come, and return all values that have come, by topic."""
        values = await self._follow.values(wait_s=POLL_S)
        at_ms = now_ms()
        for value in values.get(RESTORES, ()):
            self.restores.take(value)
        for sheet in values.get(RECEIPTS, ()):
            for receipt in receipts_of(sheet):
                if receipt is None:
                    log.warning("receipt.unreadable")
                else:
                    self.of(receipt.destination_id).take(receipt, now_ms=at_ms)
        return values

    async def catch_up(self, destination_ids: Iterable[str]) -> AsyncIterator[Values]:
        """Fetch the lanes' positions, then read all receipts up to now."""
        retrier = await self._groups.position(RETRIER)
        for destination_id in destination_ids:
            position = await self._groups.position(destination_id)
            if position is not None and retrier is not None:
                self.of(destination_id).reached({**position, **retrier})
        ends = await self._follow.ends()
        while not await self._follow.has_reached(ends):
            yield await self.read()

    async def refresh(self, streams: Sequence[str], destination_ids: Sequence[str]) -> None:
        """Read everything in Kafka now, for callers that follow nothing else."""
        if not self._logs:
            await self.look_at_log(streams)
        async for _ in self.catch_up(destination_ids):
            pass
        await self.look_at_log(streams)


@asynccontextmanager
async def open_books(
    bootstrap_servers: str,
    configuration: Callable[[], Configuration],
    *,
    latest: Mapping[str, int] | None = None,
) -> AsyncIterator[LiveBooks]:
    """Open separate books, read from Kafka with consumers that belong to no group.

    They follow all receipts and restores, and the topics in `latest` from the given time (epoch ms)
    on.
    """
    since_ms = latest or {}
    async with (
        open_reader(bootstrap_servers) as reader,
        open_reader(bootstrap_servers, max_partition_fetch_bytes=_PEEK_BYTES) as peeker,
        LaneGroups(bootstrap_servers) as groups,
    ):
        ends = await reader.ends(since_ms)
        times_ms = {partition: since_ms[partition.topic] for partition in ends}
        recent = {**ends, **await reader.offsets_at(times_ms)}
        follow = reader.follow({**await reader.starts([RECEIPTS, RESTORES]), **recent})
        yield LiveBooks(follow, peeker, groups, configuration)
