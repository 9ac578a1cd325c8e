"""Distinguishes a recreated topic from the deleted one before it, by Kafka's ids."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic

import structlog
from msgspec import structs

from delivery.lanes.marks import TO_BEGIN, Mark
from delivery.lanes.units import Strand
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.topic_ids import topic_ids

log = structlog.get_logger()

# How long to wait for Kafka's list of topics, which usually comes within milliseconds. All lanes
# wait meanwhile.
_PATIENCE_S = 0.25
# When to ask again, if the answer was incomplete, or cannot be acted on yet.
_AGAIN_S = 1.0


@dataclass(slots=True)
class Lives:
    """The present topic of each name, by Kafka's ids."""

    log: LogClient
    now: dict[str, str] = field(default_factory=dict)
    # When to ask again; infinite if there is no reason to.
    again_s: float = 0.0
    # The ids of deleted topics, which a broker may still report.
    _former: set[str] = field(default_factory=set)

    async def look(self, topics: Collection[str]) -> None:
        """Ask for the ids of these topics; without an answer nothing changes."""
        ids: Mapping[str, str] = {}
        with suppress(*AWAY, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                ids = await topic_ids(self.log, topics)
        self.again_s = inf
        if not ids.keys() >= set(topics):
            self.look_again_soon()
        for topic, life in ids.items():
            before = self.now.get(topic, life)
            if life not in self._former:
                self.now[topic] = life
            if before != self.now[topic]:
                self._former.add(before)

    def look_again_soon(self) -> None:
        self.again_s = monotonic() + _AGAIN_S

    def has(self, strand: Strand, mark: Mark) -> bool:
        """Say whether a mark is in the present topic; older marks name none."""
        return mark.life in {"", self.now.get(strand.where.topic)}

    def is_former(self, strand: Strand, mark: Mark) -> bool:
        """Say whether a mark is in a deleted topic, as far as Kafka reports it."""
        return strand.where.topic in self.now and not self.has(strand, mark)

    def begun_anew(self, strand: Strand, mark: Mark, start: int, end: int) -> Mark:
        """Return where a strand continues in the present topic.

        During the change a worker may have read the new topic at an offset of the old one.
        """
        log.error("lane.topic_made_anew", lane=strand.destination, where=strand.where, at=mark.at)
        return Mark(start, max(start, min(mark.until, end)))

    def marked(self, strand: Strand, mark: Mark) -> Mark:
        """Return the same mark, with the topic that it is in."""
        life = self.now.get(strand.where.topic, "")
        return mark if mark == TO_BEGIN or mark.life else structs.replace(mark, life=life)
