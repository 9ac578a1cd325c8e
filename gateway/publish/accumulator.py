"""Gathers events that travel together: one accumulator per Kafka partition, for all requests.

While one batch is on its way the next one fills, so batches grow with the load and an idle
gateway sends at once. A request gets one report per slice (its part of one batch). An event that
was not handed over in time is withdrawn and certainly not stored; after that it is out of our
hands, and a report that does not come in time makes it unknown.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from gateway.intake.events import Event
from gateway.intake.plain_events import PlainEvents
from gateway.intake.record_batch import RecordBatch
from gateway.publish.produce_request import Handover
from gateway.publish.report import Fate, Report

log = structlog.get_logger()

# A batch of this size is sent at hardly more cost than a smaller one, so small requests share it.
SHARED_BYTES = 65_536
# The pause before a failed gate is tried again.
_GATE_PAUSE_S = 0.5
# Turns of the loop that a batch gathers for, at most.
_TURNS_MAX = 5


class NotStoredError(Exception):
    """The batch was refused or never handed over: Kafka does not have it."""


class UnknownFateError(Exception):
    """The batch was handed over, and no report came about its outcome."""


class BatchSlice(msgspec.Struct, eq=False):
    """The events of one request in one batch."""

    events: Sequence[Event]
    positions: Sequence[int]
    # Number of the batch's events before these.
    start: int
    taken_at_s: float
    taken_at_ms: int
    # Called, not awaited: a future for each request costs more than its answer. It never raises.
    tell: Callable[[Report], object]
    is_told: bool = False

    def settle(self, report: Report) -> None:
        """Report to the request once; an earlier report, such as `unknown`, stands."""
        if not self.is_told:
            self.is_told = True
            try:
                self.tell(report)
            except Exception:
                # A fault of ours, in one request: the others of the batch, and the batches behind
                # it, must not wait forever.
                log.exception("publisher.not_told")


@dataclass(slots=True, eq=False)
class _Batch:
    builder: RecordBatch
    slices: list[BatchSlice] = field(default_factory=list)
    count: int = 0
    byte_count: int = 0
    is_full: bool = False
    handover: Handover = field(default_factory=Handover)

    def fill(self, events: Sequence[Event], now_ms: int) -> int:
        """Append events until the batch is full; say how many went in."""
        count = self.builder.fill(events, now_ms)
        self.is_full = count < len(events)
        return count


@dataclass(slots=True, eq=False)
class Accumulator:
    """The batches of one Kafka partition: at most one on its way, the others waiting."""

    partition: int
    new_builder: Callable[[], RecordBatch]
    send: Callable[[int, RecordBatch, Handover], Awaitable[int]]
    # Opens once there are a producer and a leader for this partition.
    gate: Callable[[], Awaitable[object]]
    # Spreads events without a key evenly.
    assigned_bytes: int = 0
    _waiting: deque[_Batch] = field(default_factory=deque, init=False)
    _on_its_way: _Batch | None = field(default=None, init=False)
    _sender: asyncio.Task[None] | None = field(default=None, init=False)
    _stored_count: int = field(default=0, init=False)
    # State at the last sweep: how many batches were stored, and when that number last moved.
    _stored_seen: int = field(default=0, init=False)
    _moved_at_s: float = field(default=0.0, init=False)

    @property
    def is_filling(self) -> bool:
        """True while a batch can still take events."""
        return bool(self._waiting) and not self._waiting[-1].is_full

    @property
    def is_idle(self) -> bool:
        """True while it holds nothing."""
        return self._sender is None

    @property
    def held_bytes(self) -> int:
        on_its_way = 0 if self._on_its_way is None else self._on_its_way.byte_count
        return on_its_way + sum([batch.byte_count for batch in self._waiting])

    @property
    def overdue_bytes(self) -> int:
        """Bytes of events that were reported as unknown, and that we still hold."""
        batch = self._on_its_way
        if batch is None:
            return 0
        return sum(_size(s.events) for s in batch.slices if s.is_told)

    def oldest_s(self) -> float | None:
        """Return when the oldest of its events came."""
        batch = self._on_its_way or (self._waiting[0] if self._waiting else None)
        return batch.slices[0].taken_at_s if batch is not None else None

    def take(
        self,
        events: Sequence[Event],
        positions: Sequence[int],
        tell: Callable[[Report], object],
        *,
        now_s: float,
        now_ms: int,
    ) -> int:
        """Take as many of the events as go into one batch, at least one; say how many."""
        batch = self._waiting[-1] if self._waiting else _Batch(self.new_builder())
        count = batch.fill(events, now_ms)
        if count == 0:
            batch = _Batch(self.new_builder())
            count = batch.fill(events, now_ms)
        if batch.count == 0:
            self._waiting.append(batch)
        taken = events if count == len(events) else events[:count]
        part = BatchSlice(
            events=taken,
            positions=positions if count == len(events) else positions[:count],
            start=batch.count,
            taken_at_s=now_s,
            taken_at_ms=now_ms,
            tell=tell,
        )
        byte_count = _size(taken)
        batch.slices.append(part)
        batch.count += count
        batch.byte_count += byte_count
        self.assigned_bytes += byte_count
        if self._sender is None:
            self._moved_at_s = now_s
            self._sender = asyncio.create_task(self._send_all())
        return count

    def sweep(self, *, now_s: float, queue_deadline_s: float, ack_deadline_s: float) -> None:
        """Settle what has waited too long. Called again and again, with the time.

        Events behind batches that do get stored may wait as long as for a report; behind a Kafka
        that stands still, they go back to the caller soon.
        """
        if self._stored_count != self._stored_seen:
            self._stored_seen, self._moved_at_s = self._stored_count, now_s
        self._give_up(taken_until_s=now_s - ack_deadline_s, reason="no report in time")
        is_still = self._moved_at_s + queue_deadline_s <= now_s
        wait_s = queue_deadline_s if is_still else ack_deadline_s
        self._withdraw(taken_until_s=now_s - wait_s, reason="kafka did not take it in time")
        if self._sender is not None and self._on_its_way is None and not self._waiting:
            # Nothing waits for the gate any more, which may never open.
            self._sender.cancel()
            self._sender = None

    def close(self, reason: str) -> None:
        """Withdraw waiting events, and give up on those on their way."""
        self._withdraw(taken_until_s=float("inf"), reason=reason)
        self._give_up(taken_until_s=float("inf"), reason=reason)
        if self._sender is not None:
            self._sender.cancel()

    async def _send_all(self) -> None:
        """Send batch after batch until none waits."""
        while True:
            await self._gather()
            if not self._waiting:
                break
            # While there is no producer, events wait here, where they can still be withdrawn.
            try:
                await self.gate()
            except Exception:
                # A fault of ours: later batches must not wait forever.
                log.exception("publisher.gate_failed", partition=self.partition)
                await asyncio.sleep(_GATE_PAUSE_S)
                continue
            if not self._waiting:
                break
            self._on_its_way = self._waiting.popleft()
            await self._send_one(self._on_its_way)
            self._on_its_way = None
        self._sender = None

    async def _gather(self) -> None:
        """Let more events join the batch, as long as each turn of the loop brings some."""
        before = -1
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
            byte_count = self._waiting[-1].byte_count if self._waiting else 0
            if byte_count == before or byte_count >= SHARED_BYTES:
                break
            before = byte_count

    async def _send_one(self, batch: _Batch) -> None:
        try:
            offset = await self.send(self.partition, batch.builder, batch.handover)
        except NotStoredError as error:
            for part in batch.slices:
                part.settle(Report(Fate.NOT_STORED, part.positions, reason=str(error)))
        except UnknownFateError as error:
            for part in batch.slices:
                part.settle(Report(Fate.UNKNOWN, part.positions, reason=str(error)))
        else:
            self._stored_count += 1
            for part in batch.slices:
                first_offset = offset + part.start
                part.settle(Report(Fate.STORED, part.positions, self.partition, first_offset))

    def _give_up(self, *, taken_until_s: float, reason: str) -> None:
        """Report the early slices of the batch on its way as unknown, and never write it again.

        While Kafka has no byte of it, none of it is stored: all its slices are reported so.
        """
        batch = self._on_its_way
        if batch is None or batch.slices[0].taken_at_s > taken_until_s:
            return
        batch.handover.is_over = True
        fate = Fate.UNKNOWN if batch.handover.may_be_stored else Fate.NOT_STORED
        for part in batch.slices:
            if part.taken_at_s <= taken_until_s or fate is Fate.NOT_STORED:
                part.settle(Report(fate, part.positions, reason=reason))

    def _withdraw(self, *, taken_until_s: float, reason: str) -> None:
        """Take back every waiting slice that came so early; slices wait in the order they came."""
        while self._waiting and self._waiting[0].slices[0].taken_at_s <= taken_until_s:
            batch = self._waiting.popleft()
            kept = [part for part in batch.slices if part.taken_at_s > taken_until_s]
            for part in batch.slices:
                if part.taken_at_s <= taken_until_s:
                    part.settle(Report(Fate.NOT_STORED, part.positions, reason=reason))
            if kept:
                self._waiting.appendleft(self._rebuilt(kept))
                return

    def _rebuilt(self, slices: Sequence[BatchSlice]) -> _Batch:
        """Return a batch of some slices of another; it is smaller, so they fit."""
        batch = _Batch(self.new_builder())
        for part in slices:
            part.start = batch.count
            filled = batch.fill(part.events, part.taken_at_ms)
            assert filled == len(part.events), "a part of a batch must fit into a batch"
            batch.count += filled
            batch.byte_count += _size(part.events)
            batch.slices.append(part)
        return batch


def _size(events: Sequence[Event]) -> int:
    if type(events) is PlainEvents:
        return events.byte_count
    return sum([len(event.value) for event in events])
