"""Keeps the orders of replays, for all gateways, and works out which events each would send."""

import asyncio
from collections.abc import Callable

from gateway.problems import Problem
from shared.event.record import KafkaPartition, Position
from shared.event.times import rfc3339
from shared.event.topics import REPLAYS, stream_topic
from shared.retry.replay import ReplayOrder, Replays, Spans, order_row
from shared.runtime.kafka.lookup.replays import ReplayFeed
from shared.runtime.kafka.only_writer import OvertakenError, only_writer
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.setup_error import KafkaUnavailableError, SetupError

_WRITER = "hifi-replays"
# If gateways write at the same moment, all but one begin again.
_TRIES, _PAUSE_S = 5, 0.1

# Takes all replays, returns the order to store or None; raises Problem to refuse.
Judge = Callable[[Replays], ReplayOrder | None]


class ReplayStore:
    """The topic of replays, followed from the first request for it on."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._feed: ReplayFeed | None = None
        self._turn = asyncio.Lock()

    async def stop(self) -> None:
        if self._feed is not None:
            await self._feed.stop()

    async def newest(self) -> Replays:
        """Return all present replays."""
        return await (await self._following()).newest()

    async def change(self, judge: Judge) -> None:
        """Store the order that `judge` makes of the newest replays, as one step."""
        feed = await self._following()
        for _ in range(_TRIES):
            try:
                async with only_writer(self._bootstrap_servers, _WRITER) as write:
                    order = judge(await feed.newest())
                    if order is not None:
                        (stored,) = await write([(REPLAYS, *order_row(order), ())])
            except OvertakenError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if order is not None:
                await feed.at({KafkaPartition(REPLAYS, stored.partition): stored.offset + 1})
            return
        raise KafkaUnavailableError("Other gateways change replays all the time: ask again.")

    async def spans(self, stream: str, from_ms: int | None, to_ms: int | None) -> Spans:
        """Return what was stored between two times; Problem if Kafka has deleted some of it."""
        topic = stream_topic(stream)
        async with open_reader(self._bootstrap_servers) as reader:
            spans = await reader.spans([topic])
            ends = {where: end for where, (_, end) in spans.items()}
            begins = {where: begin for where, (begin, _) in spans.items()}
            since = begins if from_ms is None else await _offsets_at(reader, ends, from_ms)
            until = ends if to_ms is None else await _offsets_at(reader, ends, to_ms)
            oldest_ms = await reader.oldest_ms([topic])
        lost = [where for where, first in begins.items() if first and since[where] == first]
        if from_ms is not None and any(
            oldest_ms.get(where, from_ms + 1) > from_ms for where in lost
        ):
            begins_at = rfc3339(max(oldest_ms.values())) if oldest_ms else "a later time"
            raise Problem(
                "events_gone",
                f"Kafka has deleted the oldest events of {stream}: begin with {begins_at}."
                " Events in an archive are sent by `hifi replay`, or put back by `hifi restore`.",
                members={"begins_at": begins_at},
            )
        return {where.partition: (since[where], max(since[where], until[where])) for where in spans}

    async def _following(self) -> ReplayFeed:
        async with self._turn:
            if self._feed is None:
                feed = ReplayFeed(self._bootstrap_servers)
                try:
                    await feed.start()
                except SetupError as error:
                    raise Problem("kafka_unavailable", str(error)) from error
                self._feed = feed
        return self._feed


async def _offsets_at(reader: KafkaReader, ends: Position, at_ms: int) -> Position:
    """Return the first offsets not stored before that time."""
    return {**ends, **await reader.offsets_at(dict.fromkeys(ends, at_ms))}
