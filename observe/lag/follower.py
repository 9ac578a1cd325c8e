"""Reads Kafka for the sampler: receipts and ledger as they come, ends, and single records.

Independent of the lanes: nothing here asks Spark how it is.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import Follow, KafkaReader, open_reader

_POLL_S = 0.2
# A record and its neighbours; what is peeked at is one event of at most a megabyte.
_PEEK_BYTES = 65_536
_PEEK_S = 2.0


@dataclass(frozen=True, slots=True)
class Follower:
    """Made by `following`."""

    _follow: Follow
    _peeker: KafkaReader
    _groups: LaneGroups

    async def read(self) -> dict[str, list[bytes]]:
        """The values that have come on each topic since the last time."""
        return await self._follow.values(wait_s=_POLL_S)

    async def ends(self) -> Position:
        """Where everything that is followed ends now."""
        return await self._follow.ends()

    async def has_read(self, ends: Position) -> bool:
        """Whether `read` has given everything up to there."""
        return await self._follow.has_reached(ends)

    async def spans(self, topics: Iterable[str]) -> dict[KafkaPartition, tuple[int, int]]:
        """The first offset and the end of every Kafka partition."""
        return await self._peeker.spans(topics)

    async def stored_at_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """When the broker took the first record from there on; None if none comes."""
        follow = self._peeker.follow({KafkaPartition(topic, partition): offset})
        records = await follow.read(wait_s=_PEEK_S, records_max=1)
        return records[0].timestamp_ms if records else None

    async def position(self, lane: str) -> Position | None:
        """How far a lane says it is; None while nobody can tell."""
        return await self._groups.position(lane)


@asynccontextmanager
async def following(
    bootstrap_servers: str, *, whole: str, latest: Mapping[str, int]
) -> AsyncIterator[Follower]:
    """Follow one topic from its beginning, and others from a moment (epoch ms) on."""
    async with (
        open_reader(bootstrap_servers) as reader,
        open_reader(bootstrap_servers, max_partition_fetch_bytes=_PEEK_BYTES) as peeker,
        LaneGroups(bootstrap_servers) as groups,
    ):
        ends = await reader.ends(latest)
        times_ms = {partition: latest[partition.topic] for partition in ends}
        recent = {**ends, **await reader.offsets_at(times_ms)}
        follow = reader.follow({**await reader.starts([whole]), **recent})
        yield Follower(follow, peeker, groups)
