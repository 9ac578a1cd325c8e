"""Sends a destination's batches: decides their order, how many go at once, and when none may.

Each destination has a dispatcher with its own share of requests, so that the many events of one
never delay the few of another. It asks the flow before each attempt, and reports to it afterwards.
Requests that may not start wait while the time box has room, and are refused after that.
"""

import asyncio
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from delivery.batches import Batch, TriedBatch
from delivery.courier import Courier, RequestResult
from delivery.flow_store import LockedFlow, Permits
from delivery.settling import Block, SettledBatch, Settlement
from delivery.tracks import DueBatch, OpenTrack, suspect
from shared.event.record import RecordOut
from shared.flow.breaker import Start
from shared.flow.flow import EndedRequest, FlowState, may_retry_locally, state_of
from shared.flow.starting import Never, NotNow
from shared.retry.attempt import Failure, Outcome


@dataclass(frozen=True, slots=True)
class _DueRequest:
    track: OpenTrack
    due: DueBatch
    is_probe: bool
    # The other part of a refused batch; this part's result shows whether the other is at fault.
    rest: Batch | None = None
    # Whether the flow gave permission for it.
    is_asked: bool = True


_Reply: TypeAlias = tuple[_DueRequest, RequestResult]


@dataclass(slots=True)
class _SendTurn:
    """The requests to send now, and when to ask again if nothing ends earlier."""

    to_send: list[_DueRequest] = field(default_factory=list)
    is_over: bool = False
    # Without a time, only the end of a request wakes the dispatcher.
    wake_s: float | None = None

    def end(self, wake_s: float | None) -> None:
        self.is_over, self.wake_s = True, wake_s


@dataclass(slots=True)
class Dispatcher:
    """The batches of one destination in one task."""

    courier: Courier
    permits: Permits
    settlement: Settlement
    dice: random.Random
    # How long a task may wait for a destination in trouble that can be tried again soon.
    trouble_wait_s_max: float = math.inf
    # How many time boxes fit into the shortest tier's delay, for a task that sends due events; 0
    # for other tasks.
    rounds: float = 0.0
    has_sent: bool = False
    # The event that blocks all behind it (order = "stream").
    block: Block | None = None
    _is_last: bool = False
    _rows: list[RecordOut] = field(default_factory=list)
    # How many events the destination has taken, and how many are to go next.
    _taken_count: int = 0
    _next_count: int = 0
    # Keys that have a waiting event: later events of the key must not overtake it (order = "key").
    _keys_waiting: set[bytes] = field(default_factory=set)

    async def drain(
        self, tracks: Sequence[Iterable[Batch]], *, box_end_s: float, is_last: bool = False
    ) -> list[RecordOut]:
        """Bring every event of the batches to an outcome; `box_end_s` is in time.monotonic.

        Set `is_last` if no batches follow.
        """
        self._is_last, self.block = is_last, None
        open_tracks = [OpenTrack.of(batches, is_serial=self._is_serial) for batches in tracks]
        running: list[asyncio.Task[_Reply]] = []
        replies: list[_Reply] = []
        # A group, so that a bug in one batch leaves no other running.
        async with asyncio.TaskGroup() as group:
            while replies or running or _waits(open_tracks):
                turn = self._turn(replies, open_tracks, len(running), box_end_s)
                if len(turn.to_send) == 1 and not running and not _waits(open_tracks):
                    # A separate task would double the cost of a single request.
                    replies = [await self._make(turn.to_send[0])]
                    continue
                running += [group.create_task(self._make(request)) for request in turn.to_send]
                replies = await _first_replies(running, until_s=turn.wake_s)
        outcomes, self._rows = self._rows, []
        return outcomes

    @property
    def _is_serial(self) -> bool:
        return self.settlement.destination.order != "none"

    def _turn(
        self,
        replies: Sequence[_Reply],
        tracks: Sequence[OpenTrack],
        running_count: int,
        box_end_s: float,
    ) -> _SendTurn:
        """Report ended requests to the flow, and ask it which may start."""
        if self._is_calm(replies, tracks, running_count):
            return self._calm_turn(replies, tracks)
        turn = _SendTurn()
        with self.permits.look(tells=bool(replies)) as locked:
            for request, sent in replies:
                self._settle(locked, request, sent, box_end_s - time.monotonic())
            while not turn.is_over and _waits(tracks):
                self._step(locked, tracks, turn, running_count + len(turn.to_send), box_end_s)
            running_count += len(turn.to_send)
            locked.runs(self.permits.task, running_count)
            # Set in this look, because a second one would be too costly for a single event.
            locked.is_last = self._is_last and not running_count and not _waits(tracks)
        return turn

    def _is_calm(
        self, replies: Sequence[_Reply], tracks: Sequence[OpenTrack], running_count: int
    ) -> bool:
        """Say whether the turn can skip the flow: its only batch was taken, or may be sent."""
        return (
            self.permits.may_skip(tells=bool(replies))
            and not running_count
            # Other tasks' requests in this process take permits as well.
            and not (_waits(tracks) and self.permits.calm.running_count)
            and not self._keys_waiting
            and sum(len(track.waiting) for track in tracks) + len(replies) <= 1
            and all(sent.is_all_taken and request.rest is None for request, sent in replies)
        )

    def _calm_turn(self, replies: Sequence[_Reply], tracks: Sequence[OpenTrack]) -> _SendTurn:
        """Take a turn without a look at the flow, for a destination that was well a moment ago."""
        for request, sent in replies:
            request.track.running_count -= 1
            self.permits.tell_later(_ended(request, sent))
            # A delivery is settled the same way whatever the flow says.
            self._rows += self.settlement.after_attempt(request.due, sent).rows
        waiting = [track for track in tracks if track.waiting]
        return _SendTurn([self._start(track) for track in waiting])

    def _settle(
        self, locked: LockedFlow, request: _DueRequest, sent: RequestResult, budget_s: float
    ) -> None:
        """Record the result of an attempt, in the flow and in the rows."""
        roll = self.dice.random()
        locked.enter(_ended(request, sent), roll=roll)
        settled = self.settlement.after_attempt(
            request.due,
            sent,
            may_retry=may_retry_locally(locked.flow),
            budget_s=budget_s,
            is_held=locked.flow.is_held,
            roll=roll,
            is_by_size=locked.flow.batch_size.is_by_size,
        )
        if any(due.failed for due in settled.go_on):
            locked.retry_locally(sent.attempt)
        self._keep(locked, settled)
        if sent.verdict.outcome is Outcome.OK:
            self._taken_count += request.due.batch.event_count
        request.track.running_count -= 1
        request.track.put_back([*settled.go_on, *_rest_of(request, sent)])
        if self.block is not None:
            request.track.waiting.clear()

    def _keep(self, locked: LockedFlow, settled: SettledBatch) -> None:
        locked.park(settled.parks)
        self._rows += settled.rows
        if settled.block is not None:
            self.block = settled.block
            locked.block(self.block.offset, self.block.history)
        if self.settlement.destination.order == "key":
            self._keys_waiting |= settled.keys_waiting

    def _step(
        self,
        locked: LockedFlow,
        tracks: Sequence[OpenTrack],
        turn: _SendTurn,
        running_count: int,
        box_end_s: float,
    ) -> None:
        """Start one request, or refuse all waiting batches, or end the turn."""
        now_s = time.monotonic()
        if now_s >= box_end_s and self.has_sent:
            self._refuse_all(locked, tracks, Failure.BUDGET_USED_UP)
            return
        free = [track for track in tracks if self._is_free(locked, track)]
        ready = [track for track in free if track.waiting[0].ready_at_s <= now_s]
        if not ready:
            if _waits(tracks):
                turn.end(min([track.waiting[0].ready_at_s for track in free], default=None))
            return
        unasked = self.permits.calm.unasked_count
        answer = locked.ask(self.permits.task, running_count=running_count, unasked=unasked)
        match answer:
            case Never():
                self._refuse_all(locked, tracks, Failure.DISABLED)
            case NotNow(failure=failure, until_ms=until_ms):
                wait_ms = until_ms - locked.now_ms
                until_s = now_s + wait_ms / 1000
                wait_end_s = min(box_end_s, now_s + self._wait_s_max(locked))
                # If the budget is used up, one of our own requests will end and make room. Any
                # other reason may last longer than we can wait.
                if failure is Failure.BUDGET_USED_UP or until_s < wait_end_s:
                    turn.end(until_s)
                else:
                    self._refuse_all(locked, tracks, failure, wait_ms=wait_ms)
            case Start(is_probe=is_probe):
                request = self._start(ready[0], locked, is_probe=is_probe)
                locked.start(event_count=request.due.batch.event_count)
                turn.to_send.append(request)
            case _:
                assert_never(answer)

    def _wait_s_max(self, locked: LockedFlow) -> float:
        """Return how long to wait for the destination: without limit unless it is in trouble."""
        is_well = state_of(locked.flow, now_ms=locked.now_ms) is FlowState.CLOSED
        return math.inf if is_well else self.trouble_wait_s_max

    def _is_free(self, locked: LockedFlow, track: OpenTrack) -> bool:
        """Say whether a track has a batch to send; refuse events that must not overtake others."""
        if track.is_serial and track.running_count:
            return False
        keys = self._keys_waiting
        while keys and track.waiting:
            due = track.waiting.popleft()
            tried = due.batch.tried()
            behind = [event for event in tried if event.envelope.key in keys]
            ahead = [event for event in tried if event.envelope.key not in keys]
            if behind:
                self._refuse(locked, replace(due, batch=TriedBatch(behind)), Failure.KEY_WAITS)
                due = replace(due, batch=TriedBatch(ahead))
            if ahead:
                track.waiting.appendleft(due)
                break
        return bool(track.waiting)

    def _start(
        self, track: OpenTrack, locked: LockedFlow | None = None, *, is_probe: bool = False
    ) -> _DueRequest:
        """Start the next request; the flow gave permission for it if it is `locked`."""
        to, is_asked = self.settlement.destination, locked is not None
        count_max = to.request_count_max if locked is None else locked.batch_count_max
        if is_probe:
            # As few events as possible: most probes of a dead destination fail.
            count_max = 1
        due, rest = track.take(count_max, to, is_probe=is_probe)
        track.running_count += 1
        self.has_sent = True
        self.permits.calm.start(is_asked=is_asked)
        return _DueRequest(track, due, is_probe, rest, is_asked)

    def _refuse_all(
        self, locked: LockedFlow, tracks: Sequence[OpenTrack], failure: Failure, *, wait_ms: int = 0
    ) -> None:
        next_count = self._next_max(locked) if failure is Failure.BUDGET_USED_UP else 0
        for track in tracks:
            while track.waiting:
                due = track.waiting.popleft()
                is_next = self._next_count < next_count
                self._next_count += is_next * due.batch.event_count
                self._refuse(locked, due, failure, wait_ms=wait_ms, is_next=is_next)
                if self.block is not None:
                    track.waiting.clear()

    def _next_max(self, locked: LockedFlow) -> float:
        """Return how many late events go next: as many as can be sent before the others are due."""
        if self.rounds and locked.flow.is_slow and self.courier.patience_s is not None:
            # The lane for slow destinations sends them the next time anyway.
            return math.inf
        at_once = self.settlement.destination.requests_at_once_max * locked.batch_count_max
        return self.rounds * max(self._taken_count, at_once)

    def _refuse(
        self,
        locked: LockedFlow,
        due: DueBatch,
        failure: Failure,
        *,
        wait_ms: int = 0,
        is_next: bool = False,
    ) -> None:
        is_held = locked.flow.is_held
        settled = self.settlement.refuse(
            due, failure, wait_ms=wait_ms, is_held=is_held, is_next=is_next
        )
        self._keep(locked, settled)

    async def _make(self, request: _DueRequest) -> _Reply:
        due = request.due
        tries = due.local_attempt_count
        destination = self.settlement.destination
        try:
            sent = await self.courier.attempt(destination, due.batch, earlier_tries=tries)
        finally:
            self.permits.calm.end(is_asked=request.is_asked)
        return request, sent


def _ended(request: _DueRequest, sent: RequestResult) -> EndedRequest:
    due = request.due
    is_one = due.batch.event_count == 1
    return EndedRequest(
        sent.attempt,
        sent.verdict,
        due.batch.event_count,
        sent.latency_ms,
        sent.waited_ms,
        request.is_probe,
        is_half=due.is_half,
        is_last_suspect=due.is_suspect and is_one,
        is_redriven=is_one and any(each.redrive_count for each in due.batch.histories),
    )


def _rest_of(request: _DueRequest, sent: RequestResult) -> list[DueBatch]:
    """Return the rest of a refused batch; it is suspect if the part that was sent was taken."""
    if request.rest is None:
        return []
    return [suspect(request.rest) if sent.is_all_taken else DueBatch(request.rest, is_half=True)]


def _waits(tracks: Sequence[OpenTrack]) -> bool:
    return any(track.waiting for track in tracks)


async def _first_replies(
    running: list[asyncio.Task[_Reply]], *, until_s: float | None
) -> list[_Reply]:
    """Wait for the first replies, until `until_s`; remove ended tasks from `running`.

    Replies are in the order in which their requests began, so that a seed decides a whole run.
    """
    timeout_s = None if until_s is None else max(0.0, until_s - time.monotonic())
    if not running:
        await asyncio.sleep(timeout_s or 0.0)
        return []
    done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in running if task in done]
    running[:] = [task for task in running if task not in done]
    return [task.result() for task in ended]
