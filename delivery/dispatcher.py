"""Decides in which order a destination's batches leave a task, how many at once, and when not.

Each destination has its own queue with its own share of requests, so that one destination's crowd
never stands before another's few. The flow is asked before each attempt and told after it; what
may not start waits as long as the time box has time for it, and is refused after that.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from delivery.batches import Batch, TriedBatch
from delivery.courier import Courier
from delivery.flow_store import FlowStore, Held
from delivery.settling import Pending, Sent, Settlement
from shared.event.record import RecordOut
from shared.flow.flow import (
    Ended,
    Never,
    NotNow,
    SendLimits,
    Start,
    after_attempt,
    is_calm,
    left,
    may_start,
    started,
)
from shared.flow.flow_record import FlowRecord
from shared.retry.attempt import Failure
from shared.runtime.clock import now_ms


@dataclass(slots=True, eq=False)
class _Track:
    """Batches that leave in their order: all of a destination's, or those of some of its keys."""

    waiting: deque[Pending]
    # The next one leaves only after the one before has ended (order = "key").
    is_serial: bool
    running_count: int = 0

    def put_back(self, pending: Sequence[Pending]) -> None:
        """What goes on after an attempt: at once and in order, or after the others if it waits."""
        if self.is_serial or not any(one.failed for one in pending):
            self.waiting.extendleft(reversed(pending))
        else:
            self.waiting.extend(pending)


_Request: TypeAlias = tuple[_Track, Pending, bool]


@dataclass(slots=True)
class _Turn:
    """What to send now, and when to ask again if nothing ends before."""

    to_send: list[_Request] = field(default_factory=list)
    is_over: bool = False
    # None: only when something ends.
    wake_s: float | None = None

    def end(self, wake_s: float | None) -> None:
        self.is_over, self.wake_s = True, wake_s


@dataclass(slots=True)
class Dispatcher:
    """The batches of one destination in one task."""

    # A name for the task, by which the flow shares requests out.
    task: str
    courier: Courier
    store: FlowStore
    settlement: Settlement
    limits: SendLimits
    # While a destination is well, its flow is asked and told so often, and not for each request.
    calm_s: float = 0.0
    has_sent: bool = False
    # Something had to wait elsewhere because the destination may not be sent to for longer.
    has_refused: bool = False
    _news: FlowRecord | None = None
    _calm_until_s: float = 0.0
    _tell_at_s: float = 0.0
    _untold: list[Ended] = field(default_factory=list)

    async def drain(
        self, tracks: Sequence[Iterable[Batch]], *, box_end_s: float
    ) -> list[RecordOut]:
        """Bring every event of the batches to an outcome; `box_end_s` is of time.monotonic."""
        is_serial = self.settlement.destination.order == "key"
        open_tracks = [_Track(deque(map(Pending, batches)), is_serial) for batches in tracks]
        running: set[asyncio.Task[tuple[_Track, Sent]]] = set()
        ended: list[tuple[_Track, Sent]] = []
        # A group, so that our own mistake in one batch leaves no other one running behind us.
        async with asyncio.TaskGroup() as group:
            while ended or running or _waits(open_tracks):
                turn = self._turn(ended, open_tracks, len(running), box_end_s)
                if len(turn.to_send) == 1 and not running and not _waits(open_tracks):
                    # The only one: a task of its own would cost as much as the rest of it.
                    ended = [await self._send(*turn.to_send[0])]
                    continue
                running |= {group.create_task(self._send(*one)) for one in turn.to_send}
                ended = await _first_ended(running, until_s=turn.wake_s)
        outcomes, self.settlement.outcomes = self.settlement.outcomes, []
        return outcomes

    def news(self) -> FlowRecord | None:
        """What others should hear of the destination, once; None if there is nothing new."""
        news, self._news = self._news, None
        return news

    def leave(self) -> None:
        """Send no more: this task's share of requests is the others'."""
        with self._hold() as held:
            self._tell(held)
            held.flow = left(held.flow, self.task)

    def _hold(self) -> AbstractContextManager[Held]:
        return self.store.hold(self.settlement.destination, self.limits, now_ms=now_ms())

    def _turn(
        self,
        ended: Sequence[tuple[_Track, Sent]],
        tracks: Sequence[_Track],
        running_count: int,
        box_end_s: float,
    ) -> _Turn:
        """Tell the flow what ended, and ask it what may start."""
        calm = self._calm_turn(ended, tracks, running_count)
        if calm is not None:
            return calm
        turn = _Turn()
        with self._hold() as held:
            self._tell(held)
            for track, sent in ended:
                track.running_count -= 1
                budget_s = box_end_s - time.monotonic()
                track.put_back(self.settlement.enter(held, sent, budget_s=budget_s))
            while not turn.is_over and _waits(tracks):
                self._step(held, tracks, turn, running_count + len(turn.to_send), box_end_s)
            # Asked here, as an event that comes alone would pay for another look at the file.
            self._news = held.to_publish() or self._news
            self._note_calm(held, has_told=bool(ended))
        return turn

    def _calm_turn(
        self, ended: Sequence[tuple[_Track, Sent]], tracks: Sequence[_Track], running_count: int
    ) -> _Turn | None:
        """A turn without a look at the flow, of a destination that was well a moment ago.

        None if there is more to it than a batch that was delivered and one that may go.
        """
        now_s = time.monotonic()
        waiting = [track for track in tracks if track.waiting]
        if (
            now_s >= self._calm_until_s
            or (ended and now_s >= self._tell_at_s)
            or running_count
            or self.settlement.keys_waiting
            or sum(len(track.waiting) for track in waiting) + len(ended) > 1
        ):
            return None
        for track, sent in ended:
            delivered = self.settlement.enter_delivered(sent)
            if delivered is None:
                return None
            track.running_count -= 1
            self._untold.append(delivered)
        turn = _Turn()
        for track in waiting:
            turn.to_send.append((track, track.waiting.popleft(), False))
            track.running_count += 1
            self.has_sent = True
        return turn

    def _tell(self, held: Held) -> None:
        """What ended since the flow was last told: deliveries, of which none is worth a roll."""
        for one in self._untold:
            held.flow = after_attempt(held.flow, held.limits, one, now_ms=held.now_ms, roll=0.0)
        self._untold.clear()

    def _note_calm(self, held: Held, *, has_told: bool) -> None:
        until_s = time.monotonic() + self.calm_s
        self._calm_until_s = until_s if is_calm(held.flow, held.limits, now_ms=held.now_ms) else 0.0
        if has_told:
            self._tell_at_s = until_s

    def _step(
        self,
        held: Held,
        tracks: Sequence[_Track],
        turn: _Turn,
        running_count: int,
        box_end_s: float,
    ) -> None:
        """Start one request, or refuse all that waits, or end the turn."""
        now_s = time.monotonic()
        if now_s >= box_end_s and self.has_sent:
            self._refuse_all(held, tracks, Failure.BUDGET_USED_UP, held.now_ms)
            return
        free = [track for track in tracks if self._is_free(held, track)]
        ready = [track for track in free if track.waiting[0].ready_at_s <= now_s]
        if not ready:
            if _waits(tracks):
                turn.end(min([track.waiting[0].ready_at_s for track in free], default=None))
            return
        limits, at_ms = held.limits, held.now_ms
        held.flow, answer = may_start(
            held.flow, limits, task=self.task, running_count=running_count, now_ms=at_ms
        )
        match answer:
            case Never():
                self._refuse_all(held, tracks, Failure.DISABLED, at_ms)
            case NotNow(failure=failure, until_ms=until_ms):
                until_s = now_s + (until_ms - at_ms) / 1000
                # Of one's own requests, one will end; for anything else there may be no time.
                if failure is Failure.BUDGET_USED_UP or until_s < box_end_s:
                    turn.end(until_s)
                else:
                    self._refuse_all(held, tracks, failure, until_ms)
            case Start(is_probe=is_probe):
                turn.to_send.append(self._take(held, ready[0], is_probe=is_probe))

    def _is_free(self, held: Held, track: _Track) -> bool:
        """Whether a track has a batch to send; events that must not overtake are taken out."""
        if track.is_serial and track.running_count:
            return False
        keys = self.settlement.keys_waiting
        while keys and track.waiting:
            pending = track.waiting.popleft()
            tried = pending.batch.tried()
            behind = [one for one in tried if one.envelope.key in keys]
            ahead = [one for one in tried if one.envelope.key not in keys]
            if behind:
                parked = replace(pending, batch=TriedBatch(behind))
                self.settlement.refuse(held, parked, Failure.KEY_WAITS, until_ms=held.now_ms)
                pending = replace(pending, batch=TriedBatch(ahead))
            if ahead:
                track.waiting.appendleft(pending)
                break
        return bool(track.waiting)

    def _take(self, held: Held, track: _Track, *, is_probe: bool) -> _Request:
        pending = track.waiting.popleft()
        if is_probe and pending.batch.event_count > 1:
            # As little as can be: most probes of a dead destination fail.
            first, others = pending.batch.split_at(1)
            track.waiting.appendleft(replace(pending, batch=others))
            pending = replace(pending, batch=first)
        count = pending.batch.event_count
        held.flow = started(held.flow, held.limits, event_count=count, now_ms=held.now_ms)
        track.running_count += 1
        self.has_sent = True
        return track, pending, is_probe

    def _refuse_all(
        self, held: Held, tracks: Sequence[_Track], failure: Failure, until_ms: int
    ) -> None:
        for track in tracks:
            self.has_refused = self.has_refused or bool(track.waiting)
            while track.waiting:
                pending = track.waiting.popleft()
                self.settlement.refuse(held, pending, failure, until_ms=until_ms)

    async def _send(
        self,
        track: _Track,
        pending: Pending,
        is_probe: bool,  # noqa: FBT001 - the third of a request
    ) -> tuple[_Track, Sent]:
        attempt, exchange, latency_ms = await self.courier.send(
            self.settlement.destination, pending.batch
        )
        return track, Sent(pending, is_probe, attempt, exchange, latency_ms)


def _waits(tracks: Sequence[_Track]) -> bool:
    return any(track.waiting for track in tracks)


async def _first_ended(
    running: set[asyncio.Task[tuple[_Track, Sent]]], *, until_s: float | None
) -> list[tuple[_Track, Sent]]:
    """Those that have ended when the first does, taken out of `running`; none at `until_s`."""
    timeout_s = None if until_s is None else max(0.0, until_s - time.monotonic())
    if not running:
        await asyncio.sleep(timeout_s or 0.0)
        return []
    done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    running -= done
    return [one.result() for one in done]
