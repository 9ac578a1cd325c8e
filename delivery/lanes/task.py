"""Sends the units of a Spark task: reads, delivers, stores what is left behind, and marks it.

All strands of a task go side by side on the worker's loop. Each is marked as soon as it is done,
whatever the others still wait for, and what goes wrong with one is reported of that one.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import structlog

from delivery.event_columns import Fetched
from delivery.lanes.marks import OPEN, Mark, mark_record
from delivery.lanes.outlet import Outlet
from delivery.lanes.reading import Came, DataLostError, Reading, Share
from delivery.lanes.units import Orders, Span, Strand, StrandEnd, Unit
from delivery.sending import TROUBLE_WAIT_S, Plan, Sending, worker_of
from shared.event.record import RecordOut
from shared.retry.routing import in_sheets
from shared.runtime.clock import now_ms
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.spark.task_tries import is_another_try

log = structlog.get_logger()

# Destinations that are sent to at the same time: each may open connections, and a thousand at once
# would all be late.
_SIDE_BY_SIDE = 128
# With single events a look at the flow, which other workers write too, is half of what each costs.
_CALM_S = 1.0
# Settled in one go, of what has come: enough for 20 requests of 500 side by side.
_ROWS_MAX = 10_000


class LeaseOverError(Exception):
    """What was to be sent next may be somebody else's by now."""


def run_units(tasks: Iterable[Sequence[Unit]], *, orders: Orders) -> Iterator[list[StrandEnd]]:
    """Send the units of one Spark task, and report of each strand."""
    if is_another_try():
        # Nobody knows what the first try has sent: the driver plans the rest of it anew.
        return
    worker = worker_of(allows_private=orders.allows_private)
    for units in tasks:
        yield worker.loop.run_until_complete(_run(units, orders))
        worker.loop.run_until_complete(worker.sender.end_task())


class _Kafka:
    """What a worker process reads and writes with, for as long as it lives."""

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
    side_by_side = asyncio.Semaphore(_SIDE_BY_SIDE)
    runs = [
        _StrandRun(Strand(name, unit.where), span, orders, kafka.outlet, side_by_side)
        for unit in units
        for name, span in unit.spans.items()
    ]
    reading = Reading(
        units,
        orders.leaders,
        await kafka.log(),
        asyncio.get_running_loop().time() + orders.follow_s,
        {run.strand: run.came for run in runs},
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(reading.run())
        reports = [group.create_task(run.run()) for run in runs]
    return [report.result() for report in reports]


@dataclass(slots=True)
class _StrandRun:
    """One destination's part of a task, of one Kafka partition."""

    strand: Strand
    span: Span
    orders: Orders
    outlet: Outlet
    side_by_side: asyncio.Semaphore
    came: Came = field(default_factory=asyncio.Queue)
    # Up to where Kafka has the outcomes.
    _stored: int = 0
    _event_count: int = 0
    # How the reading has ended: with nothing, or with what went wrong.
    _last: tuple[Exception | None] | None = None
    # The outcomes before are stored while the next events are sent.
    _storing: asyncio.Task[None] | None = None

    async def run(self) -> StrandEnd:
        """Never raises: others share the task."""
        self._stored = self.span.begin
        error, is_data_lost = "", False
        sending = Sending(self._plan(), worker_of(allows_private=self.orders.allows_private))
        try:
            try:
                while parts := await self._next():
                    await self._settle(sending, parts)
            finally:
                if self._storing is not None:
                    await self._storing
        except Exception as caught:  # noqa: BLE001 - it is reported, and planned anew
            error = f"{type(caught).__name__}: {caught}"
            is_data_lost = isinstance(caught, DataLostError)
        finally:
            sending.leave()
            await self._let_go_of_the_rest()
        return StrandEnd(self.strand, self._stored, self._event_count, error[:300], is_data_lost)

    async def _next(self) -> list[Share]:
        """What has come by now; nothing once all is over."""
        parts: list[Share] = []
        row_count = 0
        while self._last is None and (not parts or not self.came.empty()):
            came = await self.came.get()
            if not isinstance(came, Share):
                self._last = (came,)
                break
            parts.append(came)
            row_count += len(came.rows.records)
            if row_count >= _ROWS_MAX:
                break
        if not parts and self._last is not None and self._last[0] is not None:
            raise self._last[0]
        return parts

    async def _settle(self, sending: Sending, parts: Sequence[Share]) -> None:
        if now_ms() > self.orders.ours_until_ms:
            raise LeaseOverError("this process was not heard of for too long: others may have it")
        rows = parts[0].rows
        if len(parts) > 1:
            rows = Fetched(rows.where, [each for part in parts for each in part.rows.records])
        try:
            outcomes: list[RecordOut] = []
            if rows.records:
                async with self.side_by_side:
                    outcomes = await sending.settle(rows)
        finally:
            for part in parts:
                part.chunk.done()
        self._event_count += len(rows.records)
        if self._storing is not None:
            await self._storing
        self._storing = asyncio.create_task(self._store(outcomes, parts[-1].reached))

    async def _store(self, outcomes: Sequence[RecordOut], reached: int) -> None:
        await self.outlet.store(in_sheets(outcomes))
        await self.outlet.store([self._mark(reached)])
        self._stored = reached

    def _mark(self, at: int) -> RecordOut:
        until = OPEN if self.span.end is None else self.span.end
        return mark_record(self.strand, Mark(at, max(at, until, self.span.maybe_sent)))

    async def _let_go_of_the_rest(self) -> None:
        """What comes after a fault is held for nobody."""
        while self._last is None:
            part = await self.came.get()
            if isinstance(part, Share):
                part.chunk.done()
            else:
                self._last = (part,)

    def _plan(self) -> Plan:
        name, orders = self.strand.destination, self.orders
        return Plan(
            reads="stream",
            destinations={name: orders.destinations[name]},
            schedule=orders.schedule,
            time_box_s=orders.time_box_s,
            is_following=self.span.end is None,
            calm_s=_CALM_S,
            trouble_wait_s_max=TROUBLE_WAIT_S if name in orders.resting else float("inf"),
            replay_until={self.strand.where: self.span.maybe_sent},
            ours_until_ms=orders.ours_until_ms,
            allows_private=orders.allows_private,
            flow_folder=orders.flow_folder,
            flows=orders.flows,
        )
