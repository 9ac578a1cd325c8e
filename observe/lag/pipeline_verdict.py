"""Gives a pipeline its verdict: one word, and a sentence that says why."""

from collections.abc import Mapping

from observe.lag.trouble import counted
from observe.lag.verdict import in_words, loss_of
from shared.config.pipeline_state import PipelineState
from shared.proof.overview import DestinationView, Finding, StreamVerdict
from shared.proof.receipt import ReceiptOutcome

# The first pipeline of a process waits for Spark to start, and a job may take a minute.
STALLED_AFTER_S = 90.0


def pipeline_verdict(
    lane: DestinationView,
    state: PipelineState,
    rates: Mapping[str, float],
    *,
    problem: str = "",
    blindness: str = "",
    slow_after_s: float,
) -> Finding:
    """Return the worst verdict that applies, and why.

    `problem`: what could not be read, if anything; `blindness`: why losses are not checked.
    """
    lost = loss_of(lane)
    if lost is None and problem:
        return Finding(StreamVerdict.CANNOT_TELL, problem)
    known = lost or _trouble(lane, state, rates)
    if known is None and (blindness or lane.overdue.minute_count):
        return Finding(StreamVerdict.CANNOT_TELL, blindness or in_words(lane.overdue))
    return known or _pace(lane, slow_after_s)


def _trouble(
    lane: DestinationView, state: PipelineState, rates: Mapping[str, float]
) -> Finding | None:
    """Return the trouble that keeps it from processing events, if any."""
    if state.standing == "refused":
        where = f" ({state.pointer})" if state.pointer else ""
        return Finding(StreamVerdict.DISABLED, f"it is refused: {state.why}{where}", "refused")
    if lane.silent_s >= STALLED_AFTER_S:
        reason = f"{counted(lane.balance.queued, 'is', 'are')} queued and none has moved"
        return Finding(StreamVerdict.STALLED, f"{reason} for {lane.silent_s:.0f} s", state.standing)
    dead, total = rates.get(ReceiptOutcome.DEAD.value, 0.0), sum(rates.values())
    if dead and dead >= total / 2:
        reason = f"{100 * dead / total:.0f} % of the events of the last minute became dead letters"
        return Finding(StreamVerdict.REJECTING, reason, "dead_letters")
    return None


def _pace(lane: DestinationView, slow_after_s: float) -> Finding:
    """Return SLOW if events are late, otherwise OK."""
    p95_s = lane.since_accepted.p95_ms / 1000 if lane.since_accepted else 0.0
    if lane.oldest_age_s is not None and lane.oldest_age_s >= slow_after_s:
        return Finding(
            StreamVerdict.SLOW, f"the oldest event is {lane.oldest_age_s:,.0f} s old", "late"
        )
    if p95_s >= slow_after_s:
        reason = f"95 % of events take up to {p95_s:,.1f} s"
        return Finding(StreamVerdict.SLOW, reason, "late")
    return Finding(StreamVerdict.OK)
