"""Knows of which waiting events another copy may arrive first, and says what is read again.

All of that is in Kafka, in `hifi.lanes` (ADR 0117). While it cannot be read nobody waits for it:
then all that is due says that it may be a repeat.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from delivery.lanes.marks_log import MARKS, MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.strands.repeats import Repeated, repeats_record, unsaid
from delivery.lanes.units import Strand
from shared.event.record import KafkaPartition, Ranges
from shared.event.topics import RETRIER
from shared.retry.doubts import Doubts
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.leases.fenced_positions import WHATEVER, Reach
from shared.runtime.kafka.log_client import LogClient

# Whoever follows it hears of a mark within a tenth of a second.
_PATIENCE_S, _LOOK_S = 1.0, 0.01


@dataclass(frozen=True, slots=True)
class KnownDoubts:
    """The doubts that one process knows of."""

    log: LogClient
    marks: MarksLog
    outlet: Outlet
    # Nothing waits for longer.
    deadline_s: float

    async def follow(self) -> None:
        """Hear of what is written, until cancelled."""
        await self.marks.follow(lambda *_: None)

    async def now(self, reaches: Mapping[KafkaPartition, Reach], *, now_ms: int) -> Doubts:
        """As of this very question; `reaches` is how far Kafka knows the retrier to be, of ours."""
        if not await self._is_current():
            return Doubts(are_general=True)
        return Doubts.of(self._ranges(reaches, now_ms - round(1000 * self.deadline_s)))

    async def _is_current(self) -> bool:
        """Whether all is read that is written by now."""
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
        # A place that nobody has passed may yet be read again.
        for (reader, (topic, number)), mark in self.marks.marks.items():
            if mark.at < mark.until:
                yield reader, (topic, number, mark.at, WHATEVER)
        for (topic, number), reach in reaches.items():
            if reach.at < reach.until:
                yield RETRIER, (topic, number, reach.at, WHATEVER)

    async def read_again(self, ranges: Ranges, *, now_ms: int) -> None:
        """Say, before it is, that this is read again."""
        known = self.marks.repeats
        news = unsaid(known, {Strand(RETRIER, where): each for where, each in ranges.items()})
        await self.outlet.store([repeats_record(*each) for each in news.items()])
        known.update((strand, Repeated(each, now_ms)) for strand, each in news.items())
