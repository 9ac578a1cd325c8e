"""Stores replay requests for all gateways, and finds the events that each would send."""

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
# If gateways write at the same moment, all but one have to try again.
_TRIES, _PAUSE_S = 5, 0.1

# Takes all replays; returns the order to store, or None; raises Problem to refuse it.
Judge = Callable[[Replays], ReplayOrder | None]


class ReplayStore:
    """The topic of replays; the gateway follows it after the first request about replays."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._feed: ReplayFeed | None = None
        self._turn = asyncio.Lock()

    async def stop(self) -> None:
        if self._feed is not None:
            await self._feed.stop()

    async def newest(self) -> Replays:
        """Return all current replays."""
        return await (await self._following()).newest()

    async def change(self, judge: Judge) -> None:
        """Store the order that `judge` returns for the newest replays, in one step."""
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
        raise KafkaUnavailableError("Other gateways kept changing replays: ask again.")

    async def spans(self, stream: str, from_ms: int | None, to_ms: int | None) -> Spans:
        """Return the events' span between two times; raise Problem if Kafka deleted part of it."""
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
                " `hifi replay` sends events from an archive, and `hifi restore` puts them back.",
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
    """Return the first offsets that were stored at that time or later."""
    return {**ends, **await reader.offsets_at(dict.fromkeys(ends, at_ms))}
