"""Decides how a task's rows become HTTP calls, and turns what comes of them into rows again.

`deliver` is a plain generator over Arrow batches with no Spark in it. It opens the records, groups
them by destination, sends batches side by side, asks `decide` after each attempt, and yields the
outcomes: receipts, retries, dead letters. It never drops a row, and it raises only for our own
mistakes, so that the task fails and Spark reads the same rows again.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

import pyarrow as pa

from delivery.batches import Batch, Tried, fresh_batches, halves, is_joined, tried_batches
from delivery.outcomes import Exchange, Final, hop, outcomes_of, receipt_of
from delivery.sender import Sender
from shared.attempt import Attempt
from shared.batch import CONTENT_TYPES, batch_id
from shared.decision import (
    DESTINATION_GONE,
    DeadLetter,
    Decision,
    Delivered,
    Hop,
    Policy,
    RetryLocally,
    Send,
    Situation,
    Split,
    admit,
    decide,
)
from shared.destination import Destination
from shared.envelope import Envelope, History, Malformed, open_retry_record
from shared.receipt import Covered
from shared.record import RecordIn, RecordOut
from shared.routing import route_malformed
from shared.runtime.arrow_events import columns_of
from shared.runtime.arrow_rows import batch_of, envelopes_of, records_of
from shared.runtime.clock import now_ms
from shared.schedule import RetrySchedule


@dataclass(frozen=True, slots=True)
class Plan:
    """What a lane's tasks need to know; it travels to the workers with the query."""

    reads: Literal["stream", "retry"]
    destinations: Mapping[str, Destination]
    schedule: RetrySchedule = field(default_factory=RetrySchedule)
    # Local retries end here, so that the length of a micro-batch does not hang on the
    # destination's moods; a first attempt is always made.
    time_box_s: float = 5.0
    # Offsets below these may have been sent by a micro-batch that died before its checkpoint.
    replay_until: Mapping[tuple[str, int], int] = field(default_factory=dict)
    # What time it is; the retrier asks the broker, whose clock stamps what waits.
    clock: Callable[[], int] = now_ms
    # Whether a destination may be at a private address, as in a test or on somebody's laptop.
    allows_private: bool = False


def deliver(batches: Iterable[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """Send every row of a task to its destination; yield one row per outcome."""
    worker = _worker(plan)
    task = _Task(plan, worker.sender)
    for batch in batches:
        outcomes = worker.runner.run(task.settle(batch))
        if outcomes:
            yield batch_of(outcomes)


class _Task:
    """The rows of one Spark task, from open record to outcome."""

    def __init__(self, plan: Plan, sender: Sender) -> None:
        self._plan = plan
        self._sender = sender
        self._time_box_end_s = time.monotonic() + plan.time_box_s
        # The spread of delays needs no secrecy.
        self._dice = random.Random()  # noqa: S311
        self._gates = {
            destination.id: asyncio.Semaphore(destination.parallel_max)
            for destination in plan.destinations.values()
        }

    async def settle(self, batch: pa.RecordBatch) -> list[RecordOut]:
        """Bring every record to an outcome that Kafka can hold."""
        outcomes: list[RecordOut] = []
        match self._plan.reads:
            case "stream":
                to_send = self._open_stream(batch)
            case "retry":
                outcomes, to_send = self._open_retries(records_of(batch))
            case _:
                assert_never(self._plan.reads)
        # A group, so that our own mistake in one batch leaves no other one running behind us.
        async with asyncio.TaskGroup() as group:
            sends = [
                group.create_task(self._send_batch(self._plan.destinations[name], batch))
                for name, batches in to_send.items()
                for batch in batches
            ]
        for send in sends:
            outcomes += send.result()
        return outcomes

    def _open_stream(self, batch: pa.RecordBatch) -> dict[str, Iterable[Batch]]:
        """First attempts: every event goes to every destination of the lane, which has one."""
        fresh = History.fresh(now_ms=self._plan.clock(), deadline_s=self._plan.schedule.deadline_s)
        to_send: dict[str, Iterable[Batch]] = {}
        for name, destination in self._plan.destinations.items():
            columns = columns_of(batch) if is_joined(destination) else None
            if columns is not None:
                to_send[name] = fresh_batches(columns, fresh, destination)
            else:
                tried = [Tried(envelope, fresh) for envelope in envelopes_of(batch)]
                to_send[name] = tried_batches(tried, destination)
        return to_send

    def _open_retries(
        self, records: Iterable[RecordIn]
    ) -> tuple[list[RecordOut], dict[str, Iterable[Batch]]]:
        """Waiting events: those that are not to be sent now have their outcome at once."""
        outcomes: list[RecordOut] = []
        due: dict[str, list[Tried]] = {}
        for record in records:
            opened = open_retry_record(record)
            if isinstance(opened, Malformed):
                outcomes.append(route_malformed(opened, now_ms=self._plan.clock()))
                continue
            name, history = opened.travel
            match self._admit(name, history):
                case Send(history=current):
                    due.setdefault(name, []).append(Tried(opened, current))
                case Hop() as decision:
                    outcomes.append(hop(opened, decision, name, now_ms=self._plan.clock()))
                case DeadLetter() as decision:
                    outcomes += _give_up(opened, decision, name, now_ms=self._plan.clock())
        return outcomes, {
            name: tried_batches(tried, self._plan.destinations[name]) for name, tried in due.items()
        }

    def _admit(self, destination_id: str, history: History) -> Send | Hop | DeadLetter:
        if destination_id not in self._plan.destinations:
            return DeadLetter(DESTINATION_GONE, history)
        return admit(history, self._plan.schedule, now_ms=self._plan.clock())

    async def _send_batch(self, destination: Destination, batch: Batch) -> list[RecordOut]:
        """Try a batch until each of its events has an outcome; `decide` bounds the rounds."""
        local_attempt_count = 0
        while True:
            attempt, exchange = await self._attempt(destination, batch)
            local_attempt_count += 1
            decided = self._decide(destination, batch, attempt, local_attempt_count)
            # Only histories differ within a batch, so all of it goes on, or none.
            match decided[0]:
                case Delivered() as delivered:
                    return receipt_of(destination.id, batch, delivered, exchange)
                case RetryLocally(delay_s=delay_s):
                    batch = batch.with_histories(
                        [one.history for one in decided if isinstance(one, RetryLocally)]
                    )
                    await asyncio.sleep(delay_s)
                case Split():
                    first, second = halves(batch)
                    outcomes = await self._send_batch(destination, first)
                    return outcomes + await self._send_batch(destination, second)
                case _:
                    tried = batch.tried()
                    final = [one for one in decided if isinstance(one, Final)]
                    # One history, one decision; otherwise one of each for each event.
                    final = final if len(final) == len(tried) else final * len(tried)
                    return outcomes_of(
                        destination.id, list(zip(tried, final, strict=True)), exchange
                    )

    async def _attempt(self, destination: Destination, batch: Batch) -> tuple[Attempt, Exchange]:
        covered = batch.facts.covered
        name = batch_id(destination.id, covered)
        headers = {
            "content-type": CONTENT_TYPES[destination.body_format],
            "user-agent": "hifi",
            "webhook-id": name,
            "hifi-stream": destination.stream,
            "hifi-events": str(batch.event_count),
            "hifi-attempt": str(max(history.attempt_count for history in batch.histories) + 1),
        }
        if self._may_be_duplicate(batch, covered):
            headers["hifi-maybe-duplicate"] = "1"
        async with self._gates[destination.id]:
            started_at_ms = self._plan.clock()
            headers["webhook-timestamp"] = str(started_at_ms // 1000)
            body = batch.body(destination)
            attempt = await self._sender.send(destination, body, headers)
        return attempt, Exchange(name, started_at_ms, self._plan.clock())

    def _may_be_duplicate(self, batch: Batch, covered: Iterable[Covered]) -> bool:
        replay_until = self._plan.replay_until
        return any(history.is_ambiguous for history in batch.histories) or any(
            part.first < replay_until.get((part.topic, part.partition), 0) for part in covered
        )

    def _decide(
        self,
        destination: Destination,
        batch: Batch,
        attempt: Attempt,
        local_attempt_count: int,
    ) -> list[Decision]:
        """A decision for each history; when the batch is delivered, one for all."""
        policy = Policy(schedule=self._plan.schedule, retry_on=destination.retry_on)
        situation = Situation(
            batch_count=batch.event_count,
            local_attempt_count=local_attempt_count,
            budget_s=self._time_box_end_s - time.monotonic(),
            now_ms=self._plan.clock(),
            roll=self._dice.random(),
        )
        first = decide(batch.histories[0], attempt, policy, situation)
        if isinstance(first, Delivered):
            # A success is one whatever came before it.
            return [first]
        return [decide(history, attempt, policy, situation) for history in batch.histories]


def _give_up(
    envelope: Envelope, dead: DeadLetter, destination_id: str, *, now_ms: int
) -> list[RecordOut]:
    """A waiting event that is not tried again; its receipt tells of no exchange."""
    exchange = Exchange(batch_id="", started_at_ms=now_ms, ended_at_ms=now_ms)
    return outcomes_of(destination_id, [(Tried(envelope, dead.history), dead)], exchange)


class _Worker:
    """What lives as long as the worker process: its loop and its connection pools."""

    def __init__(self, plan: Plan) -> None:
        self.runner = asyncio.Runner()
        # What a process may send to is the same for all of its lanes.
        self.sender = Sender(allows_private=plan.allows_private)


_workers: list[_Worker] = []


def _worker(plan: Plan) -> _Worker:
    """The worker of the process, made at its first task: Spark forks processes before that."""
    if not _workers:
        _workers.append(_Worker(plan))
    return _workers[0]
