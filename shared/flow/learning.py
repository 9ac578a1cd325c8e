"""Merges the knowledge of several machines about a destination.

Each of its three parts (the breaker and related members, the gate, the concurrency limit) counts
its changes: the part that has changed more often is newer, whatever clocks say. So neither the
order in which news arrives nor repeats of it matter (ADR 0068).
"""

from msgspec.structs import replace

from shared.flow.breaker import BreakerState
from shared.flow.concurrency import WINDOW_MS_MIN, Concurrency, Window
from shared.flow.flow import Flow

# A limit that was too high outweighs the increases of others that do not know that yet.
_LESS = 100
# Gates that differ by more were closed by different answers; clocks may explain a smaller
# difference.
_GATES_DIFFER_MS = 2_000


def counted(before: Flow, after: Flow, *, now_ms: int) -> Flow:
    """The flow after a change of ours, with the counts of changes for other machines."""
    was, changes = before.changes, after.changes
    if _is_other_breaker(before, after):
        changes = replace(changes, breaker=was.breaker + 1)
    if before.gate.closed_until_ms != after.gate.closed_until_ms:
        changes = replace(changes, gate=was.gate + 1)
    if after.concurrency.limit > before.concurrency.limit:
        changes = replace(changes, limit=was.limit + 1)
    if after.concurrency.limit < before.concurrency.limit:
        changes = replace(changes, limit=was.limit + _LESS)
        if after.neighbours.active:
            after = replace(after, concurrency=_settling(after.concurrency, now_ms=now_ms))
    return after if changes is after.changes else replace(after, changes=changes)


def learned(flow: Flow, theirs: Flow, *, now_ms: int) -> Flow:
    """The flow with newer knowledge of another machine; the same flow if there is none."""
    if theirs.resumed_at_ms != flow.resumed_at_ms:
        # One of the two does not know yet that a person resumed it, from the configuration.
        return flow
    if _breaker_rank(theirs) > _breaker_rank(flow):
        is_well = theirs.breaker.state is flow.breaker.state is BreakerState.CLOSED
        flow = replace(
            flow,
            # Failures that were counted here towards opening it still count.
            breaker=flow.breaker if is_well else theirs.breaker,
            # A machine that was busy elsewhere saw no failures: it learns when the failures that
            # others saw began.
            failing_since_ms=flow.failing_since_ms if is_well else theirs.failing_since_ms,
            held_at_ms=theirs.held_at_ms,
            disabled_at_ms=theirs.disabled_at_ms,
            halves_refused=theirs.halves_refused,
            changes=replace(flow.changes, breaker=theirs.changes.breaker),
        )
    later_ms = theirs.gate.closed_until_ms - flow.gate.closed_until_ms
    is_same = theirs.changes.gate == flow.changes.gate
    if theirs.changes.gate > flow.changes.gate or (is_same and later_ms > _GATES_DIFFER_MS):
        closed = replace(flow.gate, closed_until_ms=theirs.gate.closed_until_ms)
        changes = replace(flow.changes, gate=theirs.changes.gate)
        flow = replace(flow, gate=closed, changes=changes)
    if _limit_rank(theirs) > _limit_rank(flow):
        window = Window(was_full=flow.concurrency.window.was_full)
        settles_at_ms = now_ms + round(theirs.concurrency.mean_ms)
        concurrency = replace(theirs.concurrency, window=window, settles_at_ms=settles_at_ms)
        if concurrency.limit < flow.concurrency.limit:
            concurrency = _settling(concurrency, now_ms=now_ms)
        changes = replace(flow.changes, limit=theirs.changes.limit)
        flow = replace(flow, concurrency=concurrency, changes=changes)
    return flow


def shifted(flow: Flow, by_ms: int) -> Flow:
    """The flow with its times converted to a clock that is this far ahead."""
    breaker, gate = flow.breaker, flow.gate
    if breaker.until_ms or breaker.probe_until_ms:
        until_ms, probe_until_ms = breaker.until_ms + by_ms, breaker.probe_until_ms
        probe_until_ms = probe_until_ms and probe_until_ms + by_ms
        breaker = replace(breaker, until_ms=until_ms, probe_until_ms=probe_until_ms)
    if gate.closed_until_ms:
        gate = replace(gate, closed_until_ms=gate.closed_until_ms + by_ms)
    return replace(flow, breaker=breaker, gate=gate)


def _settling(state: Concurrency, *, now_ms: int) -> Concurrency:
    """Ignore requests that end soon: they began under another limit, also on other machines."""
    return replace(state, settles_at_ms=now_ms + round(max(state.mean_ms, WINDOW_MS_MIN)))


def _is_other_breaker(before: Flow, after: Flow) -> bool:
    was, now = before.breaker, after.breaker
    return (
        was.state is not now.state
        or was.until_ms != now.until_ms
        or was.probe_until_ms != now.probe_until_ms
        or was.successes != now.successes
        or before.is_held is not after.is_held
        or before.disabled_at_ms != after.disabled_at_ms
        or before.is_rejecting is not after.is_rejecting
    )


def _breaker_rank(flow: Flow) -> tuple[int, bool, bool, bool]:
    """A rank, higher for newer knowledge; the stricter of two simultaneous changes wins."""
    is_shut = flow.breaker.state is not BreakerState.CLOSED
    return flow.changes.breaker, bool(flow.disabled_at_ms), flow.is_held, is_shut


def _limit_rank(flow: Flow) -> tuple[int, float]:
    return flow.changes.limit, -flow.concurrency.limit
