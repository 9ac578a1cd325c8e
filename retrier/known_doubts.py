"""Tracks waiting events whose copies may arrive first, and records that are read again.

All of this is in Kafka, in `hifi.lanes` (ADR 0117). While that topic cannot be read, nothing waits
for it: all due events are then labelled as possible repeats.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from delivery.lanes.marks_log import MARKS, MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.strands.repeats import RepeatedRanges, repeats_record, unsaid
from delivery.lanes.units import Strand
from shared.event.record import KafkaPartition, Ranges
from shared.event.topics import RETRIER
from shared.retry.doubts import Doubts
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.leases.fenced_positions import WHATEVER, Reach
from shared.runtime.kafka.log_client import LogClient

# A follower of the log gets a mark within a tenth of a second.
_PATIENCE_S, _LOOK_S = 1.0, 0.01


@dataclass(frozen=True, slots=True)
class KnownDoubts:
    """The doubts that one process knows of."""

    log: LogClient
    marks: MarksLog
    outlet: Outlet
    # No event waits for longer.
    deadline_s: float

    async def follow(self) -> None:
        """Follow the log of marks, until cancelled."""
        await self.marks.follow(lambda *_: None)

    async def now(self, reaches: Mapping[KafkaPartition, Reach], *, now_ms: int) -> Doubts:
        """Return the doubts as of now; `reaches` has our positions, as far as Kafka knows them."""
        if not await self._is_current():
            return Doubts(are_general=True)
        return Doubts.of(self._ranges(reaches, now_ms - round(1000 * self.deadline_s)))

    async def _is_current(self) -> bool:
        """Say whether the log is read up to its present end."""
        with suppress(TimeoutError, *AWAY):
            async with asyncio.timeout(_PATIENCE_S):
                end = (await self.log.ends([MARKS])).get(MARKS)
                while end is not None and self.marks.at < end:  # noqa: ASYNC110 - others wait, too
                    await asyncio.sleep(_LOOK_S)
                return end is not None
        return False

    def _ranges(
        self, reaches: Mapping[KafkaPartition, Reach], since_ms: int
    ) -> Iterator[tuple[str, tuple[str, int, int, int]]]:
        for (reader, (topic, number)), repeated in self.marks.repeats.items():
            if repeated.at_ms >= since_ms:
                for begin, end in repeated.ranges:
                    yield reader, (topic, number, begin, end)
        # Offsets beyond a position may still be read again.
        for (reader, (topic, number)), mark in self.marks.marks.items():
            if mark.at < mark.until:
                yield reader, (topic, number, mark.at, WHATEVER)
        for (topic, number), reach in reaches.items():
            if reach.at < reach.until:
                yield RETRIER, (topic, number, reach.at, WHATEVER)

    async def read_again(self, ranges: Ranges, *, now_ms: int) -> None:
        """Record which ranges are about to be read again."""
        known = self.marks.repeats
        news = unsaid(known, {Strand(RETRIER, where): each for where, each in ranges.items()})
        await self.outlet.store([repeats_record(*each) for each in news.items()])
        known.update((strand, RepeatedRanges(each, now_ms)) for strand, each in news.items())
