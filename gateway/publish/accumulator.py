"""Gathers events of all requests into batches, with one accumulator for each Kafka partition.

While one batch is in flight the next one fills, so batches grow with the load, and an idle gateway
sends at once. A request gets one report per slice (its part of one batch). An event that was not
handed over in time is withdrawn, and certainly not stored. Once an event is handed over, its fate
is unknown if no report comes in time.
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

# A batch of this size costs hardly more than a smaller one, so small requests share one.
SHARED_BYTES = 65_536
# Pause before a failed gate is tried again.
_GATE_PAUSE_S = 0.5
# At most this many turns of the loop while a batch gathers events.
_TURNS_MAX = 5


class NotStoredError(Exception):
    """Kafka refused the batch, or never got it, so it is not stored."""


class UnknownFateError(Exception):
    """The batch was handed over, but there is no report on its outcome."""


class BatchSlice(msgspec.Struct, eq=False):
    """The events of one request in one batch."""

    events: Sequence[Event]
    positions: Sequence[int]
    # Number of events before these in the batch.
    start: int
    taken_at_s: float
    taken_at_ms: int
    # A callback, as a future for each request would cost more than its answer. It never raises.
    tell: Callable[[Report], object]
    is_told: bool = False

    def settle(self, report: Report) -> None:
        """Report to the request once; an earlier report, such as `unknown`, remains."""
        if not self.is_told:
            self.is_told = True
            try:
                self.tell(report)
            except Exception:
                # A bug in one request: others in the batch, and the batches after it, must not
                # wait forever.
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
        """Append events until the batch is full; return how many were appended."""
        count = self.builder.fill(events, now_ms)
        self.is_full = count < len(events)
        return count


@dataclass(slots=True, eq=False)
class Accumulator:
    """The batches of one Kafka partition: at most one in flight, the others waiting."""

    partition: int
    new_builder: Callable[[], RecordBatch]
    send: Callable[[int, RecordBatch, Handover], Awaitable[int]]
    # Returns once there is a producer and a leader for this partition.
    gate: Callable[[], Awaitable[object]]
    # Bytes taken so far, to spread events without a key evenly.
    assigned_bytes: int = 0
    _waiting: deque[_Batch] = field(default_factory=deque, init=False)
    _on_its_way: _Batch | None = field(default=None, init=False)
    _sender: asyncio.Task[None] | None = field(default=None, init=False)
    _stored_count: int = field(default=0, init=False)
    # At the last sweep: number of stored batches, and when that number last changed.
    _stored_seen: int = field(default=0, init=False)
    _moved_at_s: float = field(default=0.0, init=False)

    @property
    def is_filling(self) -> bool:
        """True while the last waiting batch can take more events."""
        return bool(self._waiting) and not self._waiting[-1].is_full

    @property
    def is_idle(self) -> bool:
        """True while it has no batches."""
        return self._sender is None

    @property
    def used_bytes(self) -> int:
        on_its_way = 0 if self._on_its_way is None else self._on_its_way.byte_count
        return on_its_way + sum([batch.byte_count for batch in self._waiting])

    @property
    def overdue_bytes(self) -> int:
        """Bytes of events that were reported as unknown, and that are still in memory."""
        batch = self._on_its_way
        if batch is None:
            return 0
        return sum(_size(s.events) for s in batch.slices if s.is_told)

    def oldest_s(self) -> float | None:
        """Return when the oldest of its events was taken."""
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
        """Take as many events as fit into one batch, at least one; return how many."""
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
        """Report on events that have waited too long. Called regularly, with the time.

        While Kafka stores batches, events may wait as long as a report may take. If Kafka stores
        nothing, waiting events are reported much sooner, as not stored.
        """
        if self._stored_count != self._stored_seen:
            self._stored_seen, self._moved_at_s = self._stored_count, now_s
        self._give_up(taken_until_s=now_s - ack_deadline_s, reason="no report in time")
        is_still = self._moved_at_s + queue_deadline_s <= now_s
        wait_s = queue_deadline_s if is_still else ack_deadline_s
        self._withdraw(taken_until_s=now_s - wait_s, reason="it could not be sent to kafka in time")
        if self._sender is not None and self._on_its_way is None and not self._waiting:
            # Nothing waits for the gate any more, and it may never open.
            self._sender.cancel()
            self._sender = None

    def close(self, reason: str) -> None:
        """Withdraw waiting events, and give up those in flight."""
        self._withdraw(taken_until_s=float("inf"), reason=reason)
        self._give_up(taken_until_s=float("inf"), reason=reason)
        if self._sender is not None:
            self._sender.cancel()

    async def _send_all(self) -> None:
        """Send batch after batch until none is waiting."""
        while True:
            await self._gather()
            if not self._waiting:
                break
            # Without a producer, events wait here, where they can still be withdrawn.
            try:
                await self.gate()
            except Exception:
                # A bug: later batches must not wait forever.
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
        """Let more events join the batch while each turn of the loop brings some."""
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
        """Report early slices of the batch in flight as unknown, and never send it again.

        If Kafka has no byte of it, report all its slices as not stored instead.
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
        """Withdraw each waiting slice taken by that time; slices wait in the order of arrival."""
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
        """Return a batch with some slices of another one; it is smaller, so they fit."""
        batch = _Batch(self.new_builder())
        for part in slices:
            part.start = batch.count
            filled = batch.fill(part.events, part.taken_at_ms)
            assert filled == len(part.events), "part of a batch must fit into a batch"
            batch.count += filled
            batch.byte_count += _size(part.events)
            batch.slices.append(part)
        return batch


def _size(events: Sequence[Event]) -> int:
    if type(events) is PlainEvents:
        return events.byte_count
    return sum([len(event.value) for event in events])
