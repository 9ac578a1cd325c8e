"""Brings rows to an outcome: from open records through requests to the resulting rows.

Nothing here knows Spark or Kafka. A row is never dropped. Only bugs of our own raise errors, and
the caller then reads the same rows again.
"""

import asyncio
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

from delivery.attempt_log import AttemptLog
from delivery.courier import Courier, nobodys
from delivery.dispatcher import Dispatcher
from delivery.flow_store import Calm, FlowStore, Permits
from delivery.http.attempt_spans import AttemptSpans
from delivery.http.sender import Sender
from delivery.opening import OpenedRows, Rows, Track, open_retries, open_stream
from delivery.outcomes import outcomes_of_unsent
from delivery.settling import Block, Settlement
from shared.config.destination import Destination
from shared.event.envelope import History
from shared.event.record import Origin, Position, RecordOut
from shared.flow.flow import SendLimits
from shared.flow.flow_record import PUBLISH_EVERY_MS, FlowRecord
from shared.retry.doubts import Doubts
from shared.retry.routing import route_state
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.settings import SecretSettings
from shared.runtime.tracing.settings import read_tracing

Tell: TypeAlias = Callable[[Sequence[RecordOut]], Awaitable[None]]
Keep: TypeAlias = Callable[[Sequence[RecordOut]], None]

# How long news for others waits for outcomes, to be stored with them.
_TELL_S = 0.05
# A worker remembers for at most this many destinations that they were well.
_CALMS_MAX = 1_024
# How long a task may wait for a destination in trouble if others share the task: long enough for
# another task's probe.
TROUBLE_WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """The instructions for sending, besides the rows."""

    reads: Literal["stream", "retry"]
    destinations: Mapping[str, Destination]
    # Where the workers of this machine share the state of destinations.
    flow_folder: Path
    schedule: RetrySchedule = field(default_factory=RetrySchedule)
    # Events whose requests have not started by then are parked. So a micro-batch lasts at most this
    # long plus one request's deadline, whatever the destination's health.
    time_box_s: float = 5.0
    # How long to wait for a destination in trouble that can be tried again soon.
    trouble_wait_s_max: float = math.inf
    # How long to wait for one answer; by default as long as the destination's owner has set. Due
    # events of a slower destination move to a lane that waits for it.
    patience_s: float | None = None
    # The maximum for an owner's limit: a lane for slow destinations waits for its slowest one.
    timeout_s_max: float = math.inf
    # A follower gets a new time box for each batch of rows until then, in time.monotonic.
    follows_until_s: float = 0.0
    # How long to assume that a destination is well without a look at its flow. Failures are written
    # at once, but other workers may learn of them this late.
    calm_s: float = 0.0
    # The very first event, by its offset, if it was tried before and holds up the others.
    first: tuple[int, History] | None = None
    # Offsets below these may have been sent before: their outcomes are unknown.
    replay_until: Position = field(default_factory=dict)
    # Waiting events that may be second copies, as the first one was read again.
    doubts: Doubts = field(default_factory=Doubts)
    # Later requests say that they may be repeats, as another process may send them, too.
    ours_until_ms: float = math.inf
    # The clock; the retrier uses the broker's, which stamps waiting events.
    clock: Callable[[], int] = now_ms
    # Whether a destination may be at a private address, as in a test or on somebody's laptop.
    allows_private: bool = False
    # Whether an event without an outcome may keep its place in the stream, and block all behind it.
    is_in_line: bool = False
    # Destinations that are known to be removed.
    removed: Collection[str] = ()
    # Returns a destination's tenant.
    tenant_of: Callable[[Destination], str] = nobodys
    # The destinations' flows in the state topic, for a machine that has no such folder yet.
    flows: Mapping[str, FlowRecord] = field(default_factory=dict)
    # How often the unchanged state of a destination is published.
    publish_every_ms: int = PUBLISH_EVERY_MS

    @property
    def rounds(self) -> float:
        """How many time boxes fit into the shortest tier's delay; 0 for a stream."""
        return self.schedule.tiers[0].delay_s / self.time_box_s if self.reads == "retry" else 0.0


class Worker:
    """The parts that live as long as the worker process: loop, connection pools, open files."""

    def __init__(self, *, allows_private: bool) -> None:
        self.loop = asyncio.new_event_loop()
        # Read the keys here: in the plan they would pass through Spark, and reach its disk.
        box = SecretSettings().secret_box
        self.sender = Sender(box=box, allows_private=allows_private)
        self.log = AttemptLog()
        tracing = read_tracing()
        self.spans = AttemptSpans(tracing.exporter("hifi-delivery")) if tracing else None
        # The spread of delays, and the names of tasks, need no secure randomness.
        self.dice = random.Random()  # noqa: S311
        self._stores: dict[Path, FlowStore] = {}
        self._calms: dict[tuple[Path, str], Calm] = {}

    def store(self, plan: Plan) -> FlowStore:
        store = self._stores.setdefault(plan.flow_folder, FlowStore(plan.flow_folder))
        store.published, store.publish_every_ms = plan.flows, plan.publish_every_ms
        return store

    def calm(self, plan: Plan, name: str) -> Calm:
        """Return a destination's Calm, which is kept from one task to the next."""
        key = plan.flow_folder, name
        calm = self._calms.pop(key, None) or Calm()
        calm.span_s = plan.calm_s
        if len(self._calms) >= _CALMS_MAX:
            self._calms.pop(next(iter(self._calms)))
        # The last entry is the one used last.
        self._calms[key] = calm
        return calm


# The worker of the process, made at its first task: Spark forks processes before that. All lanes of
# a process may send to the same addresses.
worker_of = cache(Worker)


class Sending:
    """Rows of one Kafka partition on their way from open record to outcome."""

    def __init__(
        self, plan: Plan, worker: Worker, *, is_again: bool = False, tell: Tell | None = None
    ) -> None:
        self._plan = plan
        # Stores news for other machines before the present rows are settled.
        self._tell = tell
        self._telling: set[asyncio.Task[None]] = set()
        self._is_again = is_again
        self._worker = worker
        self._store = worker.store(plan)
        self._courier = Courier(
            worker.sender,
            worker.log,
            plan.clock,
            plan.patience_s,
            plan.ours_until_ms,
            worker.spans,
            plan.tenant_of,
        )
        # Set only when there is something to send: the time box does not include reading the rows.
        self._box_end_s: float | None = None
        self._dice = worker.dice
        self._name = f"{os.getpid()}.{self._dice.getrandbits(32):x}"
        self._dispatchers: dict[str, Dispatcher] = {}
        self._read_at: Origin | None = None

    async def settle(
        self, rows: Rows, *, is_last: bool = False, keep: Keep | None = None
    ) -> list[RecordOut]:
        """Bring every record to an outcome that Kafka can hold; `is_last` if no more will come.

        With `keep`, no destination waits for others: `keep` gets the outcomes of each destination
        as soon as they are settled, and the result is empty.
        """
        opened = self._open(rows)
        self._read_at = opened.first
        at_ms = self._plan.clock()
        now_s = time.monotonic()
        if self._box_end_s is None or now_s < self._plan.follows_until_s:
            self._box_end_s = now_s + self._plan.time_box_s
        outcomes: list[RecordOut] = []
        if keep is not None:
            keep(self._unsent(opened, at_ms))
        if len(opened.to_send) == 1:
            ((name, tracks),) = opened.to_send.items()
            outcomes += await self._drain(name, tracks, self._box_end_s, keep, is_last=is_last)
        else:
            # A group, so that a bug in one leaves no other running.
            async with asyncio.TaskGroup() as group:
                drains = [
                    group.create_task(
                        self._drain(name, tracks, self._box_end_s, keep, is_last=is_last)
                    )
                    for name, tracks in opened.to_send.items()
                ]
            for drained in drains:
                outcomes += drained.result()
        if self.block is not None:
            opened.forget_from(self.block.offset)
        return outcomes if keep is not None else outcomes + self._unsent(opened, at_ms)

    async def _drain(
        self,
        name: str,
        tracks: Sequence[Track],
        box_end_s: float,
        keep: Keep | None,
        *,
        is_last: bool,
    ) -> list[RecordOut]:
        """Settle the events of one destination, and add its news for other machines."""
        dispatcher = self._dispatcher(name)
        outcomes = await dispatcher.drain(tracks, box_end_s=box_end_s, is_last=is_last)
        if self._worker.spans is not None:
            self._worker.spans.note_dead(outcomes)
        if news := dispatcher.permits.news():
            outcomes.append(route_state(name, news.to_json()))
        if keep is None:
            return outcomes
        keep(outcomes)
        return []

    def _unsent(self, opened: OpenedRows, at_ms: int) -> list[RecordOut]:
        outcomes = outcomes_of_unsent(opened, at_ms=at_ms, read_at=self._read_at)
        if self._worker.spans is not None:
            self._worker.spans.note_dead(outcomes)
        return outcomes

    @property
    def block(self) -> Block | None:
        """The event, of the last settled rows, that keeps its place and blocks all behind it."""
        return next((each.block for each in self._dispatchers.values() if each.block), None)

    def leave(self) -> None:
        """Send no more."""
        for dispatcher in self._dispatchers.values():
            dispatcher.permits.leave()

    def _open(self, rows: Rows) -> OpenedRows:
        plan, at_ms = self._plan, self._plan.clock()
        match plan.reads:
            case "stream":
                fresh = History.fresh(now_ms=at_ms, deadline_s=plan.schedule.deadline_s)
                if self._is_again:
                    fresh = replace(fresh, is_ambiguous=True)
                return open_stream(
                    rows,
                    plan.destinations,
                    fresh,
                    replay_until=plan.replay_until,
                    first=plan.first,
                )
            case "retry":
                return open_retries(
                    rows,
                    plan.destinations,
                    plan.schedule,
                    removed=plan.removed,
                    is_again=self._is_again,
                    replay_until=plan.replay_until,
                    doubts=plan.doubts,
                    is_slow=self._is_slow,
                    now_ms=at_ms,
                )
            case _:
                assert_never(plan.reads)

    def _tell_soon(self, name: str) -> None:
        """Publish news soon, or together with the outcomes if those are settled earlier."""
        if self._tell is not None:
            asyncio.get_running_loop().call_later(_TELL_S, self._tell_now, name, self._tell)

    def _tell_now(self, name: str, tell: Tell) -> None:
        async def store(record: FlowRecord) -> None:
            # If Kafka does not take the record, the next one says the same.
            with suppress(Exception):
                await tell([route_state(name, record.to_json())])

        if news := self._dispatchers[name].permits.news():
            telling = asyncio.create_task(store(news))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    def _is_slow(self, name: str) -> bool:
        """Say whether a destination is so slow that its due events belong to another lane."""
        return self._plan.patience_s is not None and self._dispatcher(name).permits.is_slow

    def _dispatcher(self, name: str) -> Dispatcher:
        if name not in self._dispatchers:
            plan, destination = self._plan, self._plan.destinations[name]
            if destination.timeout_s > plan.timeout_s_max:
                destination = replace(destination, timeout_s=plan.timeout_s_max)
            self._dispatchers[name] = Dispatcher(
                self._courier,
                Permits(
                    self._name,
                    self._store,
                    SendLimits(destination, plan.schedule),
                    self._worker.calm(plan, name) if plan.calm_s else Calm(),
                    partial(self._tell_soon, name),
                ),
                Settlement(
                    destination,
                    plan.schedule,
                    plan.clock,
                    self._read_at,
                    is_in_line=plan.is_in_line and destination.order == "stream",
                ),
                self._dice,
                trouble_wait_s_max=plan.trouble_wait_s_max,
                rounds=plan.rounds,
            )
        dispatcher = self._dispatchers[name]
        if dispatcher.settlement.read_at != self._read_at:
            dispatcher.settlement = replace(dispatcher.settlement, read_at=self._read_at)
        return dispatcher
