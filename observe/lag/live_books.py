"""Keeps the books as receipts come: of every destination, laid over the log and lanes' positions.

A position is asked for before the receipts that it can vouch for are read to their end: otherwise
what a lane has just delivered and passed would look lost. Nothing here asks Spark how it is.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog

from observe.lag.progress import Progress
from shared.event.record import KafkaPartition
from shared.event.topics import RECEIPTS, RETRIER, stream_and_name, stream_topic
from shared.proof.balance import Balance
from shared.proof.receipt import receipts_of
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import Follow, KafkaReader, open_reader

log = structlog.get_logger()

# So long the records that are followed are waited for, if there are none.
POLL_S = 0.2
# A record and its neighbours; what is peeked at is one event of at most a megabyte.
_PEEK_BYTES = 65_536
_PEEK_S = 2.0


class LiveBooks:
    """What is proven of each destination so far. Made by `open_books`."""

    def __init__(self, follow: Follow, peeker: KafkaReader, groups: LaneGroups) -> None:
        # Receipts, and whatever else is read with them.
        self.follow = follow
        self._peeker = peeker
        self._groups = groups
        self._progress: dict[str, Progress] = {}
        self._spans: dict[KafkaPartition, tuple[int, int]] = {}

    @property
    def destination_ids(self) -> list[str]:
        """Whoever has had a receipt, or was asked for."""
        return list(self._progress)

    def of(self, destination_id: str) -> Progress:
        if destination_id not in self._progress:
            progress = self._progress[destination_id] = Progress(destination_id)
            progress.begin(self.log_of(destination_id))
        return self._progress[destination_id]

    def balance(self, destination_id: str) -> Balance:
        """The books of one destination, as far as everything has been read."""
        return self.of(destination_id).balance(self.log_of(destination_id))

    def log_of(self, destination_id: str) -> dict[KafkaPartition, tuple[int, int]]:
        """The log of a destination's stream, by Kafka partition."""
        return self._log_of_stream(stream_and_name(destination_id)[0])

    def acked_count(self, stream: str) -> int:
        """How many events the log of a stream holds."""
        return sum(end - first for first, end in self._log_of_stream(stream).values())

    def _log_of_stream(self, stream: str) -> dict[KafkaPartition, tuple[int, int]]:
        topic = stream_topic(stream)
        return {where: span for where, span in self._spans.items() if where[0] == topic}

    async def look_at_log(self, streams: Iterable[str]) -> None:
        """See where the logs of streams begin and end now."""
        self._spans = await self._peeker.spans([stream_topic(stream) for stream in streams])

    async def stored_at_ms(self, where: KafkaPartition, offset: int) -> int | None:
        """When the broker took the first record from there on; None if none comes."""
        follow = self._peeker.follow({where: offset})
        records = await follow.read(wait_s=_PEEK_S, records_max=1)
        return records[0].timestamp_ms if records else None

    async def ask_lanes(self, destination_ids: Iterable[str]) -> None:
        """See how far lanes and the retrier are."""
        retrier = await self._groups.position(RETRIER)
        for destination_id in destination_ids:
            position = await self._groups.position(destination_id)
            if position is not None and retrier is not None:
                self.of(destination_id).reached({**position, **retrier})

    def take(self, sheets: Iterable[bytes]) -> None:
        """Enter records of the receipts' topic."""
        at_ms = now_ms()
        for sheet in sheets:
            for receipt in receipts_of(sheet):
                if receipt is None:
                    log.warning("receipt.unreadable")
                else:
                    self.of(receipt.destination_id).take(receipt, now_ms=at_ms)

    async def refresh(self, streams: Sequence[str], destination_ids: Sequence[str]) -> None:
        """Read all that is there now, for whoever wants nothing else of Kafka."""
        if not self._spans:
            await self.look_at_log(streams)
        await self.ask_lanes(destination_ids)
        ends = await self.follow.ends()
        while not await self.follow.has_reached(ends):
            self.take((await self.follow.values(wait_s=POLL_S)).get(RECEIPTS, ()))
        await self.look_at_log(streams)


@asynccontextmanager
async def open_books(
    bootstrap_servers: str, *, latest: Mapping[str, int] | None = None
) -> AsyncIterator[LiveBooks]:
    """Books of one's own, read from Kafka with consumers that belong to no group.

    All receipts are followed, and other topics from a moment (epoch ms) on.
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
        follow = reader.follow({**await reader.starts([RECEIPTS]), **recent})
        yield LiveBooks(follow, peeker, groups)
