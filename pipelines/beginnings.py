"""Finds where a pipeline goes on, or begins, in the Kafka partitions of its stream."""

from collections.abc import Collection
from typing import NamedTuple

from shared.config.destination import Start
from shared.event.record import KafkaPartition, Position
from shared.event.topics import lane_group
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from shared.runtime.kafka.log_client import LogClient


class Begun(NamedTuple):
    """How far a pipeline is, and whether it has never been anywhere."""

    reaches: dict[KafkaPartition, Reach]
    is_new: bool


async def begins(
    bootstrap_servers: str,
    log: LogClient,
    lane_id: str,
    start: Start,
    places: Collection[KafkaPartition],
) -> Begun:
    """As far as Kafka says.

    Asked for once nobody else writes it any more: then what its group says is the last word.
    """
    positions = FencedPositions(bootstrap_servers, lane_group(lane_id))
    try:
        known = await positions.read()
    finally:
        await positions.close()
    ends = await log.ends(places)
    found = {
        where: _within(known[where], ends[where])
        for where in places
        if where in known and where in ends
    }
    # What a stream has grown by since is read whole.
    new = [where for where in places if where not in known]
    firsts = await _firsts(log, "earliest" if known else start, new)
    found |= {where: Reach(at, at) for where, at in firsts.items()}
    return Begun(found, is_new=not known)


async def _firsts(log: LogClient, start: Start, places: Collection[KafkaPartition]) -> Position:
    if not places:
        return {}
    if start == "earliest":
        return await log.starts(places)
    if start == "latest":
        return await log.ends(places)
    return await log.offsets_at(places, start)


def _within(reach: Reach, end: int) -> Reach:
    """A log may have lost its end; what it has there since is new."""
    at = min(reach.at, end)
    return Reach(at, max(at, min(reach.until, end)))
