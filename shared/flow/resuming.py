"""Resets the flow of a destination that a person has resumed."""

from shared.flow.breaker import Breaker, BreakerState
from shared.flow.concurrency import recovered
from shared.flow.flow import Flow, SendLimits
from shared.flow.rate_gate import reopened


def resumed(flow: Flow, limits: SendLimits) -> Flow:
    """The flow after a person has resumed it, which counts once, whatever clocks say.

    A destination that was shut is tried at once with one small request: if it is still down, that
    is the only cost, and its next wait is the shortest.
    """
    if limits.to.resumed_at_ms <= flow.resumed_at_ms:
        return flow
    was_shut = flow.breaker.state is not BreakerState.CLOSED
    return Flow(
        concurrency=recovered(flow.concurrency),
        gate=reopened(flow.gate),
        breaker=Breaker(BreakerState.HALF_OPEN) if was_shut else Breaker(),
        resumed_at_ms=limits.to.resumed_at_ms,
        last_ok_at_ms=flow.last_ok_at_ms,
        last_refusal=flow.last_refusal,
        attempts=flow.attempts,
        parks=flow.parks,
        tasks=flow.tasks,
        neighbours=flow.neighbours,
        changes=flow.changes,
    )
