"""Decides how a task's rows become queues of batches, and turns what comes of them into rows again.

`deliver` is a plain generator over Arrow batches with no Spark in it. It opens the records, gives
each destination its queue, and yields the outcomes: receipts, retries, dead letters, and now and
then what is known of a destination. It never drops a row, and it raises only for our own mistakes,
so that the task fails and Spark reads the same rows again.
"""

import asyncio
import os
import random
import time
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, assert_never

import pyarrow as pa

from delivery.batches import Batch, Tried, fresh_batches, is_plain, tried_batches
from delivery.courier import Courier
from delivery.dispatcher import Dispatcher
from delivery.flow_store import FlowStore
from delivery.http.sender import Sender
from delivery.outcomes import Exchange, hop, outcomes_of
from delivery.pace import AT_ONCE, Pace
from delivery.rows import Rows, columns_of, envelopes_of, first_place, records_of
from delivery.settling import Settlement
from shared.config.destination import Destination
from shared.config.selection import is_wanted
from shared.event.envelope import Envelope, History, Malformed, open_retry_record
from shared.event.record import KafkaPartition, Origin, Position, RecordIn, RecordOut
from shared.flow.flow import limits_of
from shared.flow.flow_record import FlowRecord
from shared.retry.decision import (
    DESTINATION_GONE,
    FILTERED,
    DeadLetter,
    Delivered,
    Hop,
    Send,
    admit,
)
from shared.retry.routing import in_sheets, route_malformed, route_state
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.settings import SecretSettings
from shared.runtime.spark.arrow_rows import batch_of


@dataclass(frozen=True, slots=True)
class Plan:
    """What a lane's tasks need to know; it travels to the workers with the query."""

    reads: Literal["stream", "retry"]
    destinations: Mapping[str, Destination]
    schedule: RetrySchedule = field(default_factory=RetrySchedule)
    # What has not started by then is parked, so that the length of a micro-batch does not hang on
    # the destination's moods: it is this and one request's deadline at the most.
    time_box_s: float = 5.0
    # A task that lives as long as its query has a box for each Arrow batch.
    is_realtime: bool = False
    # Offsets below these may have been sent by a micro-batch that died before its checkpoint.
    replay_until: Position = field(default_factory=dict)
    # What time it is; the retrier asks the broker, whose clock stamps what waits.
    clock: Callable[[], int] = now_ms
    # Whether a destination may be at a private address, as in a test or on somebody's laptop.
    allows_private: bool = False
    # Which replay this is part of; empty for a live lane.
    replay_id: str = ""
    # Where the workers of this machine share what they know of destinations; without it each
    # task begins anew.
    flow_folder: Path | None = None
    # What the state topic knows of them, for a machine that has no such folder yet.
    flows: Mapping[str, FlowRecord] = field(default_factory=dict)
    # A file that is there when the lane is to end: what need not be waited for then is not.
    end_mark: Path | None = None


# Of a real-time task's outcomes so many bytes are kept at the most until its interval ends.
_KEPT_BYTES_MAX = 32 * 1024 * 1024
# What a row costs besides its value: topic, key, headers.
_ROW_BYTES = 300

# In real time requests are small and many, and looking at the flow, which other workers write too,
# was half of what each one cost. A failure is told at once, and other workers hear of it so late.
_CALM_S = 0.1


def deliver(
    batches: Iterable[Rows],
    plan: Plan,
    *,
    is_again: bool = False,
    pace: Pace = AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """Send every row of a task to its destination; yield one row per outcome.

    `is_again` says that another try of this very task died, so that all of it may be a repeat. A
    task that parks for want of time, or of leave to send, goes at its `pace`.
    """
    begun_s = time.monotonic()
    worker = _worker(plan)
    task = _Task(plan, worker, is_again=is_again)
    has_waited = False
    try:
        kept: list[RecordOut] = []
        kept_bytes = 0
        for batch in batches:
            outcomes = worker.run(task.settle(batch))
            if task.is_held_up and not has_waited:
                pace.before_handing_over()
                has_waited = True
            kept += outcomes
            kept_bytes += sum(len(row.value) + _ROW_BYTES for row in outcomes)
            # Spark takes nothing from a real-time task before its interval ends, unless the task
            # takes no rows: what is yielded before fills the pipe, and then the task stands still.
            if kept and (not plan.is_realtime or kept_bytes > _KEPT_BYTES_MAX):
                yield batch_of(in_sheets(kept))
                kept, kept_bytes = [], 0
        if kept:
            yield batch_of(in_sheets(kept))
        if task.is_held_up:
            pace.before_end(begun_s=begun_s, was_refused=task.was_refused)
    finally:
        task.leave()


class _Task:
    """The rows of one Spark task, from open record to outcome."""

    def __init__(self, plan: Plan, worker: "_Worker", *, is_again: bool) -> None:
        self._plan = plan
        self._store = worker.store(plan)
        self._courier = Courier(worker.sender, plan.clock, plan.replay_until, is_again)
        self._box_end_s = time.monotonic() + plan.time_box_s
        # The spread of delays, and names of tasks, need no secrecy.
        self._dice = random.Random()  # noqa: S311
        self._name = f"{os.getpid()}.{self._dice.getrandbits(32):x}"
        self._queues: dict[str, Dispatcher] = {}
        # Known with the first rows; a replay has no position that could confirm its receipts.
        self._read_at: Origin | None = None

    async def settle(self, batch: Rows) -> list[RecordOut]:
        """Bring every record to an outcome that Kafka can hold."""
        if self._read_at is None and not self._plan.replay_id:
            self._read_at = first_place(batch)
        outcomes: list[RecordOut] = []
        match self._plan.reads:
            case "stream":
                to_send = self._open_stream(batch, outcomes)
            case "retry":
                to_send = self._open_retries(records_of(batch), outcomes)
            case _:
                assert_never(self._plan.reads)
        if self._plan.is_realtime:
            self._box_end_s = time.monotonic() + self._plan.time_box_s
        if len(to_send) == 1:
            ((name, tracks),) = to_send.items()
            outcomes += await self._queue(name).drain(tracks, box_end_s=self._box_end_s)
            return outcomes + self._news(to_send)
        # A group, so that our own mistake in one queue leaves no other one running behind us.
        async with asyncio.TaskGroup() as group:
            drains = [
                group.create_task(self._queue(name).drain(tracks, box_end_s=self._box_end_s))
                for name, tracks in to_send.items()
            ]
        for drain in drains:
            outcomes += drain.result()
        return outcomes + self._news(to_send)

    def _news(self, names: Iterable[str]) -> list[RecordOut]:
        """What others should hear of these destinations; what is not kept is not told either."""
        if self._plan.flow_folder is None:
            return []
        news = [(name, self._queue(name).news()) for name in names]
        return [route_state(name, record.to_json()) for name, record in news if record]

    @property
    def was_refused(self) -> bool:
        """Whether events had to wait elsewhere, and not one was sent."""
        return self._has_refused() and not any(one.has_sent for one in self._queues.values())

    @property
    def is_held_up(self) -> bool:
        """The same, or some were sent and that took all of the time there was."""
        is_over = time.monotonic() >= self._box_end_s
        return self.was_refused or (is_over and self._has_refused())

    def _has_refused(self) -> bool:
        return any(one.has_refused for one in self._queues.values())

    def leave(self) -> None:
        for queue in self._queues.values():
            queue.leave()

    def _queue(self, name: str) -> Dispatcher:
        if name not in self._queues:
            plan, destination = self._plan, self._plan.destinations[name]
            self._queues[name] = Dispatcher(
                self._name,
                self._courier,
                self._store,
                Settlement(destination, plan.schedule, plan.clock, self._dice, self._read_at),
                limits_of(destination, plan.schedule),
                calm_s=_CALM_S if plan.is_realtime else 0.0,
            )
        return self._queues[name]

    def _open_stream(
        self, batch: Rows, outcomes: list[RecordOut]
    ) -> dict[str, Sequence[Iterable[Batch]]]:
        """First attempts: every event goes to every destination of the lane, which has one."""
        fresh = History.fresh(now_ms=self._plan.clock(), deadline_s=self._plan.schedule.deadline_s)
        if self._plan.replay_id:
            # Also what the retrier sends of it later says so.
            fresh = replace(fresh, replay_id=self._plan.replay_id)
        if self._is_repeat(batch):
            # What fails now may wait in a tier already: each copy's request must say so.
            fresh = replace(fresh, is_ambiguous=True)
        to_send: dict[str, Sequence[Iterable[Batch]]] = {}
        for name, destination in self._plan.destinations.items():
            columns = columns_of(batch) if is_plain(destination) else None
            if columns is not None:
                to_send[name] = [fresh_batches(columns, fresh, destination)]
            else:
                tried = [Tried(envelope, fresh) for envelope in envelopes_of(batch)]
                to_send[name] = self._tracks(destination, tried, outcomes)
        return to_send

    def _is_repeat(self, batch: Rows) -> bool:
        """Whether a try that died has had these events; a task reads one Kafka partition."""
        first = first_place(batch)
        if first is None:
            return False
        replay_end = self._plan.replay_until.get(KafkaPartition(first.topic, first.partition), 0)
        return self._courier.is_again or first.offset < replay_end

    def _open_retries(
        self, records: Iterable[RecordIn], outcomes: list[RecordOut]
    ) -> dict[str, Sequence[Iterable[Batch]]]:
        """Waiting events: those that are not to be sent now have their outcome at once."""
        due: dict[str, list[Tried]] = {}
        for record in records:
            opened = open_retry_record(record)
            if isinstance(opened, Malformed):
                outcomes.append(route_malformed(opened, now_ms=self._plan.clock()))
                continue
            name, history = opened.travel
            if self._courier.is_again:
                # What a dead try let wait anew, its repeat does too: that copy must say so.
                history = replace(history, is_ambiguous=True)
            match self._admit(name, history):
                case Send(history=current):
                    due.setdefault(name, []).append(Tried(opened, current))
                case Hop() as decision:
                    outcomes.append(hop(opened, decision, name, now_ms=self._plan.clock()))
                case DeadLetter() as decision:
                    outcomes += self._untried(name, [Tried(opened, history)], decision)
        return {
            name: self._tracks(self._plan.destinations[name], tried, outcomes)
            for name, tried in due.items()
        }

    def _admit(self, destination_id: str, history: History) -> Send | Hop | DeadLetter:
        if destination_id not in self._plan.destinations:
            return DeadLetter(DESTINATION_GONE, history)
        return admit(history, self._plan.schedule, now_ms=self._plan.clock())

    def _tracks(
        self, destination: Destination, tried: Sequence[Tried], outcomes: list[RecordOut]
    ) -> Sequence[Iterable[Batch]]:
        """The batches of opened events, as many rows of them as may go side by side in order."""
        if destination.filter:
            wanted = [is_wanted(one.envelope.value, destination.filter) for one in tried]
            others = [one for one, is_one in zip(tried, wanted, strict=True) if not is_one]
            tried = [one for one, is_one in zip(tried, wanted, strict=True) if is_one]
            outcomes += self._untried(destination.id, others, Delivered(FILTERED))
        if destination.order == "none":
            return [tried_batches(tried, destination)]
        tracks: list[list[Tried]] = [[] for _ in range(destination.parallel_max)]
        # As they came into the log; what waits comes from several tiers.
        for one in sorted(tried, key=lambda each: _place(each.envelope)):
            tracks[_track_of(one.envelope) % len(tracks)].append(one)
        return [tried_batches(track, destination) for track in tracks]

    def _untried(
        self, name: str, tried: Sequence[Tried], decision: DeadLetter | Delivered
    ) -> list[RecordOut]:
        """Events that are not sent at all; their receipts tell of no exchange."""
        at_ms = self._plan.clock()
        exchange = Exchange(batch_id="", started_at_ms=at_ms, ended_at_ms=at_ms)
        pairs = [(one, decision) for one in tried]
        return outcomes_of(name, pairs, exchange, read_at=self._read_at)


def _place(envelope: Envelope) -> tuple[str, int, int]:
    return envelope.origin.topic, envelope.origin.partition, envelope.origin.offset


def _track_of(envelope: Envelope) -> int:
    """All events of a key are of one track; those without a key have no order to keep."""
    if envelope.key is None:
        return envelope.origin.offset
    return zlib.crc32(envelope.key)


class _Worker:
    """What lives as long as the worker process: its loop, its connection pools, its open files."""

    def __init__(self, plan: Plan) -> None:
        self._loop = asyncio.new_event_loop()
        # What a process may send to is the same for all of its lanes.
        # The keys are read here: in the plan they would travel through Spark, and to its disk.
        box = SecretSettings().secret_box
        self.sender = Sender(box=box, allows_private=plan.allows_private)
        self._stores: dict[Path, FlowStore] = {}

    def run(self, settling: Coroutine[Any, Any, list[RecordOut]]) -> list[RecordOut]:
        return self._loop.run_until_complete(settling)

    def store(self, plan: Plan) -> FlowStore:
        if plan.flow_folder is None:
            return FlowStore(None, plan.flows)
        store = self._stores.setdefault(plan.flow_folder, FlowStore(plan.flow_folder))
        store.published = plan.flows
        return store


_workers: list[_Worker] = []


def _worker(plan: Plan) -> _Worker:
    """The worker of the process, made at its first task: Spark forks processes before that."""
    if not _workers:
        _workers.append(_Worker(plan))
    return _workers[0]
