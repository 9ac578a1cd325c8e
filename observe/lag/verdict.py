"""Gives a destination its verdict: one word, and a sentence that says why."""

from datetime import UTC, datetime
from math import inf

from observe.lag.pace import PACE_S
from observe.lag.trouble import BLOCKING, counted, heard_of, trouble_of
from shared.config.destination import Destination
from shared.flow.flow import SLOW_MS
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import (
    DestinationView,
    Finding,
    OverdueMinutes,
    RecentOutcomes,
    StreamVerdict,
)

# A lane that has work but is silent for this long hangs; a busy one reports several times a second.
STALLED_AFTER_S = 4.0
# An idle lane starts a micro-batch every four to five seconds, in which it waits for a probe.
_REST_S = 10.0


def stream_verdict(
    view: DestinationView,
    to: Destination,
    record: FlowRecord | None = None,
    latest: RecentOutcomes = RecentOutcomes(),  # noqa: B008 - frozen
    *,
    problem: str = "",
    blindness: str = "",
    drain_s: float = 0.0,
    slow_after_s: float,
    now_ms: int,
) -> Finding:
    """Return the worst verdict that applies, and why.

    `problem`: what could not be read, if anything; `blindness`: why losses are not checked;
    `drain_s`: how long the backlog will take at the recent pace, if some of it is already late.
    Known trouble of a destination also explains a silent lane and unchecked minutes.
    """
    if lost := loss_of(view):
        return lost
    if problem:
        return Finding(StreamVerdict.CANNOT_TELL, problem)
    trouble = trouble_of(view, to, record, latest, now_ms=now_ms)
    patience_s = _REST_S + to.timeout_s if trouble else 2 * _answer_s_max(to, record)
    if trouble is not None and trouble.cause == BLOCKING and record is not None:
        # Nothing should move until the next attempt.
        patience_s += max(0.0, record.flow.blocking.until_ms - record.updated_at_ms) / 1000
    if view.silent_s >= STALLED_AFTER_S + patience_s:
        reason = f"{counted(view.balance.queued, 'is', 'are')} queued and none has moved"
        return Finding(StreamVerdict.STALLED, f"{reason} for {view.silent_s:.0f} s")
    if trouble is not None:
        return trouble
    if blindness or view.overdue.minute_count:
        return Finding(StreamVerdict.CANNOT_TELL, blindness or in_words(view.overdue))
    return _pace(view, to, record, drain_s=drain_s, slow_after_s=slow_after_s)


def loss_of(view: DestinationView) -> Finding | None:
    """Return the recent losses, if any."""
    lost = sum(minute.lost_count for minute in view.minutes)
    if not lost:
        return None
    stages = sorted({stage.value for minute in view.minutes for stage in minute.lost})
    where = f"stage{'s' * (len(stages) > 1)} {' and '.join(stages)}"
    reason = f"{counted(lost, 'was', 'were')} lost in the last hour, at the {where}"
    return Finding(StreamVerdict.LOSING, reason)


def _answer_s_max(to: Destination, record: FlowRecord | None) -> float:
    """Return how long an answer may take: after a slow first answer, the whole timeout."""
    if record is None:
        return 0.0
    usual_s = record.flow.concurrency.mean_ms / 1000
    is_unknown = record.flow.is_slow and not usual_s
    return to.timeout_s if is_unknown else min(usual_s, to.timeout_s)


def _slowness(record: FlowRecord | None) -> str:
    """Describe how long a destination takes to answer; empty if it is not slow."""
    if record is None:
        return ""
    usual_ms = record.flow.concurrency.mean_ms
    if usual_ms >= SLOW_MS:
        return f"it takes {usual_ms / 1000:,.1f} s to answer"
    is_first = record.flow.is_slow and not usual_ms
    return f"it takes over {SLOW_MS / 1000:g} s to answer" if is_first else ""


def in_words(overdue: OverdueMinutes) -> str:
    """Return the number of minutes that cannot be checked, the oldest one, and why."""
    if overdue.oldest_ms is None:
        oldest = "events with an implausible time"
    else:
        oldest = datetime.fromtimestamp(overdue.oldest_ms / 1000, UTC).strftime("%F %H:%M UTC")
    count = overdue.minute_count
    minutes = "1 minute is" if count == 1 else f"{count:,} minutes are"
    return f"{minutes} not checked; {oldest}: {overdue.problem}"


def _pace(
    view: DestinationView,
    to: Destination,
    record: FlowRecord | None,
    *,
    drain_s: float,
    slow_after_s: float,
) -> Finding:
    """Return SLOW if events are late or answers are slow, otherwise OK."""
    # Old answers mean nothing unless events wait.
    slowness = _slowness(record) if view.lately.total or view.backlog_events else ""
    cause = "slow_answers" if slowness else "late"
    why = f"; {slowness}" if slowness else ""
    if record is not None and heard_of(to, record) is None:
        cause, why = "not_tried_yet", "; a person asked to try it now, and no event has come since"
    waiting = view.balance.waiting
    what = f"{waiting:,} {'waits' if waiting == 1 else 'wait'} for a retry, " if waiting else ""
    p95_s = view.since_accepted.p95_ms / 1000 if view.since_accepted else 0.0
    if view.oldest_age_s is not None and view.oldest_age_s >= slow_after_s:
        reason = f"{what}the oldest event is {view.oldest_age_s:,.0f} s old{why}"
    elif p95_s >= slow_after_s:
        reason = f"95 % of events take up to {p95_s:,.1f} s to arrive{why}"
    elif drain_s >= slow_after_s:
        there = counted(view.balance.queued, "is queued", "are queued")
        none = f"none has moved for {PACE_S} s"
        takes = f"at the pace of the last {PACE_S} s this backlog takes {drain_s:,.0f} s"
        reason = f"{there}, and {none if drain_s == inf else takes}{why}"
    elif slowness:
        reason = f"{what}{slowness}"
    else:
        return Finding(StreamVerdict.OK)
    return Finding(StreamVerdict.SLOW, reason, cause)
