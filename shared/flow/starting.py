"""Determines whether a destination may get a request now."""

from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

from msgspec.structs import replace

from shared.flow import sharing
from shared.flow.breaker import ASK_AGAIN_MS, BreakerState, Refrain, Start, asked
from shared.flow.concurrency import noted_full
from shared.flow.flow import Flow, FlowState, SendLimits, permits_of, state_of
from shared.flow.neighbours import (
    Neighbours,
    noted_running,
    noted_sent,
    noted_waiting,
    rate_here,
    shared_out,
)
from shared.flow.rate_gate import opens_at_ms, spent
from shared.retry.attempt import Failure

# It is unknown how long a pause lasts; the events are tried again after the second tier.
PAUSED_MS = 300_000


@dataclass(frozen=True, slots=True)
class NotNow:
    """Wait, or park: no attempt is charged. Ask again at `until_ms`."""

    failure: Failure
    until_ms: int


@dataclass(frozen=True, slots=True)
class Never:
    """The destination is disabled: its events go to dead letters."""


Answer: TypeAlias = Start | NotNow | Never


def may_start(
    flow: Flow, limits: SendLimits, *, task: str, running_count: int, now_ms: int, unasked: int = 0
) -> tuple[Flow, Answer]:
    """Whether a task may start another request, beside its own and those that no task reported."""
    tasks = sharing.joined(flow.tasks, task, lease_ms=limits.lease_ms, now_ms=now_ms)
    flow = at_its_part(_with_tasks(flow, tasks), limits, now_ms=now_ms)
    if limits.to.is_disabled or flow.disabled_at_ms:
        return flow, Never()
    if limits.to.is_paused:
        return flow, NotNow(Failure.PAUSED, now_ms + PAUSED_MS)
    counts = {"running_count": running_count, "unasked": unasked}
    permits = _permits_here(flow, limits)
    if not sharing.is_free(tasks, task, **counts, permits=permits, now_ms=now_ms):
        neighbours = noted_waiting(flow.neighbours, "permits", until_ms=now_ms, now_ms=now_ms)
        is_to_try = flow.neighbours.is_to_try_more
        state = noted_full(flow.concurrency) if is_to_try else flow.concurrency
        flow = replace(flow, concurrency=state, neighbours=neighbours)
        if not running_count:
            flow = _with_tasks(flow, sharing.waits(tasks, task, since_ms=now_ms))
        again_ms = ASK_AGAIN_MS if running_count else sharing.LOOK_AGAIN_MS
        return flow, NotNow(Failure.BUDGET_USED_UP, now_ms + again_ms)
    rate = rate_here(flow.neighbours, limits.to.rate_per_s)
    opens_ms = opens_at_ms(flow.gate, rate, now_ms=now_ms)
    if 0 < flow.paced_until_ms - now_ms <= 2 * _gap_ms(flow, limits):
        opens_ms = max(opens_ms, ceil(flow.paced_until_ms))
    if opens_ms > now_ms:
        waits = noted_waiting(flow.neighbours, "rate", until_ms=opens_ms, now_ms=now_ms)
        return _with_neighbours(flow, waits), NotNow(Failure.OVER_RATE, opens_ms)
    breaker, answer = asked(
        flow.breaker,
        open_ms_min=limits.open_ms_min,
        probe_lease_ms=limits.lease_ms,
        now_ms=now_ms,
    )
    if isinstance(answer, Start) and answer.is_probe and not flow.neighbours.target(1):
        # Another machine makes the probe: continue as if it were under way.
        breaker, answer = flow.breaker, Refrain(now_ms + ASK_AGAIN_MS)
    flow = flow if breaker is flow.breaker else replace(flow, breaker=breaker)
    if not isinstance(answer, Start):
        shut = Failure.REJECTING if flow.is_rejecting else Failure.BREAKER_OPEN
        return flow, NotNow(Failure.HELD if flow.is_held else shut, answer.until_ms)
    return _with_tasks(flow, sharing.waits(tasks, task, since_ms=0)), answer


def started(flow: Flow, limits: SendLimits, *, event_count: int, now_ms: int) -> Flow:
    """The flow after a request with this many events was sent."""
    rate = rate_here(flow.neighbours, limits.to.rate_per_s)
    gate = spent(flow.gate, rate, event_count=event_count, now_ms=now_ms)
    flow = flow if gate is flow.gate else replace(flow, gate=gate)
    if flow.neighbours.active:
        sent = noted_sent(flow.neighbours, event_count, now_ms=now_ms)
        flow = replace(flow, neighbours=sent)
    gap_ms = _gap_ms(flow, limits)
    if not gap_ms:
        return flow
    # An unused part of a pause must not speed up later requests.
    begun_ms = min(max(now_ms - gap_ms, flow.paced_until_ms), now_ms + gap_ms)
    return replace(flow, paced_until_ms=begun_ms + gap_ms)


def running(flow: Flow, task: str, running_count: int) -> Flow:
    """The flow when a task has this many requests under way."""
    return _with_tasks(flow, sharing.runs(flow.tasks, task, running_count))


def is_calm(flow: Flow, limits: SendLimits, *, now_ms: int) -> bool:
    """Whether requests may go without asking: nothing stops, counts or limits them."""
    if limits.to.is_paused or limits.to.is_disabled or flow.neighbours.active:
        return False
    # The flow decides how much of a batch the destination gets.
    is_cut = flow.batch_size.events > 0
    is_metered = started(flow, limits, event_count=1, now_ms=now_ms) is not flow
    is_short = len(flow.tasks) > permits_of(flow, limits)
    is_doubtful = is_short or flow.gate.refusals_in_row > 0
    is_well = state_of(flow, now_ms=now_ms) is FlowState.CLOSED
    return is_well and not is_metered and not is_doubtful and not is_cut


def left(flow: Flow, task: str) -> Flow:
    """The flow after a task has ended."""
    return replace(flow, tasks=sharing.left(flow.tasks, task))


def at_its_part(flow: Flow, limits: SendLimits, *, now_ms: int) -> Flow:
    """The flow with this machine's number of concurrent requests, if others also send."""
    if not flow.neighbours.active or not sharing.is_sent_to(flow.tasks, now_ms=now_ms):
        return flow
    running, permits = sharing.running_count(flow.tasks), permits_of(flow, limits)
    part = noted_running(flow.neighbours, running, now_ms=now_ms)
    part = shared_out(part, permits, running=running, now_ms=now_ms)
    if part.has > flow.neighbours.has == 0:
        # It is unknown here when another machine sent its last request.
        flow = replace(flow, paced_until_ms=now_ms + flow.concurrency.gap_ms * permits / part.has)
    return _with_neighbours(flow, part)


def _permits_here(flow: Flow, limits: SendLimits) -> int:
    """How many requests the tasks of this machine may have under way; probes are separate."""
    if flow.neighbours.active and flow.breaker.state is BreakerState.CLOSED:
        return flow.neighbours.has
    return permits_of(flow, limits)


def _gap_ms(flow: Flow, limits: SendLimits) -> float:
    """The time from one request of this machine to the next."""
    gap_ms = flow.concurrency.gap_ms
    if not gap_ms or not flow.neighbours.active:
        return gap_ms
    return gap_ms * permits_of(flow, limits) / max(1, _permits_here(flow, limits))


def _with_tasks(flow: Flow, tasks: sharing.Tasks) -> Flow:
    return flow if tasks is flow.tasks else replace(flow, tasks=tasks)


def _with_neighbours(flow: Flow, neighbours: Neighbours) -> Flow:
    return flow if neighbours is flow.neighbours else replace(flow, neighbours=neighbours)
