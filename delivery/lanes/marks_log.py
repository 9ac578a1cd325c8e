"""Follows the marks of all strands: the last mark of each, and each new one as it arrives."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from delivery.lanes.marks import Mark, open_mark
from delivery.lanes.strands.repeats import RepeatedRanges, open_repeats
from delivery.lanes.units import Strand
from shared.event.record import KafkaPartition
from shared.event.topics import LANES
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

MARKS = KafkaPartition(LANES, 0)
# All processes get all marks: bursts of hundreds, of which each arrives separately. So one fetch
# takes all marks that have arrived meanwhile. A fetch costs as much as about fifty marks, so after
# many marks the next fetch is later. That does no harm, because a job's report contains the same
# positions of its own strands.
_GATHER_S, _CROWD_GATHER_S, _CROWD = 0.02, 0.1, 20
# How long the broker may hold a fetch that finds nothing.
_WAIT_MS = 500
_AGAIN_S = 0.5
# A restarting broker is away for up to 30 s; its topics have leaders a bit later.
_PATIENCE_S = 60.0


@dataclass(slots=True)
class MarksLog:
    """Every strand's last mark."""

    log: LogClient
    marks: dict[Strand, Mark] = field(default_factory=dict)
    # The ranges that were ever sent again, by strand.
    repeats: dict[Strand, RepeatedRanges] = field(default_factory=dict)
    # When the wait of each mark ends, and the time of the newest record, by the broker's clock.
    _waits_until_ms: dict[Strand, int] = field(default_factory=dict)
    _newest_ms: int = 0
    # The offset up to which the log is read.
    at: int = 0
    # How often the log was recreated, or had records deleted.
    restarts: int = 0

    async def read(self) -> None:
        """Read the log up to its present end."""
        self.at = await self._bound(self.log.starts)
        end = await self._bound(self.log.ends)
        while self.at < end:
            await self._fetch(lambda _, __: None)

    def wait_s(self, strand: Strand) -> float:
        """Return how much of the wait in a strand's mark is left, or somewhat more."""
        return max(0, self._waits_until_ms.get(strand, 0) - self._newest_ms) / 1000

    async def _bound(self, ask: Callable[[list[KafkaPartition]], Any]) -> int:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not (offsets := await ask([MARKS])):  # noqa: ASYNC110 - Kafka has no event
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError as error:
            raise KafkaUnavailableError(
                f"Kafka does not report where {LANES} begins and ends: it is missing (`hifi topics`"
                " makes it), or has no leader, or delivery may not read it (see `hifi doctor`)."
            ) from error
        offset: int = offsets[MARKS]
        return offset

    async def follow(self, tell: Callable[[Strand, Mark], None]) -> None:
        """Report each mark that is written from now on, until cancelled."""
        is_away = False
        while True:
            try:
                before = self.at
                await self._fetch(tell)
                is_away = False
                is_crowd = self.at - before > _CROWD
                await asyncio.sleep(_CROWD_GATHER_S if is_crowd else _GATHER_S)
            except AWAY as error:
                if not is_away:
                    log.info("lane.marks_not_read", error=repr(error))
                is_away = True
                await asyncio.sleep(_AGAIN_S)

    async def _fetch(self, tell: Callable[[Strand, Mark], None]) -> None:
        node = self.log.leaders([MARKS]).get(MARKS)
        if node is None:
            # A request for the end also finds the leader.
            await self.log.ends([MARKS])
            await asyncio.sleep(_AGAIN_S)
            return
        answer = (await self.log.fetch(node, {MARKS: self.at}, wait_ms=_WAIT_MS))[MARKS]
        if answer.is_gone:
            self.at = await self._bound(self.log.starts)
            self.restarts += 1
            log.warning("lane.marks_anew", at=self.at)
            return
        if answer.error is not None:
            await self.log.ends([MARKS])
            raise answer.error
        for record in answer.records:
            self._newest_ms = max(self._newest_ms, record.timestamp)
            opened = open_mark(record.key or b"", record.value)
            if opened is None:
                self._take_repeats(record)
                continue
            strand, mark = opened
            self._waits_until_ms.pop(strand, None)
            if mark is not None and mark.waiting is not None:
                self._waits_until_ms[strand] = record.timestamp + mark.wait_ms
            if mark is None:
                self.marks.pop(strand, None)
            else:
                self.marks[strand] = mark.after(self.marks.get(strand))
                tell(strand, mark)
        self.at = answer.reached

    def _take_repeats(self, record: Any) -> None:
        if opened := open_repeats(record.key or b"", record.value):
            strand, ranges = opened
            self.repeats.pop(strand, None)
            if ranges:
                self.repeats[strand] = RepeatedRanges(ranges, record.timestamp)
