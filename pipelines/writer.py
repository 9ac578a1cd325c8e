"""Writes a slot holder's receipts, states and positions: all or none.

A slot is a name for transactions. Once a new holder has begun under that name, Kafka accepts
nothing more from the previous holder, even if that was frozen and comes back (ADR 0077).
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress

from pipelines.windows.frontier import BrokerClock
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import OUTCOME_BYTES_MAX, pipelines_writer
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.leases.fenced_positions import Reach
from shared.runtime.kafka.leases.member import LeaseMember
from shared.runtime.kafka.only_writer import OvertakenError, Row, Write, only_writer, rows_of

# Kafka answers within milliseconds; a write that a broker's restart delays is retried later.
_WITHIN_S = 10.0
_CLOSE_WITHIN_S = 3.0
# Keyed by consumer group.
Reaches = Mapping[str, Mapping[KafkaPartition, Reach]]
# Errors of a write after which the next write may succeed.
UNWRITTEN = (*AWAY, OvertakenError, TimeoutError)


class SlotLostError(OvertakenError):
    """Others may already have the slot; nothing was stored."""


class SlotWriter:
    """The one writer of a slot, opened when it is first needed and reopened after a failure."""

    def __init__(
        self, bootstrap_servers: str, slot: int, is_ours: Callable[[], bool], clock: BrokerClock
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._clock = clock
        self._name = pipelines_writer(slot)
        # Asks the lease: a former holder that begins again would shut out its successor.
        self._is_ours = is_ours
        self._resources = AsyncExitStack()
        self._write: Write | None = None
        # Allows one transaction at a time.
        self._writing = asyncio.Lock()

    async def begin(self) -> None:
        """Begin: once this returns, no previous holder of the slot can write any more."""
        async with self._writing, asyncio.timeout(_WITHIN_S):
            await self._opened()

    async def store(
        self, rows: Iterable[RecordOut], reaches: Reaches, more: Iterable[Row] = ()
    ) -> None:
        """Return once Kafka has all of it; after an error, it may have all or nothing."""
        positions = {
            group: {where: (reach.at, reach.word) for where, reach in position.items()}
            for group, position in reaches.items()
        }
        async with self._writing:
            try:
                async with asyncio.timeout(_WITHIN_S):
                    write = await self._opened()
                    reports = await write([*more, *rows_of(rows)], positions)
            except BaseException:
                await self._close()
                raise
        if reports:
            self._clock.heard(reports[-1].timestamp, time.monotonic())

    async def close(self) -> None:
        async with self._writing:
            await self._close()

    async def _opened(self) -> Write:
        if not self._is_ours():
            raise SlotLostError(f"{self._name} may belong to another process already.")
        if self._write is None:
            writer = only_writer(
                self._bootstrap_servers, self._name, max_request_size=OUTCOME_BYTES_MAX
            )
            self._write = await self._resources.enter_async_context(writer)
        return self._write

    async def _close(self) -> None:
        resources, self._resources, self._write = self._resources, AsyncExitStack(), None
        with suppress(*UNWRITTEN):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await resources.aclose()


class SlotWriters:
    """The writers of the slots that this process holds, made as they are needed."""

    def __init__(self, bootstrap_servers: str, member: LeaseMember) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._member = member
        self._writers: dict[int, SlotWriter] = {}
        # The brokers' time, from their answers to writes.
        self.clock = BrokerClock()

    def of(self, pipeline: str) -> SlotWriter:
        slot = self._member.slot_of(pipeline)
        if slot not in self._writers:
            self._writers[slot] = SlotWriter(
                self._bootstrap_servers,
                slot,
                lambda: slot in self._member.owned and self._member.left_s > 0,
                self.clock,
            )
        return self._writers[slot]

    def drop(self, slots: Collection[int]) -> list[SlotWriter]:
        """Drop these slots' writers at once, for the caller to close; later uses open new ones."""
        return [self._writers.pop(slot) for slot in self._writers.keys() & set(slots)]

    async def close(self, slots: Collection[int] | None = None) -> None:
        """Close the writers of these slots, or all."""
        for writer in self.drop([*self._writers] if slots is None else slots):
            await writer.close()
