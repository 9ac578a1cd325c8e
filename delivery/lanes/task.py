"""Sends the units of a Spark task: reads, delivers, stores the outcomes, and writes marks.

All strands of a task run side by side on the worker's loop. Each is marked as soon as it is done,
even if others still wait, and a fault in one is reported only for that one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache

import structlog

from delivery.event_columns import FetchedRecords
from delivery.lanes.following.terms import TERMS_LOG, number_of, terms_of
from delivery.lanes.marks import OPEN, Mark, mark_record
from delivery.lanes.outlet import Outlet
from delivery.lanes.reading import Came, DataLostError, NoRoom, Portion, Reading
from delivery.lanes.units import PATIENCE_S, Orders, Span, Strand, StrandEnd, TaskEnd, Unit
from delivery.sending import TROUBLE_WAIT_S, Plan, Sending, Worker, worker_of
from delivery.settling import Block
from shared.event.record import RecordOut
from shared.proof.receipt import receipt_of_none, without_event
from shared.retry.routing import in_sheets, route_receipt
from shared.runtime.clock import now_ms
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.spark.processor_time import processor_time
from shared.runtime.spark.task_tries import is_another_try
from shared.runtime.tenant_turns import TenantTurns

log = structlog.get_logger()

# At most this many strands begin at the same time: each may open connections, and a thousand at
# once would all be late. A strand that hangs gives up its place, so that many of them do not fill a
# task. A tenant has at most half of the places.
_SIDE_BY_SIDE = 128
# How long to skip looks at the flow, which other workers write as well: a look is half of the cost
# of a single event.
_CALM_S = 1.0
# Followers of logs usually end together: then one report says that all of them are free.
_TOGETHER_S = 0.2
# Settle at most this many events in one go, in whole batches: enough for 20 requests of 500 side by
# side.
_ROWS_MAX = 10_000
# The bytes of outcomes that may wait to be stored while more events are sent: about a hundred
# single events, so that none of them waits for Kafka twice.
_AHEAD_BYTES_MAX = 65_536
# The reason in receipts for offsets that hold no event.
NO_EVENT = "no_event"
# How often followers of logs store outcomes, all strands of a worker at the same moments. Forty
# strands write as many small records, whose cost is in the requests rather than in the bytes.
_STORE_EVERY_S = 0.025


def run_units(tasks: Iterable[tuple[Sequence[Unit], Orders]]) -> Iterator[TaskEnd]:
    """Send the units of one Spark task, and report on each strand."""
    if is_another_try():
        # Nobody knows how much the first try has sent: the driver plans the rest again.
        return
    for units, orders in tasks:
        worker = worker_of(allows_private=orders.allows_private)
        before = processor_time()
        reports = worker.loop.run_until_complete(_run(units, orders))
        yield TaskEnd(reports, processor_time().since(before))
        worker.loop.run_until_complete(worker.sender.end_task())


class _Kafka:
    """The Kafka clients of a worker process."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.outlet = Outlet(bootstrap_servers)
        self._bootstrap_servers = bootstrap_servers
        self._log: LogClient | None = None

    async def log(self) -> LogClient:
        if self._log is None:
            self._log = await LogClient(self._bootstrap_servers).__aenter__()
        return self._log


_kafka_of = cache(_Kafka)


async def _run(units: Sequence[Unit], orders: Orders) -> list[StrandEnd]:
    kafka = _kafka_of(orders.bootstrap_servers)
    # Fewer strands need no turns.
    is_crowd = sum(len(unit.spans) for unit in units) > _SIDE_BY_SIDE
    turns = _turns_of(set(orders.tenants.values())) if is_crowd else None
    begun_s = asyncio.get_running_loop().time()
    until_s = begun_s + orders.follow_s
    runs = [
        _StrandRun(Strand(name, unit.where), span, orders, kafka.outlet, turns, until_s)
        for unit in units
        for name, span in unit.spans.items()
    ]
    reading = Reading(
        units,
        orders.leaders,
        await kafka.log(),
        until_s,
        {run.strand: run.came for run in runs},
    )
    hearing = asyncio.create_task(_hear(reading, runs, orders, begun_s))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(reading.run())
            reports = [group.create_task(run.run()) for run in runs]
            group.create_task(_tell_done(dict(zip(reports, runs, strict=True)), kafka.outlet))
    finally:
        hearing.cancel()
    return [report.result() for report in reports]


async def _hear(
    reading: Reading, runs: "Sequence[_StrandRun]", orders: Orders, begun_s: float
) -> None:
    """Learn how long strands that follow their logs may continue.

    Stop once one strand is over: the driver learns of it when all strands are over, and then plans
    all of them in the next job.
    """
    number, node = number_of(reading.units), orders.leaders.get(TERMS_LOG)
    if not number or node is None or orders.terms_at is None:
        return
    async for term in terms_of(number, reading.log, node, orders.terms_at):
        if any(run.is_over for run in runs):
            return
        reading.until_s = begun_s + term.follow_s
        orders = replace(orders, follow_s=term.follow_s, ours_until_ms=term.ours_until_ms)
        for run in runs:
            run.orders, run.until_s = orders, reading.until_s


async def _tell_done(runs: "Mapping[asyncio.Task[StrandEnd], _StrandRun]", outlet: Outlet) -> None:
    """Free the strands that followed their logs and are done, while others still work."""
    left = set(runs)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        if left:
            more, left = await asyncio.wait(left, timeout=_TOGETHER_S)
            done |= more
        if left:
            # If Kafka refuses these marks, the report still says the same later.
            with suppress(Exception):
                await outlet.store([mark for each in done for mark in runs[each].last_marks()])


def _turns_of(tenants: Collection[str]) -> TenantTurns:
    return TenantTurns(_SIDE_BY_SIDE, of_a_tenant=_SIDE_BY_SIDE // min(2, len(tenants)))


@asynccontextmanager
async def _beginning(turns: TenantTurns, tenant: str) -> AsyncIterator[None]:
    """Hold one of the places for strands that are sent side by side, for at most PATIENCE_S."""
    await turns.take(tenant)
    with ExitStack() as place:
        place.callback(turns.give_back, tenant)
        loop = asyncio.get_running_loop()
        place.callback(loop.call_later(PATIENCE_S, place.close).cancel)
        yield


@dataclass(slots=True)
class _StrandRun:
    """One destination's part of a task, in one Kafka partition."""

    strand: Strand
    span: Span
    orders: Orders
    outlet: Outlet
    turns: TenantTurns | None
    # When a follower has to end, in the loop's time.
    until_s: float
    came: Came = field(default_factory=asyncio.Queue)
    # The offset up to which Kafka has the outcomes.
    _stored: int = 0
    _event_count: int = 0
    _has_ended: bool = False
    _has_ended_well: bool = False
    # Shares that have arrived and are not settled yet, oldest first.
    _waiting: deque[Portion] = field(default_factory=deque)
    # The last item of the queue: (None,) or an error; None while reading continues.
    _last: tuple[Exception | None] | None = None
    # Earlier outcomes are stored while the next events are sent; newer outcomes, and the offset
    # that they reach, are stored next.
    _storing: asyncio.Task[None] | None = None
    _left: list[RecordOut] = field(default_factory=list)
    _left_bytes: int = 0
    _reached: int = 0
    # The event that keeps its place and blocks all behind it; its mark is stored in any case.
    _block: Block | None = None
    _is_to_say_why: bool = False

    async def run(self) -> StrandEnd:
        """Send the strand's events. Never raises: others share the task."""
        self._stored = self._reached = self.span.begin
        error, is_data_lost = "", False
        try:
            await self._send()
            self._has_ended_well = True
        except (Exception, asyncio.CancelledError) as caught:
            task = asyncio.current_task()
            if isinstance(caught, asyncio.CancelledError) and (task is None or task.cancelling()):
                # This task itself is cancelled. If only something it awaits is cancelled, it fails.
                raise
            error = f"{type(caught).__name__}: {caught}"
            is_data_lost = isinstance(caught, DataLostError)
        finally:
            self._has_ended = True
            await self._let_go_of_the_rest()
        return StrandEnd(
            self.strand, self._stored, self._event_count, error[:300], is_data_lost, self._block
        )

    @property
    def is_over(self) -> bool:
        """Whether it sends no more, or will fail when it next has something to send."""
        has_stored = self._storing is not None and self._storing.done()
        return self._has_ended or (has_stored and self._stored < self._reached)

    async def _send(self) -> None:
        worker = worker_of(allows_private=self.orders.allows_private)
        orders, sending = self.orders, self._sending(worker)
        try:
            while portions := await self._next():
                if orders is not self.orders:
                    sending.leave()
                    orders, sending = self.orders, self._sending(worker)
                if not await self._settle(sending, portions):
                    break
        finally:
            try:
                if self._storing is not None:
                    await self._storing
            finally:
                sending.leave()

    async def _next(self) -> list[Portion]:
        """Return the portions to settle in one go; none once the queue is over.

        A span with an end is cut at fixed event counts, however its events arrive, so that a repeat
        of it makes the same batches.
        """
        is_following = self.span.end is None
        count_max = max(1, _ROWS_MAX // self._batch_count) * self._batch_count
        count = sum(len(portion.rows.records) for portion in self._waiting)
        while self._last is None and count < count_max:
            if is_following and self._waiting and self.came.empty():
                break
            came = await self.came.get()
            if isinstance(came, Portion):
                self._waiting.append(came)
                count += len(came.rows.records)
            elif not isinstance(came, NoRoom):
                self._last = (came,)
            elif self._waiting:
                break
        if not self._waiting and self._last is not None and self._last[0] is not None:
            raise self._last[0]
        return self._taken(count_max)

    @property
    def _batch_count(self) -> int:
        return self.orders.destinations[self.strand.destination].batch_count_max

    def _taken(self, count_max: int) -> list[Portion]:
        portions: list[Portion] = []
        while self._waiting and count_max > 0:
            portion = self._waiting.popleft()
            if len(portion.rows.records) > count_max:
                portion, rest = portion.split_at(count_max)
                self._waiting.appendleft(rest)
            portions.append(portion)
            count_max -= len(portion.rows.records)
        return portions

    async def _settle(self, sending: Sending, portions: Sequence[Portion]) -> bool:
        """Settle portions; False if nothing was sent, as the lease is over and others may send."""
        rows = portions[0].rows
        if len(portions) > 1:
            rows = FetchedRecords(
                rows.where, [each for portion in portions for each in portion.rows.records]
            )
        try:
            outcomes: list[RecordOut] = []
            if rows.records:
                tenant = self.orders.tenants.get(self.strand.destination, "")
                async with _beginning(self.turns, tenant) if self.turns else nullcontext():
                    if now_ms() > self.orders.ours_until_ms:
                        return False
                    is_last = portions[-1].reached == self.span.end
                    outcomes = await sending.settle(rows, is_last=is_last)
        finally:
            for portion in portions:
                portion.done()
        self._event_count += len(rows.records)
        self._block = sending.block
        reached = portions[-1].reached if self._block is None else self._block.offset
        if portions[-1].reached - self._reached > len(rows.records):
            outcomes += self._of_no_event(rows, reached)
        await self._keep(outcomes, reached)
        return self._block is None

    def _of_no_event(self, rows: FetchedRecords, reached: int) -> Iterator[RecordOut]:
        """Cover transaction markers and aborted records, which would look lost otherwise."""
        offsets = (record.offset for record in rows.records)
        # Offsets behind a block get their receipts once the block has ended.
        if covered := tuple(without_event(rows.where, offsets, (self._reached, reached))):
            to = self.strand.destination
            yield route_receipt(receipt_of_none(to, covered, reason=NO_EVENT, at_ms=now_ms()))

    async def _keep(self, outcomes: Sequence[RecordOut], reached: int) -> None:
        """Queue outcomes; they are stored with later ones, once the store under way has ended."""
        size = sum(len(row.value or b"") for row in outcomes)
        is_much = self._left_bytes + size > _AHEAD_BYTES_MAX
        if self._storing is not None and (is_much or self._storing.done()):
            await self._storing
            self._storing = None
        self._left += outcomes
        self._left_bytes += size
        self._reached, self._is_to_say_why = reached, self._block is not None
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())

    async def _store(self) -> None:
        is_following = self.span.end is None
        while self._stored < self._reached or self._left or self._is_to_say_why:
            if is_following and self._last is None:
                await asyncio.sleep(-asyncio.get_running_loop().time() % _STORE_EVERY_S)
            outcomes, reached = self._left, self._reached
            self._left, self._left_bytes, self._is_to_say_why = [], 0, False
            await self.outlet.store(in_sheets(outcomes))
            await self.outlet.store([self._mark(reached)])
            self._stored = reached

    def _mark(self, at: int) -> RecordOut:
        waiting, wait_ms = None, 0
        if (block := self._block) is not None and at == block.offset:
            # Events beyond the block may have been sent, up to this offset.
            until, wait_ms = block.sent_until, block.wait_ms
            waiting = block.history or (self.span.waiting if at == self.span.begin else None)
        else:
            until = OPEN if self.span.end is None else self.span.end
        until, is_late = max(at, until, self.span.maybe_sent), now_ms() > self.orders.ours_until_ms
        mark = Mark(at, until, late=is_late, waiting=waiting, wait_ms=wait_ms, life=self.span.life)
        return mark_record(self.strand, mark)

    def last_marks(self) -> list[RecordOut]:
        """Return the mark that says that following has stopped; none if it ended in another way."""
        is_ours = now_ms() <= self.orders.ours_until_ms
        mark = Mark(self._stored, OPEN, done=self.span.number, life=self.span.life)
        if self.span.end is not None or not self._has_ended_well or not is_ours:
            return []
        return [mark_record(self.strand, mark)]

    async def _let_go_of_the_rest(self) -> None:
        """Free the portions that arrive after a fault: nobody needs them."""
        for portion in self._waiting:
            portion.done()
        while self._last is None:
            came = await self.came.get()
            if isinstance(came, Portion):
                came.done()
            elif not isinstance(came, NoRoom):
                self._last = (came,)

    def _sending(self, worker: Worker) -> Sending:
        return Sending(self._plan(), worker, tell=self.outlet.store)

    def _plan(self) -> Plan:
        name, orders = self.strand.destination, self.orders
        return Plan(
            reads="stream",
            destinations={name: orders.destinations[name]},
            tenant_of=lambda to: orders.tenants.get(to.id, ""),
            schedule=orders.schedule,
            time_box_s=orders.time_box_s,
            follows_until_s=self.until_s if self.span.end is None else 0.0,
            calm_s=_CALM_S if name in orders.unasked else 0.0,
            patience_s=orders.patience_s,
            trouble_wait_s_max=TROUBLE_WAIT_S if name in orders.resting else float("inf"),
            replay_until={self.strand.where: self.span.maybe_sent},
            first=(self.span.begin, self.span.waiting) if self.span.waiting else None,
            is_in_line=self.span.end is not None,
            ours_until_ms=orders.ours_until_ms,
            allows_private=orders.allows_private,
            flow_folder=orders.flow_folder,
            flows=orders.flows,
            publish_every_ms=orders.publish_every_ms,
        )
