"""Follows the marks of all strands: what the log of lanes amounts to, and each one as it comes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from aiokafka.errors import KafkaError

from delivery.lanes.marks import Mark, open_mark
from delivery.lanes.units import Strand
from shared.event.record import KafkaPartition
from shared.event.topics import LANES
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

_PLACE = KafkaPartition(LANES, 0)
# How long the broker may hold a fetch that finds nothing.
_WAIT_MS = 500
_AGAIN_S = 0.5
# A broker that is started anew is away for up to 30 s; its topics have leaders a bit later.
_PATIENCE_S = 60.0


@dataclass(slots=True)
class MarksLog:
    """Every strand's last mark."""

    log: LogClient
    marks: dict[Strand, Mark] = field(default_factory=dict)
    _at: int = 0

    async def read(self) -> None:
        """Read all that there is."""
        async with asyncio.timeout(_PATIENCE_S):
            while not (ends := await self.log.ends([_PLACE])):  # noqa: ASYNC110 - Kafka tells nobody
                await asyncio.sleep(_AGAIN_S)
            starts = await self.log.starts([_PLACE])
            self._at = starts.get(_PLACE, 0)
            while self._at < ends[_PLACE]:
                await self._fetch(lambda _, __: None)

    async def follow(self, tell: Callable[[Strand, Mark], None]) -> None:
        """Tell of each mark that is written from now on, until cancelled."""
        is_away = False
        while True:
            try:
                await self._fetch(tell)
                is_away = False
            except (KafkaError, OSError, KafkaUnavailableError) as error:
                if not is_away:
                    log.info("lane.marks_not_read", error=repr(error))
                is_away = True
                await asyncio.sleep(_AGAIN_S)

    async def _fetch(self, tell: Callable[[Strand, Mark], None]) -> None:
        node = self.log.leaders([_PLACE]).get(_PLACE)
        if node is None:
            # Asking for the end asks for the leader, too.
            await self.log.ends([_PLACE])
            await asyncio.sleep(_AGAIN_S)
            return
        answer = (await self.log.fetch(node, {_PLACE: self._at}, wait_ms=_WAIT_MS))[_PLACE]
        if answer.error is not None:
            await self.log.ends([_PLACE])
            raise answer.error
        for record in answer.records:
            opened = open_mark(record.key or b"", record.value)
            if opened is None:
                continue
            strand, mark = opened
            if mark is None:
                self.marks.pop(strand, None)
            else:
                self.marks[strand] = mark
                tell(strand, mark)
        self._at = answer.reached
