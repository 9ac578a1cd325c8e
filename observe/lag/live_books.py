"""Keeps the books as receipts come: of every destination, laid over the log and lanes' positions.

A position is asked for before the receipts that it can vouch for are read to their end: otherwise
what a lane has just delivered and passed would look lost.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import structlog

from observe.lag.follower import Follower, following
from observe.lag.progress import Progress
from shared.event.record import KafkaPartition
from shared.event.topics import RECEIPTS, RETRIER, stream_and_name, stream_topic
from shared.proof.balance import Balance
from shared.proof.receipt import receipts_of
from shared.runtime.clock import now_ms

log = structlog.get_logger()


class LiveBooks:
    """What is proven of each destination so far."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
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
        self._spans = await self._follower.spans([stream_topic(stream) for stream in streams])

    async def ask_lanes(self, destination_ids: Iterable[str]) -> None:
        """See how far lanes and the retrier are."""
        retrier = await self._follower.position(RETRIER)
        for destination_id in destination_ids:
            position = await self._follower.position(destination_id)
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
        ends = await self._follower.ends()
        while not await self._follower.has_read(ends):
            self.take((await self._follower.read()).get(RECEIPTS, ()))
        await self.look_at_log(streams)


@asynccontextmanager
async def open_books(bootstrap_servers: str) -> AsyncIterator[LiveBooks]:
    """Books of one's own, read from Kafka with a consumer that belongs to no group."""
    async with following(bootstrap_servers, whole=RECEIPTS, latest={}) as follower:
        yield LiveBooks(follower)
